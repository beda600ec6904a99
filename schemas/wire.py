"""The base of every message and the words that messages share.

A reader accepts unknown fields and refuses wrong types, NaN and infinities.  Times are integer
milliseconds since the epoch (`*_ms`), so that sums and comparisons are exact.  A value that was not
measured is None; physical plausibility is judged by the reader, not by the wire, because one odd
reading must not cost a node its whole scrape.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=512)]
"""A name as Kubernetes, NVML or a user wrote it."""

Label = Annotated[str, Field(max_length=4096)]
"""A label's or an annotation's value."""

EpochMs = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970-01-01 UTC, up to the end of the year 9999."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A count or a number of bytes: never negative, fits in 64 bits."""

Quality = Literal["exact", "estimated", "unknown"]
"""How well a value is attributed to its pod."""

Measure = Literal["sm_active", "gr_engine_active", "gpu_util"]
"""What a utilisation stands for; figures of different measures are never compared."""

CapacityType = Literal["on_demand", "reserved", "spot"]

NodeClock = Literal["host", "data"]
"""`host`: the node's own clock, checked against the broker's.  `data`: a simulated or imported
stream whose times are taken as they are."""


class Wire(BaseModel):
    """A part of a message: immutable, strict, tolerant of fields it does not know."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class Message(Wire):
    """A value on a topic.  `type` and `version` say which model reads it."""


class PodVersion(Wire):
    """A point in a node's pod events: all of `epoch` up to and including `sequence`."""

    epoch: Count
    """Number of the full snapshot that began this run of events; grows with each snapshot."""
    sequence: Count
    """Position after the snapshot, which itself is 0."""

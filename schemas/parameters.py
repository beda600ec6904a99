"""Parameters of the detectors: every constant is a time or a physical quantity.

They travel on `gpu.parameters`, so that a replay decides with what was in force.
"""

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.wire import CapacityType, EpochMs, Message, Text, Wire

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(value: object) -> object:
    """Seconds of `30m`, `1h30m`, `90` or a timedelta; anything else is left for pydantic to refuse.

    Raises ValueError for a text that is no duration.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        msg = f"{value!r} is no duration; write it like 90s, 30m, 1h30m or 2d"
        raise ValueError(msg)
    return sum(float(n) * _UNITS[u] for n, u in parts)


Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=366 * 86400)]
Percent = Annotated[float, Field(ge=0, le=100)]


class Parameters(Wire):
    """A group of parameters; unlike messages it refuses a name that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=False)


class UnderUseParameters(Parameters):
    """When allocated GPUs count as not used."""

    open_after: Seconds = 1800.0
    """Seconds at zero use before an alert opens; the least hold."""
    open_after_max: Seconds = 4500.0
    """Seconds; the longest hold that learned gaps may ask for."""
    notebook_open_after: Seconds = 3600.0
    """Seconds; the least hold for notebooks."""
    gap_factor: Annotated[float, Field(ge=1, le=10)] = 1.5
    """The hold is at least this many times the longest low run that ended by itself."""
    low_percent: Percent = 10.0
    """Percent; use below this counts as low where the measure is `gpu_util`."""
    low_active_percent: Percent = 10.0
    """Percent; the same where the measure is `sm_active` or `gr_engine_active`."""
    idle_percent: Percent = 1.0
    """Percent; a mean below this is idle, above it is low use."""
    held_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    """Bytes on the devices from which idle is `idle_held`."""
    starting_grace: Seconds = 1800.0
    """Seconds after a start without use that are not idle."""
    activity_after: Seconds = 7200.0
    """Seconds of high gpu_util with low SM activity before `low_use` opens."""
    activity_percent: Percent = 15.0
    """Percent; SM activity below this is low."""
    activity_util_percent: Percent = 50.0
    """Percent; gpu_util from which low SM activity counts as hidden low use."""
    stalled_after: Seconds = 1800.0
    """Seconds of a stall before `busy_stalled` opens."""
    stalled_util_percent: Percent = 95.0
    stalled_power_fraction: Annotated[float, Field(ge=0, le=1)] = 0.10
    """Fraction of (limit - idle) that the power stays below while stalled."""
    stalled_power_span_watts: Annotated[float, Field(ge=0)] = 15.0
    """Watts between the least and the most power in a window that still count as flat."""
    stalled_memory_percent: Percent = 2.0
    stalled_link_bytes_per_second: Annotated[float, Field(ge=0)] = 10e6
    quiet_percent: Percent = 15.0
    """Percent; an hour of the week with a learned use below this is quiet."""
    quiet_peak_percent: Percent = 20.0
    """Percent; quiet hours count only where the busiest learned hour reaches this."""
    quiet_hours_learned: Annotated[int, Field(ge=1)] = 20
    """Hours that must be learned before quiet hours are believed."""
    longest_interval: Seconds = 300.0
    """Seconds between samples above which the verdict is `not observable`."""
    longest_gap: Seconds = 60.0
    """Seconds; longer gaps between windows add nothing."""


class AlertParameters(Parameters):
    """The life of an alert."""

    repeat_every: Seconds = 600.0
    """Seconds between two events of an open alert."""
    valid_for: Seconds = 1800.0
    """Seconds after an event at which a reader closes the alert as stale."""
    reopen_within: Seconds = 1800.0
    """Seconds after resolving in which the same trouble is the same incident."""
    runbook_base_url: Text | None = None
    """Address to which the kind is appended."""


class TimeParameters(Parameters):
    """How event time is read."""

    lateness: Seconds = 10.0
    """Seconds by which samples of a node may be out of order."""
    skew_tolerance: Seconds = 30.0
    """Seconds that a node's clock may be wrong before its times are shifted."""
    silent_after: Seconds = 120.0
    """Seconds without a message after which a node holds nobody up."""
    gone_after: Seconds = 900.0
    """Seconds without a message after which a node's windows and alerts end."""
    max_ahead: Seconds = 600.0
    """Seconds by which a source partition may run ahead of the slowest one."""
    forget_node_after: Seconds = 86400.0
    """Seconds after which a silent node's state ends."""
    forget_workload_after: Seconds = 30 * 86400.0
    """Seconds without a device after which a workload's state ends."""


class Price(Parameters):
    """Money for an hour of one whole card."""

    device_model: Text
    """A part of the model's name, in any case; the first price that fits is taken."""
    per_gpu_hour: Annotated[float, Field(ge=0)]
    capacity_type: CapacityType | None = None
    """Only for this capacity type; None fits each."""


class PriceParameters(Parameters):
    """Prices by model; a MIG instance costs its share of the card."""

    currency: Text = "USD"
    table: tuple[Price, ...] = ()


class DetectorParameters(Parameters):
    """Everything that decides, in one place."""

    under_use: UnderUseParameters = UnderUseParameters()
    alerts: AlertParameters = AlertParameters()
    time: TimeParameters = TimeParameters()
    prices: PriceParameters = PriceParameters()


def parameter_names(model: type[BaseModel] = DetectorParameters, prefix: str = "") -> list[str]:
    """Every parameter by its dotted name."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += parameter_names(kind, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


class ParametersMessage(Message):
    """A version of the parameters.  Key: the version.

    Holds for windows that begin at or after `valid_from_ms`, on every partition.
    """

    type: Literal["parameters"] = "parameters"
    version: Literal[1] = 1
    cluster: Text
    parameters_version: Text
    valid_from_ms: EpochMs
    parameters: DetectorParameters

"""The seam between detectors and the life of an alert.

A detector is fed the windows of one subject and says which kind of trouble is open.  Only when an
event is to be written is it asked for the words and the numbers, so that watching stays cheap.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from msgspec import Struct

    from schemas.alerts import AlertKind, EvidenceValue, Subject, Tier, Waste
    from schemas.windows import WorkloadWindow


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector has to say about open trouble: all of an alert but its life."""

    detector: str
    kind: "AlertKind"
    tier: "Tier"
    quality: Literal["exact", "estimated"]
    onset_ms: int
    """When the trouble began, which is before it was certain."""
    subject: "Subject"
    owner: str | None
    summary: str
    """One sentence with the numbers that decided."""
    evidence: "dict[str, EvidenceValue]"
    waste: "Waste | None"
    parameters: "dict[str, EvidenceValue]"
    """The parameters that decided, by their names in `schemas.parameters`."""
    aggressors: "tuple[Subject, ...]" = ()


class Detector(Protocol):
    """One detector for one subject."""

    name: str

    @property
    def state(self) -> "Struct":
        """Everything the detector remembers; dumps to JSON and loads exactly."""

    @property
    def close_reason(self) -> str:
        """Why the trouble that `update` no longer reports has ended, in a few words."""

    def update(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> "AlertKind | None":
        """The kind that is open after this window, None when nothing is wrong."""

    def describe(self) -> Verdict:
        """The open trouble in full.

        Raises RuntimeError unless the last `update` of this very object returned a kind.
        """

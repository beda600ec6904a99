"""What one pod usually gets of a shared device and what it gets now, with explicit state."""

from math import exp
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from schemas.parameters import NoisyParameters
    from streams.device_windows import PodUse

SPIKE_POINTS = 10.0
SPIKE_FRACTION = 0.5
"""A window further from the baseline than this, in points and as a part of it, counts only so far:
one burst does not move what is usual."""


class OpenBlame(Struct, array_like=True):
    """A pod's deficit that was found to be somebody's doing."""

    onset_ms: int
    aggressors: list[str]
    """Pods' uids, the one that gained most first."""
    memory: bool
    """Whether it is short of memory, not of SM time."""
    over: bool
    """Whether an aggressor was above its entitlement."""
    usual_percent: float
    """The victim's baseline when it began; so for the aggressor's and the device's below."""
    aggressor_usual_percent: float
    device_usual_percent: float
    below_seconds: float = 0.0


class PodShare(Struct, array_like=True):
    """The running figures of one pod on one device.  Means are exponentially weighted."""

    joined_ms: int
    """When it came; 0 where it was there before anybody looked."""
    seen_seconds: float = 0.0
    usual_percent: float = 0.0
    recent_percent: float = 0.0
    usual_bytes: float = 0.0
    deficit_seconds: float = 0.0
    """CUSUM of (deficit - tolerated) over time in which somebody else had what it lost."""
    memory_seconds: float = 0.0
    """The same for memory: time for which another one held what is missing."""
    onset_ms: int = 0
    """Begin of the first window that counted in either."""
    frozen_seconds: float = 0.0
    room_seconds: float = 0.0
    """Time for which it has had less although the device had room."""
    open: OpenBlame | None = None

    def deficit(self) -> float:
        """Part of its usual share that it lacks now; negative where it has more."""
        return 1.0 - self.recent_percent / self.usual_percent if self.usual_percent > 0 else 0.0

    def gain_points(self, now_ms: int, parameters: "NoisyParameters") -> float:
        """By how much its share has grown; all of it where it joined not long ago."""
        if self.is_new(now_ms, parameters):
            return self.recent_percent
        return self.recent_percent - self.usual_percent

    def gain_bytes(self, held: int, now_ms: int, parameters: "NoisyParameters") -> float:
        """The same for the memory that it holds."""
        return float(held) if self.is_new(now_ms, parameters) else held - self.usual_bytes

    def is_new(self, now_ms: int, parameters: "NoisyParameters") -> bool:
        """Whether it joined not long ago."""
        return bool(self.joined_ms) and now_ms - self.joined_ms < parameters.joined_within * 1000

    def can_be_victim(self, parameters: "NoisyParameters") -> bool:
        """Whether it is known well enough, and usually uses enough, to have something to lose."""
        return (
            self.seen_seconds >= parameters.warm_up
            and self.usual_percent >= parameters.baseline_percent
        )

    def is_held_down(self, use_percent: float, parameters: "NoisyParameters") -> bool:
        """Whether it gets clearly less than usual but still works: else it has stopped by itself.

        Both the window and the recent mean must still show work, because the mean lags a stop.
        """
        least = max(parameters.least_percent, parameters.least_fraction * self.usual_percent)
        return (
            self.deficit() > parameters.deficit
            and use_percent >= least
            and self.recent_percent >= least
        )

    def see(self, use_percent: float, seconds: float, parameters: "NoisyParameters") -> None:
        """Let the recent mean follow a window."""
        if not self.seen_seconds:
            self.recent_percent = use_percent
        else:
            weight = 1.0 - exp(-seconds / parameters.recent_over)
            self.recent_percent += weight * (use_percent - self.recent_percent)
        self.seen_seconds += seconds

    def learn(self, pod: "PodUse", seconds: float, parameters: "NoisyParameters") -> None:
        """Let what is usual follow a window: a plain mean at first, then slowly."""
        over = min(parameters.baseline_over, max(self.seen_seconds, seconds))
        weight = min(1.0, seconds / over)
        if pod.use_percent is not None:
            reach = SPIKE_POINTS + SPIKE_FRACTION * self.usual_percent
            off = pod.use_percent - self.usual_percent
            if self.seen_seconds > parameters.warm_up:
                off = max(-reach, min(reach, off))
            self.usual_percent += weight * off
        if pod.memory_bytes is not None:
            self.usual_bytes += weight * (pod.memory_bytes - self.usual_bytes)

    def rebase(self) -> None:
        """Take what it gets now for what it wants: nobody takes it away."""
        self.usual_percent = self.recent_percent
        self.deficit_seconds = self.room_seconds = 0.0

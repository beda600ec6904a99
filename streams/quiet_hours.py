"""The hours at which a workload usually rests: a profile of the 168 hours of a week.

Hours are UTC and those of the data.  The profile lives with the workload, so it survives rollouts.
It is kept as one byte an hour, in memory as in the dump: half a percent is fine enough for a
threshold of 15 %, and 168 floats would not fit the state's budget.
"""

from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from schemas.parameters import UnderUseParameters

HOUR_MS = 3_600_000
HOURS_A_DAY = 24
HOURS_A_WEEK = 168
WEEKLY_FROM_HOURS = 2 * HOURS_A_WEEK
"""Hours to learn before a week's hours are believed one by one, and not only those of the day."""
LEAST_SECONDS = 900.0
"""Seconds of an hour that must be known for it to be learned."""
NEW_SHARE = 0.3
"""Share of a new value in an hour that is already known."""

_STEPS_A_PERCENT = 2
_UNKNOWN = 255
_NOTHING_LEARNED = bytes([_UNKNOWN]) * HOURS_A_WEEK


class QuietHours(Struct, omit_defaults=True):
    """The learned profile and the hour in progress."""

    VERSION: ClassVar[int] = 1

    profile: bytes = _NOTHING_LEARNED
    """Use in half percents for each hour since the epoch, modulo 168; 255 is unknown."""
    hours_learned: int = 0
    hour: int = -1
    """The hour in progress, in hours since the epoch; -1 before the first."""
    known_seconds: float = 0.0
    use_sum: float = 0.0
    """Percent-seconds in the hour in progress."""

    def add(self, start_ms: int, use_percent: float, seconds: float) -> None:
        """Count a window's use; learns the hour before when a new one begins."""
        hour = start_ms // HOUR_MS
        if hour != self.hour:
            self._learn()
            self.hour, self.known_seconds, self.use_sum = hour, 0.0, 0.0
        self.known_seconds += seconds
        self.use_sum += use_percent * seconds

    def learned_use_percent(self, hour: int) -> float | None:
        """Usual use at this hour (hours since the epoch), percent; None where not learned."""
        slot = hour % HOURS_A_WEEK
        if self.hours_learned >= WEEKLY_FROM_HOURS and self.profile[slot] != _UNKNOWN:
            return self.profile[slot] / _STEPS_A_PERCENT
        same_hour = self.profile[hour % HOURS_A_DAY :: HOURS_A_DAY]
        known = [value for value in same_hour if value != _UNKNOWN]
        return sum(known) / len(known) / _STEPS_A_PERCENT if known else None

    def busiest_percent(self) -> float | None:
        """Use in the busiest learned hour, percent; None where none was learned."""
        known = [value for value in self.profile if value != _UNKNOWN]
        return max(known) / _STEPS_A_PERCENT if known else None

    def is_quiet(self, hour: int, parameters: "UnderUseParameters") -> bool:
        """Whether the workload usually rests at this hour, and works at another."""
        if self.hours_learned < parameters.quiet_hours_learned:
            return False
        use = self.learned_use_percent(hour)
        busiest = self.busiest_percent()
        return (
            use is not None
            and busiest is not None
            and use < parameters.quiet_percent
            and busiest >= parameters.quiet_peak_percent
        )

    def _learn(self) -> None:
        if self.known_seconds < LEAST_SECONDS:
            return
        slot = self.hour % HOURS_A_WEEK
        new = min(100.0, self.use_sum / self.known_seconds) * _STEPS_A_PERCENT
        old = self.profile[slot]
        if old != _UNKNOWN:
            new = (1 - NEW_SHARE) * old + NEW_SHARE * new
        self.profile = self.profile[:slot] + bytes([round(new)]) + self.profile[slot + 1 :]
        self.hours_learned += 1

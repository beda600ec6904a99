"""A hung job: the device says 100 %, and draws hardly more than when it does nothing.

Power alone proves nothing: healthy jobs of small kernels sit at 100 % and low power too.  So the
power must be flat, and the memory and the links nearly still, for long, on all devices of a job or
on all but one: the rank that the others wait for.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from streams.spells import Spell
from streams.workload_use import HIGHEST_PERCENT

if TYPE_CHECKING:
    from schemas.parameters import UnderUseParameters
    from schemas.windows import SeriesWindow, WorkloadWindow

MOVING_SECONDS = 120.0
"""Seconds of movement that end a stall."""
MOVEMENT_WEIGHT = 10.0
"""Before a stall is certain, a second of movement takes back this many seconds of stillness: a job
that moves once a minute never gets there, one odd reading costs little."""
ALL_BUT_ONE_FROM = 3
"""Devices from which one of them may be the one that the others wait for."""


class Stall(Struct, omit_defaults=True):
    """How long the workload has hung."""

    still_seconds: float = 0.0
    moving_seconds: float = 0.0
    """Seconds of movement in a row."""
    open: bool = False
    spell: Spell | None = None

    def update(self, *, still: bool | None, seconds: float, stalled_after: float) -> None:
        """Count a window; `still` as `is_still` says."""
        if still is None:
            return
        if still:
            self.moving_seconds = 0.0
            self.still_seconds = min(stalled_after, self.still_seconds + seconds)
            self.open = self.open or self.still_seconds >= stalled_after
            return
        self.moving_seconds += seconds
        if not self.open:
            self.still_seconds = max(0.0, self.still_seconds - MOVEMENT_WEIGHT * seconds)
        elif self.moving_seconds >= MOVING_SECONDS:
            self.open, self.still_seconds = False, 0.0
        if not self.still_seconds:
            self.spell = None


def is_still(window: "WorkloadWindow", parameters: "UnderUseParameters") -> bool | None:
    """Whether the workload hangs in this window; None where that can't be known."""
    count = len(window.series)
    needed = count - 1 if count >= ALL_BUT_ONE_FROM else count
    still = moving = 0
    for series in window.series:
        own = _series_is_still(series, parameters)
        if own:
            still += 1
        elif own is False:
            moving += 1
    if moving > count - needed:
        return False
    return True if still >= needed else None


def _series_is_still(series: "SeriesWindow", parameters: "UnderUseParameters") -> bool | None:
    util = series.gpu_util_mean_percent
    if util is None or not _judged(series, parameters) or not 0 <= util <= HIGHEST_PERCENT:
        return None
    if util < parameters.stalled_util_percent:
        return False
    memory = series.memory_activity_mean_percent
    link = series.link_bytes_per_second
    signs = (
        _power_is_still(series, parameters),
        None if memory is None or memory < 0 else memory <= parameters.stalled_memory_percent,
        link is None or link <= parameters.stalled_link_bytes_per_second,
    )
    if False in signs:
        return False
    return None if None in signs else True


def _judged(series: "SeriesWindow", parameters: "UnderUseParameters") -> bool:
    """All MIG instances of a card share one power figure, and so do pods on a shared device."""
    return (
        series.coverage_seconds > 0
        and series.interval_seconds <= parameters.longest_interval
        and series.mig_instance is None
        and not series.shared
    )


def _power_is_still(series: "SeriesWindow", parameters: "UnderUseParameters") -> bool | None:
    mean, least, most = series.power_mean_watts, series.power_min_watts, series.power_max_watts
    idle, limit = series.power_idle_watts, series.power_limit_watts
    if mean is None or least is None or most is None or idle is None or limit is None:
        return None
    if min(mean, least, idle) < 0 or limit <= idle:
        return None
    ceiling = idle + parameters.stalled_power_fraction * (limit - idle)
    return mean < ceiling and most - least <= parameters.stalled_power_span_watts

"""What one window says about the use of a whole workload.

A workload is idle only when all its devices are, so its use is that of its busiest device, and a
device that is not known may be that one.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from schemas.parameters import UnderUseParameters
    from schemas.windows import SeriesEnd, SeriesWindow, WorkloadWindow

HIGHEST_PERCENT = 100.5
"""Readings above this are faults of a counter; up to it, rounding."""


class WorkloadUse(Struct, frozen=True):
    """The use of a workload in a window, where it could be judged."""

    seconds: float
    """Time that every judged series covers."""
    use_percent: float
    """Of the busiest device."""
    low_rate: float
    """Seconds of zero use that a second is worth: 1 at no use, 0 at the threshold, below it in
    use.  Of the device that is furthest from low."""
    measure: str
    """Names of the measures, joined by `+` where devices differ."""
    complete: bool
    """False where a device was not known; then another one was in use."""
    gpu_util_percent: float | None
    memory_bytes: int | None
    """Last value on the device that holds most."""
    memory_min_bytes: int | None
    """Least value on that device."""
    peaked: bool
    """Whether a device was in use at any moment, whatever its mean."""


def workload_use(
    window: "WorkloadWindow", window_seconds: float, parameters: "UnderUseParameters"
) -> WorkloadUse | None:
    """The workload's use; None where a device is not known and none is seen in use."""
    seconds, use, low_rate, measure = window_seconds, -1.0, 1.0, ""
    complete, peaked = True, False
    for series in window.series:
        own = known_use_percent(series, parameters)
        if own is None:
            complete = False
            continue
        name = series.measure or ""
        low = parameters.low_percent if name == "gpu_util" else parameters.low_active_percent
        seconds = min(seconds, series.coverage_seconds)
        use = max(use, own)
        low_rate = min(low_rate, (low - own) / low if low else -1.0)
        peaked = peaked or low <= (series.use_max_percent or 0.0) <= HIGHEST_PERCENT
        if name != measure:
            measure = _joined(measure, name)
    if use < 0 or (not complete and low_rate > 0):
        return None
    memory, memory_min = _most_memory(window)
    return WorkloadUse(
        seconds=seconds,
        use_percent=use,
        low_rate=low_rate,
        measure=measure,
        complete=complete,
        gpu_util_percent=_most_util(window),
        memory_bytes=memory,
        memory_min_bytes=memory_min,
        peaked=peaked or low_rate <= 0,
    )


def series_key(series: "SeriesWindow | SeriesEnd") -> str:
    """Name of a series in its workload: `device uuid|pod uid`, the latter empty if not known."""
    return f"{series.device_uuid}|{series.pod_uid or ''}"


def known_use_percent(series: "SeriesWindow", parameters: "UnderUseParameters") -> float | None:
    """The series' use; None where not covered, too rarely sampled, or no percentage."""
    use = series.use_mean_percent
    if use is None or series.measure is None or series.coverage_seconds <= 0:
        return None
    if series.interval_seconds > parameters.longest_interval:
        return None
    return use if 0 <= use <= HIGHEST_PERCENT else None


def known_memory_bytes(series: "SeriesWindow") -> int | None:
    """Memory held; None where it can't be: a board that reports no memory gives a total of 0."""
    used = series.memory_used_bytes
    if used is None or used < 0 or series.memory_total_bytes == 0:
        return None
    return used


def most_memory_bytes(window: "WorkloadWindow") -> int | None:
    """Memory on the device that holds most; the sum would make much of many empty contexts."""
    return _most_memory(window)[0]


def _most_memory(window: "WorkloadWindow") -> tuple[int | None, int | None]:
    """Last and least memory of the device that holds most."""
    most: int | None = None
    least: int | None = None
    for series in window.series:
        held = known_memory_bytes(series)
        if held is not None and (most is None or held > most):
            most = held
            least = held if series.memory_min_bytes is None else series.memory_min_bytes
    return most, least


def _most_util(window: "WorkloadWindow") -> float | None:
    most: float | None = None
    for series in window.series:
        util = series.gpu_util_mean_percent
        if util is not None and 0 <= util <= HIGHEST_PERCENT and (most is None or util > most):
            most = util
    return most


def _joined(measures: str, name: str) -> str:
    names = {*measures.split("+"), name} - {""}
    return "+".join(sorted(names))

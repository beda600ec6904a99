"""The words and the numbers of a leak."""

from typing import TYPE_CHECKING

from schemas.alerts import Subject
from streams.floors import BUCKET_SECONDS, SLOW, STEP_BYTES
from streams.verdicts import Verdict
from streams.workload_use import series_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.alerts import EvidenceValue
    from schemas.parameters import LeakParameters
    from schemas.windows import SeriesWindow, WorkloadWindow
    from streams.leak import LeakSeries

_MIB = 2**20
_GIB = 2**30

_ADVICE = (
    "Restart the process before the memory is exhausted, then look for what it keeps: growing "
    "caches, tensors held by references, a context or CUDA graph for each request."
)

_DECIDING = (
    "trend_z",
    "growth_fraction",
    "record_fraction",
    "step_fraction",
    "late_ratio",
    "level_fraction",
    "rising_fraction",
    "warm_up",
)
_FAST = ("exhaustion_within", "room_fraction", "urgent_within")
_SLOW = ("slow_exhaustion_within", "slow_room_fraction")


def verdict(
    leaks: "Mapping[str, LeakSeries]",
    window: "WorkloadWindow",
    end_ms: int,
    parameters: "LeakParameters",
) -> Verdict:
    """The verdict on the leak that ends soonest, naming how many there are."""
    key = min(leaks, key=lambda one: _exhaustion_seconds(leaks[one])[0])
    worst = leaks[key]
    leak = worst.open
    if leak is None:
        raise RuntimeError("a leak that is described has to be open")
    series = next((one for one in window.series if series_key(one) == key), None)
    critical = _exhaustion_seconds(worst)[0] <= parameters.exhaustion_within
    return Verdict(
        detector="leak",
        kind="memory_leak",
        tier="page" if critical else "ticket",
        quality="estimated" if series is not None and _is_estimated(series) else "exact",
        onset_ms=leak.onset_ms,
        subject=_subject(window, series, key),
        owner=window.owner,
        summary=_summary(worst, window, series),
        evidence=_evidence(worst, len(leaks), end_ms, critical=critical),
        waste=None,
        parameters={
            name: getattr(parameters, name)
            for name in (*_DECIDING, *(_SLOW if leak.scale == SLOW else _FAST))
        },
    )


def _is_estimated(series: "SeriesWindow") -> bool:
    return series.pod_uid is not None and series.quality != "exact"


def _subject(window: "WorkloadWindow", series: "SeriesWindow | None", key: str) -> Subject:
    """The workload, with the pod and the device on which it leaks."""
    device, _, pod_uid = key.partition("|")
    return Subject(
        cluster=window.cluster,
        node=series.node if series else None,
        device_uuid=device,
        device_model=series.device_model if series else None,
        mig_instance=series.mig_instance if series else None,
        namespace=window.namespace,
        pod=series.pod if series else None,
        pod_uid=pod_uid or None,
        container=series.container if series else None,
        workload=None if window.kind is None else f"{window.kind}/{window.name}",
    )


def _exhaustion_seconds(series: "LeakSeries") -> tuple[float, float, float | None]:
    """Time to exhaustion: likely, at the earliest, and at the latest (None: perhaps never)."""
    leak = series.open
    if leak is None:
        return 0.0, 0.0, 0.0
    room = series.room
    seconds = BUCKET_SECONDS[leak.scale]
    median, low, high = leak.slope
    likely = room / median * seconds if median > 0 else 0.0
    return (
        likely,
        room / high * seconds if high > 0 else likely,
        room / low * seconds if low > 0 else None,
    )


def _mib_per_minute(series: "LeakSeries") -> float:
    leak = series.open
    if leak is None:
        return 0.0
    return leak.slope[0] * STEP_BYTES / _MIB / (BUCKET_SECONDS[leak.scale] / 60)


def _summary(worst: "LeakSeries", window: "WorkloadWindow", series: "SeriesWindow | None") -> str:
    level = worst.floors.level_bytes or 0
    who = window.name
    if window.kind is not None:
        who = f"{window.kind} {window.name} in {window.namespace}"
    where = f", pod {series.pod}," if series is not None and series.pod else ""
    return (
        f"{who}{where} leaks GPU memory: {_mib_per_minute(worst):.1f} MiB/min, now "
        f"{level / _GIB:.1f} of {worst.limit_bytes / _GIB:.1f} GiB, full in "
        f"{_duration(_exhaustion_seconds(worst)[0])}."
    )


def _duration(seconds: float) -> str:
    hour = 3600
    if seconds < 2 * hour:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / hour:.0f} h" if seconds < 48 * hour else f"{seconds / hour / 24:.1f} d"


def _evidence(
    worst: "LeakSeries", leaks: int, end_ms: int, *, critical: bool
) -> "dict[str, EvidenceValue]":
    leak = worst.open
    if leak is None:
        return {}
    likely, earliest, latest = _exhaustion_seconds(worst)
    return {
        "severity": "critical" if critical else "warning",
        "slope_mib_per_minute": _mib_per_minute(worst),
        "trend_z": leak.z,
        "bucket_seconds": BUCKET_SECONDS[leak.scale],
        "floor_then_bytes": leak.floor_then * STEP_BYTES,
        "floor_opened_bytes": leak.floor_opened * STEP_BYTES,
        "floor_now_bytes": worst.floors.level_bytes,
        "limit_bytes": worst.limit_bytes,
        "exhaustion_minutes": likely / 60,
        "exhaustion_minutes_earliest": earliest / 60,
        "exhaustion_minutes_latest": None if latest is None else latest / 60,
        "growing_minutes": (end_ms - leak.onset_ms) / 60_000,
        "restarts_seen": worst.restarts,
        "leaking_series": leaks,
        "advice": _ADVICE,
    }

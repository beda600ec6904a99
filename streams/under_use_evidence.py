"""The words and the numbers of an under-use verdict."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from schemas.alerts import Subject
from streams.verdicts import Verdict
from streams.workload_use import known_memory_bytes

if TYPE_CHECKING:
    from schemas.alerts import AlertKind, EvidenceValue
    from schemas.parameters import UnderUseParameters
    from schemas.windows import SeriesWindow, WorkloadWindow
    from streams.prices import Prices
    from streams.spells import Spell
    from streams.under_use import UnderUseState

_GIB = 2**30

_ADVICE: "dict[AlertKind, str]" = {
    "idle": "Release the GPUs, or scale the workload to zero while it has no work.",
    "idle_held": "Stop the process or scale it in: it holds memory that nobody else can use.",
    "low_use": "Give the workload fewer or smaller GPUs, share them, or look for its bottleneck.",
    "busy_stalled": "Take stack traces of all ranks, then restart the job from its checkpoint.",
}

_DECIDING: "dict[AlertKind, tuple[str, ...]]" = {
    "idle": ("idle_percent", "held_bytes"),
    "idle_held": ("idle_percent", "held_bytes"),
    "low_use": ("idle_percent", "activity_after", "activity_percent", "activity_util_percent"),
    "busy_stalled": (
        "stalled_after",
        "stalled_util_percent",
        "stalled_power_fraction",
        "stalled_power_span_watts",
        "stalled_memory_percent",
        "stalled_link_bytes_per_second",
    ),
}
_HOLD = (
    "open_after",
    "open_after_max",
    "notebook_open_after",
    "gap_factor",
    "low_percent",
    "low_active_percent",
    "starting_grace",
    "quiet_percent",
    "quiet_peak_percent",
    "quiet_hours_learned",
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the detector knows when it is asked."""

    kind: "AlertKind"
    spell: "Spell"
    state: "UnderUseState"
    window: "WorkloadWindow"
    end_ms: int
    hold_seconds: float
    quiet_now: bool
    hour_use_percent: float | None


def verdict(facts: Facts, parameters: "UnderUseParameters", prices: "Prices") -> Verdict:
    """The verdict on an open incident."""
    window = facts.window
    return Verdict(
        detector="under_use",
        kind=facts.kind,
        tier="info" if window.standby else "ticket",
        quality=_quality(window),
        onset_ms=facts.spell.onset_ms,
        subject=subject_of(window),
        owner=window.owner,
        summary=_summary(facts),
        evidence=_evidence(facts),
        waste=facts.spell.waste(prices.currency),
        parameters=_parameters(facts.kind, parameters),
    )


def subject_of(window: "WorkloadWindow") -> Subject:
    """Who the alert is about; a device or pod only where the workload has exactly one series."""
    workload = None if window.kind is None else f"{window.kind}/{window.name}"
    if len(window.series) != 1:
        uuid = window.name if window.kind is None else None
        return Subject(
            cluster=window.cluster,
            namespace=window.namespace,
            workload=workload,
            device_uuid=uuid,
        )
    (series,) = window.series
    return Subject(
        cluster=window.cluster,
        node=series.node,
        device_uuid=series.device_uuid,
        device_model=series.device_model,
        mig_instance=series.mig_instance,
        namespace=window.namespace,
        pod=series.pod,
        pod_uid=series.pod_uid,
        container=series.container,
        workload=workload,
    )


def _quality(window: "WorkloadWindow") -> Literal["exact", "estimated"]:
    """A device without known pods is judged as itself, so nothing is estimated."""
    if window.kind is None or all(series.quality == "exact" for series in window.series):
        return "exact"
    return "estimated"


def _summary(facts: Facts) -> str:
    spell, measure = facts.spell, facts.state.measure or "gpu_util"
    for_minutes = f"for {spell.low_seconds / 60:.0f} min"
    if facts.kind == "busy_stalled":
        power = _mean_power(facts.window)
        watts = "unknown power" if power is None else f"{power:.0f} W"
        return f"{_claim(facts)}: full gpu_util at {watts} without memory traffic {for_minutes}."
    use = f"{spell.use_mean_percent or 0.0:.1f} % {measure}"
    if facts.kind == "low_use":
        util = _mean([series.gpu_util_mean_percent for series in facts.window.series])
        hidden = f" behind {util:.0f} % gpu_util" if _is_hidden(facts) and util else ""
        return f"{_claim(facts)}: {use}{hidden} {for_minutes}."
    held = memory_held_bytes(facts.window)
    memory = "unknown memory" if held is None else f"{held / _GIB:.1f} GiB of memory"
    return f"{_claim(facts)}: {use} {for_minutes}, {memory} held."


def _claim(facts: Facts) -> str:
    """The sentence without its numbers."""
    window = facts.window
    if window.kind is None:
        verb = {"busy_stalled": "hangs", "low_use": "is hardly used"}
        return f"GPU {window.name} {verb.get(facts.kind, 'is not used')}"
    place = f" in {window.namespace}" if window.namespace else ""
    who, count = f"{window.kind} {window.name}{place}", len(window.series)
    gpus = "its GPU" if count == 1 else f"its {count} GPUs"
    verb = {"busy_stalled": f"hangs on {gpus}", "low_use": f"hardly uses {gpus}"}
    return f"{who} {verb.get(facts.kind, f'does not use {gpus}')}"


def _evidence(facts: Facts) -> "dict[str, EvidenceValue]":
    window, spell, state = facts.window, facts.spell, facts.state
    elapsed = (facts.end_ms - spell.onset_ms) / 1000
    return {
        "use_mean_percent": spell.use_mean_percent,
        "use_recent_percent": state.low.recent_use_percent,
        "gpu_util_percent": _mean([series.gpu_util_mean_percent for series in window.series]),
        "measure": state.measure or None,
        "former_measure": state.former_measure or None,
        "low_minutes": spell.low_seconds / 60,
        "elapsed_minutes": elapsed / 60,
        "coverage": min(1.0, max(spell.known_seconds, spell.low_seconds) / elapsed)
        if elapsed > 0
        else None,
        "devices": len(window.series),
        "memory_held_bytes": memory_held_bytes(window),
        "power_watts": _mean_power(window),
        "power_fraction": _mean([_power_fraction(series) for series in window.series]),
        "memory_activity_percent": _mean(
            [series.memory_activity_mean_percent for series in window.series]
        ),
        "longest_gap_minutes": state.low.longest_gap_seconds / 60,
        "hold_minutes": facts.hold_seconds / 60,
        "hidden_by_gpu_util": _is_hidden(facts),
        "quiet_hours_learned": state.quiet.hours_learned,
        "quiet_hour": facts.quiet_now,
        "hour_use_percent": facts.hour_use_percent,
        "starting_checked": state.started_at_ms >= 0,
        "standby": window.standby,
        "notebook": window.notebook,
        "not_observable_windows": state.not_observable_windows,
        "advice": _ADVICE.get(facts.kind),
    }


def _parameters(kind: "AlertKind", parameters: "UnderUseParameters") -> "dict[str, EvidenceValue]":
    names = _DECIDING[kind] if kind == "busy_stalled" else (*_HOLD, *_DECIDING[kind])
    return {name: getattr(parameters, name) for name in names}


def _is_hidden(facts: Facts) -> bool:
    return facts.kind == "low_use" and facts.state.hidden.open and not facts.state.low.open


def memory_held_bytes(window: "WorkloadWindow") -> int | None:
    """Memory held on all the workload's devices; None where none is known."""
    known = [held for held in map(known_memory_bytes, window.series) if held is not None]
    return sum(known) if known else None


def _mean_power(window: "WorkloadWindow") -> float | None:
    return _mean(
        [None if s.shared or s.mig_instance else s.power_mean_watts for s in window.series]
    )


def _power_fraction(series: "SeriesWindow") -> float | None:
    """Part of the way from idle power to the limit; None on a share of a card."""
    mean, idle, limit = series.power_mean_watts, series.power_idle_watts, series.power_limit_watts
    if series.shared or series.mig_instance or mean is None or idle is None or limit is None:
        return None
    return (mean - idle) / (limit - idle) if limit > idle else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and value >= 0]
    return sum(known) / len(known) if known else None

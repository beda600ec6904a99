"""The words and the numbers of an anomaly's verdict."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from streams.under_use_evidence import subject_of
from streams.verdicts import Verdict

if TYPE_CHECKING:
    from schemas.alerts import EvidenceValue
    from schemas.windows import WorkloadWindow
    from streams.anomaly import SeriesScore
    from streams.river_models import LoadedRule

COST_STEPS_MICROSECONDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""A measured cost is told as the step that it does not exceed, so that runs tell the same."""

_UNITS = {"percent": "%", "watts": "W", "bytes": "bytes", "second": "bytes/s"}
_DECIDING = (
    "metric",
    "model",
    "threshold",
    "hold",
    "least_difference",
    "warm_up",
    "learn_while_open",
    "accept_after",
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the detector knows when it is asked."""

    detector: str
    loaded: "LoadedRule"
    series_key: str
    """`device_uuid|pod_uid` of the series whose anomaly began first."""
    series: "SeriesScore"
    series_open: int
    expected: float | None
    """In the metric's unit; None where the model expects nothing."""
    window: "WorkloadWindow"


def verdict(facts: Facts) -> Verdict:
    """The verdict on an open anomaly: a ticket, never a page."""
    rule = facts.loaded.rule
    return Verdict(
        detector=facts.detector,
        kind="anomaly",
        tier="ticket",
        quality=_quality(facts.window),
        onset_ms=facts.series.onset_ms,
        subject=subject_of(facts.window),
        owner=facts.window.owner,
        summary=_summary(facts),
        evidence=_evidence(facts),
        waste=None,
        parameters={name: getattr(rule, name) for name in _DECIDING},
    )


def _summary(facts: Facts) -> str:
    window, rule = facts.window, facts.loaded.rule
    who = f"GPU {window.name}" if window.kind is None else f"{window.kind} {window.name}"
    place = f" in {window.namespace}" if window.kind is not None and window.namespace else ""
    unit = _UNITS[rule.metric.rpartition("_")[2]]
    expected = "" if facts.expected is None else f" where {facts.expected:.6g} {unit} is expected"
    many = f", on {facts.series_open} series" if facts.series_open > 1 else ""
    return (
        f"{who}{place} is unusual by rule {rule.name}: {rule.metric} is {facts.series.value:.6g} "
        f"{unit}{expected}{many}."
    )


def _evidence(facts: Facts) -> "dict[str, EvidenceValue]":
    rule, series = facts.loaded.rule, facts.series
    device_uuid, _, pod_uid = facts.series_key.partition("|")
    return {
        "rule": rule.name,
        "metric": rule.metric,
        "model": rule.model,
        "value": series.value,
        "score": series.score,
        "threshold": rule.threshold,
        "expected_value": facts.expected,
        "above_minutes": series.above_seconds / 60,
        "hold_minutes": rule.hold / 60,
        "device_uuid": device_uuid,
        "pod_uid": pod_uid or None,
        "series": len(facts.window.series),
        "series_open": facts.series_open,
        "measure": series.measure or None,
        "former_measure": series.former_measure or None,
        "learned_minutes": series.learned_seconds / 60,
        "learning_since_ms": series.learning_since_ms,
        "relearned_after_restart": series.relearned,
        "kept_over_restart": facts.loaded.storable,
        "not_observable_windows": series.not_observable_windows,
        "cost_microseconds": _cost(facts.loaded.cost_microseconds),
    }


def _cost(microseconds: float | None) -> float | None:
    """The least step that the cost does not exceed."""
    if microseconds is None:
        return None
    steps = (step for step in COST_STEPS_MICROSECONDS if microseconds <= step)
    return float(next(steps, math.ceil(microseconds)))


def _quality(window: "WorkloadWindow") -> Literal["exact", "estimated"]:
    """A device without known pods is judged as itself, so nothing is estimated."""
    exact = window.kind is None or all(series.quality == "exact" for series in window.series)
    return "exact" if exact else "estimated"

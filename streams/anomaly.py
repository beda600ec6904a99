"""A user's own rule: a model of river on one metric, one model for each series of a workload.

Each window is scored first and learned afterwards, and not learned while it is anomalous.  The
models live as objects and become state when `Anomaly.sync` is called, which is before a dump.
"""

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from schemas.alerts import AlertKind
from streams import anomaly_evidence
from streams.model_states import NotStorableError, dumped
from streams.series_models import ModelBrokenError, SeriesModel, learned, scored
from streams.workload_use import series_key

if TYPE_CHECKING:
    from schemas.anomaly_rules import AnomalyRule
    from schemas.windows import SeriesEnd, SeriesWindow, WorkloadWindow
    from streams.river_models import LoadedRule
    from streams.verdicts import Verdict

STATE_CHARACTERS_MAX = 65536
"""Longest state of one model that is kept; a larger one is relearned after a restart."""


class SeriesScore(Struct, omit_defaults=True):
    """What is known of one series beside its model."""

    learning_since_ms: int
    """Begin of the first window that the model has seen."""
    learned_seconds: float = 0.0
    value: float = 0.0
    score: float | None = None
    above_seconds: float = 0.0
    """Covered time since the score was last at or below the threshold."""
    below_seconds: float = 0.0
    onset_ms: int = 0
    """Begin of the first window above."""
    open: bool = False
    relearned: bool = False
    """The model lost what it had learned when the worker restarted."""
    measure: str = ""
    former_measure: str = ""
    not_observable_windows: int = 0


class AnomalyState(Struct, omit_defaults=True):
    """All that the detector remembers of a workload."""

    VERSION: ClassVar[int] = 1

    rule: str = ""
    """Model, options and metric: what was learned by other ones means nothing."""
    series: dict[str, SeriesScore] = field(default_factory=dict)
    """By `device_uuid|pod_uid`."""
    models: dict[str, str] = field(default_factory=dict)
    """The models as `streams.model_states` writes them, by the same keys."""
    close_reason: str = "recovered"


class Anomaly:
    """The detector of one rule for one workload.

    Feed it every window in order; windows that are missing are gaps and add nothing.
    """

    def __init__(self, loaded: "LoadedRule", state: AnomalyState | None = None) -> None:
        self.name = f"anomaly.{loaded.rule.name}"
        self.state = state if state is not None else AnomalyState()
        self._loaded, self._rule = loaded, loaded.rule
        self._models: dict[str, SeriesModel] = {}
        self._window: WorkloadWindow | None = None
        self._end_ms = 0
        self._restore()
        self._open_count = sum(score.open for score in self.state.series.values())

    @property
    def close_reason(self) -> str:
        """Why the trouble that `update` no longer reports has ended."""
        return self.state.close_reason

    def update(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> AlertKind | None:
        """The kind that is open after this window, None when nothing is wrong."""
        for end in window.ended:
            self._free(end)
        for series in window.series:
            self._see(series, start_ms, end_ms)
        self._window, self._end_ms = window, end_ms
        return "anomaly" if self._open_count else None

    def sync(self) -> None:
        """Write the live models into the state; what can not be stored is left out."""
        models = self.state.models = {}
        if not self._loaded.storable:
            return
        for key, model in self._models.items():
            try:
                text = dumped(model)
            except NotStorableError:
                continue
            if len(text) <= STATE_CHARACTERS_MAX:
                models[key] = text

    def describe(self) -> "Verdict":
        """The open trouble in full; see `Detector.describe`."""
        if self._window is None or not self._open_count:
            raise RuntimeError("describe() needs an update() before it that returned a kind")
        open_ones = {key: one for key, one in self.state.series.items() if one.open}
        key = min(open_ones, key=lambda one: (open_ones[one].onset_ms, one))
        return anomaly_evidence.verdict(
            anomaly_evidence.Facts(
                detector=self.name,
                loaded=self._loaded,
                series_key=key,
                series=open_ones[key],
                series_open=len(open_ones),
                expected=_expected(self._models[key]),
                window=self._window,
            )
        )

    def _restore(self) -> None:
        """Make the models of the state live; those that are not there begin anew."""
        rule = _learned_by(self._rule)
        if self.state.rule != rule:
            self.state.rule, self.state.models, self.state.series = rule, {}, {}
            self.state.close_reason = "rule changed"
        for key, score in self.state.series.items():
            try:
                self._models[key] = self._loaded.kept(self.state.models[key])
            except (KeyError, NotStorableError):
                self._models[key] = self._loaded.fresh()
                self.state.close_reason = "model relearned after a restart"
                self.state.series[key] = SeriesScore(
                    learning_since_ms=-1,
                    relearned=True,
                    measure=score.measure,
                    former_measure=score.former_measure,
                    not_observable_windows=score.not_observable_windows,
                )

    def _free(self, end: "SeriesEnd") -> None:
        key = series_key(end)
        self._models.pop(key, None)
        self.state.models.pop(key, None)
        score = self.state.series.pop(key, None)
        if score is not None and score.open:
            self._close(score, str(end.reason))

    def _see(self, series: "SeriesWindow", start_ms: int, end_ms: int) -> None:
        value = _value(series, self._rule.metric)
        if value is None or series.coverage_seconds <= 0:
            return
        key = series_key(series)
        score = self._score_of(key, start_ms)
        if series.interval_seconds > self._rule.longest_interval:
            score.not_observable_windows += 1
            return
        score = self._note_measure(key, score, series, start_ms)
        seconds = min(series.coverage_seconds, (end_ms - start_ms) / 1000)
        try:
            self._judge(self._models[key], score, value, seconds, start_ms)
        except ModelBrokenError:
            self._renew(key, score, "model failed and was made anew", -1)
            return
        if score.above_seconds >= max(self._rule.accept_after, self._rule.hold):
            self._renew(key, score, "became normal", -1)

    def _score_of(self, key: str, start_ms: int) -> SeriesScore:
        score = self.state.series.get(key)
        if score is None:
            score = self.state.series[key] = SeriesScore(learning_since_ms=start_ms)
            self._models[key] = self._loaded.fresh()
        if score.learning_since_ms < 0:
            score.learning_since_ms = start_ms
        return score

    def _note_measure(
        self, key: str, score: SeriesScore, series: "SeriesWindow", start_ms: int
    ) -> SeriesScore:
        """Figures of different measures are never compared: the model begins anew."""
        measure = series.measure or ""
        if not self._rule.metric.startswith("use_") or measure == score.measure:
            return score
        if score.measure:
            former = score.measure
            score = self._renew(key, score, "measure changed", start_ms)
            score.former_measure = former
        score.measure = measure
        return score

    def _judge(
        self, model: SeriesModel, score: SeriesScore, value: float, seconds: float, start_ms: int
    ) -> None:
        """Score, then learn what is normal, then open or close."""
        rule = self._rule
        score.value, score.score = value, scored(model, value)
        warm = score.learned_seconds >= rule.warm_up
        above = warm and score.score is not None and score.score > rule.threshold
        if above and rule.least_difference > 0:
            expected = _expected(model)
            above = expected is None or abs(value - expected) >= rule.least_difference
        normal = not above or rule.learn_while_open
        learned(model, value, normal=normal)
        if normal:
            score.learned_seconds += seconds
        if above:
            self._count_above(score, seconds, start_ms, momentary=model.momentary)
        elif score.score is not None:
            self._count_below(score, seconds)

    def _count_above(
        self, score: SeriesScore, seconds: float, start_ms: int, *, momentary: bool
    ) -> None:
        if not score.open and score.above_seconds <= 0:
            score.onset_ms = start_ms
        score.above_seconds += seconds
        score.below_seconds = 0.0
        if not score.open and (momentary or score.above_seconds >= self._rule.hold):
            score.open = True
            self._open_count += 1

    def _count_below(self, score: SeriesScore, seconds: float) -> None:
        score.above_seconds = 0.0
        if not score.open:
            return
        score.below_seconds += seconds
        if score.below_seconds >= self._rule.hold:
            score.below_seconds = 0.0
            self._close(score, "recovered")

    def _close(self, score: SeriesScore, reason: str) -> None:
        score.open = False
        self._open_count -= 1
        self.state.close_reason = reason

    def _renew(self, key: str, score: SeriesScore, reason: str, since_ms: int) -> SeriesScore:
        """A fresh model and a fresh score; `since_ms` -1: from the next window on."""
        if score.open:
            self._close(score, reason)
        self._models[key] = self._loaded.fresh()
        fresh = SeriesScore(
            learning_since_ms=since_ms,
            measure=score.measure,
            former_measure=score.former_measure,
            not_observable_windows=score.not_observable_windows,
        )
        self.state.series[key] = fresh
        return fresh


def applies_to(rule: "AnomalyRule", namespace: str | None) -> bool:
    """Whether the rule watches workloads of this namespace; None: a device without a pod."""
    if not rule.namespaces:
        return True
    return any(fnmatchcase(namespace, glob) for glob in rule.namespaces) if namespace else False


def _value(series: "SeriesWindow", metric: str) -> float | None:
    """The metric's value; None where it is unknown or is the whole card's and not the series'."""
    if metric.startswith("power_") and (series.shared or series.mig_instance):
        return None
    value = getattr(series, metric)
    return None if value is None else float(value)


def _expected(model: SeriesModel) -> float | None:
    try:
        return model.expected()
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return None


def _learned_by(rule: "AnomalyRule") -> str:
    return json.dumps([rule.model, rule.options, rule.metric], sort_keys=True)

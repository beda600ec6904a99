import itertools
import random
import time
from collections.abc import Callable, Mapping

import pytest

from schemas.anomaly_rules import AnomalyRule
from streams.model_states import NotStorableError, dumped
from streams.river_models import (
    LoadedRule,
    ModelRefusedError,
    cost_microseconds,
    load,
    model_names,
)
from streams.series_models import SeriesModel, learned, scored

Options = Mapping[str, object]
GAUSSIAN: dict[str, object] = {
    "model": "anomaly.GaussianScorer",
    "options": {"grace_period": 20},
}
HOLT_WINTERS: dict[str, object] = {"model": "time_series.HoltWinters", "options": {"alpha": 0.3}}

STORABLE: list[tuple[str, Options]] = [
    ("anomaly.GaussianScorer", {}),
    ("anomaly.GaussianScorer", {"window_size": 60}),
    ("anomaly.StandardAbsoluteDeviation", {}),
    (
        "anomaly.StandardAbsoluteDeviation",
        {"sub_stat": {"model": "stats.Quantile", "options": {"q": 0.5}}},
    ),
    ("anomaly.QuantileFilter", {"anomaly_detector": GAUSSIAN, "q": 0.95}),
    ("anomaly.ThresholdFilter", {"anomaly_detector": GAUSSIAN, "threshold": 0.95}),
    ("anomaly.PredictiveAnomalyDetection", {}),
    ("anomaly.PredictiveAnomalyDetection", {"predictive_model": HOLT_WINTERS}),
    ("anomaly.OneClassSVM", {}),
    ("time_series.HoltWinters", {"alpha": 0.3}),
    ("time_series.HoltWinters", {"alpha": 0.3, "beta": 0.1, "gamma": 0.2, "seasonality": 12}),
    ("time_series.SNARIMAX", {"p": 2, "d": 1, "q": 1}),
    ("drift.ADWIN", {}),
    ("drift.PageHinkley", {"mode": "up"}),
    ("drift.PageHinkley", {}),
]
RELEARNED = ["anomaly.HalfSpaceTrees", "drift.KSWIN", "drift.DummyDriftDetector"]


def loaded(
    model: str, options: Options | None = None, clock: Callable[[], float] | None = None
) -> LoadedRule:
    rule = AnomalyRule.model_validate(
        {
            "name": "power",
            "metric": "power_watts",
            "model": model,
            "options": options or {},
            "threshold": 0.999,
        }
    )
    return load(rule, clock)


def watts(windows: int, seed: str) -> list[float]:
    """Noise with a step of 100 W in the middle."""
    chance = random.Random(seed)  # noqa: S311 - a signal
    return [chance.gauss(300.0 + 100.0 * (at > windows / 2), 5.0) for at in range(windows)]


def fed(model: SeriesModel, values: list[float]) -> list[tuple[float | None, float | None]]:
    """The score of each value and what was expected instead."""
    seen = []
    for value in values:
        seen.append((scored(model, value), model.expected()))
        learned(model, value)
    return seen


# What is refused.


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "anomaly",
        "anomaly.__class__",
        "anomaly.base",
        "anomaly.gaussian.GaussianScorer",
        "anomaly.gaussian",
        "river.anomaly.GaussianScorer",
        "drift.__builtins__",
        "drift._BaseDriftDetector",
        "drift.DriftRetrainingClassifier",
        "drift.PeriodicTrigger",
        "time_series.evaluate",
        "time_series.HorizonAggMetric",
        "linear_model.LinearRegression",
        "stats.Mean",
        "",
        "..",
    ],
)
def test_only_listed_models_can_be_named(name: str) -> None:
    with pytest.raises(ModelRefusedError, match="is no model that may be named"):
        loaded(name)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(ModelRefusedError, match=r"the nearest is anomaly\.GaussianScorer$"):
        loaded("anomaly.GausianScorer")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("anomaly.GaussianScorer", {"grace": 5}, "the nearest is 'grace_period'"),
        ("anomaly.GaussianScorer", {"__class__": 5}, "has no option '__class__'"),
        ("anomaly.GaussianScorer", {"grace_period": "long"}, "not supported between"),
        ("anomaly.GaussianScorer", {"window_size": "long"}, "does not take these options"),
        ("anomaly.QuantileFilter", {"anomaly_detector": GAUSSIAN}, "does not take these options"),
        ("anomaly.QuantileFilter", {"anomaly_detector": GAUSSIAN, "q": 2}, "between 0 and 1"),
        ("anomaly.QuantileFilter", {"anomaly_detector": "x", "q": 0.5}, "a filter stands on"),
        (
            "anomaly.QuantileFilter",
            {"anomaly_detector": {"model": "os.system", "options": {}}, "q": 0.5},
            "'os.system' is no model",
        ),
        (
            "anomaly.QuantileFilter",
            {"anomaly_detector": {"model": "anomaly.LODA", "call": "x"}, "q": 0.5},
            "a table of `model` and `options` only",
        ),
        ("time_series.HoltWinters", {"alpha": 0.3, "seasonality": 5}, "gamma must be set"),
        ("drift.PageHinkley", {"mode": "sideways"}, "Invalid 'mode'"),
        ("drift.NoDrift", {"delta": 1}, "has no option 'delta'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(name: str, options: Options, reason: str) -> None:
    with pytest.raises(ModelRefusedError, match=reason) as refused:
        loaded(name, options)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("anomaly 'power': ")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("anomaly.LocalOutlierFactor", {}),
        ("anomaly.HalfSpaceTrees", {"n_trees": 200, "limits": {"value": [0, 700]}}),
    ],
)
def test_a_slow_model_is_refused(name: str, options: Options) -> None:
    with pytest.raises(ModelRefusedError, match=r"costs \d+ microseconds .* the bound is 200"):
        loaded(name, options, time.perf_counter)


# The cost.


def test_the_cost_is_the_best_repetition() -> None:
    """The clock is read 16 times in the warm-up and then twice for each repetition."""
    warm_up = [0.0] * 16
    readings = iter([*warm_up, 0.0, 0.06, 1.0, 1.03, 2.0, 2.09])
    cost = cost_microseconds(loaded("anomaly.GaussianScorer").fresh, lambda: next(readings))
    assert cost == pytest.approx(0.03 / 300 * 1e6)
    assert next(readings, None) is None


def test_a_model_far_above_the_bound_is_not_measured_to_the_end() -> None:
    ticks = itertools.count()
    cost = cost_microseconds(loaded("anomaly.GaussianScorer").fresh, lambda: float(next(ticks)))
    assert cost == pytest.approx(2 / 40 * 1e6)
    assert next(ticks) == 3


def test_without_a_clock_nothing_is_measured() -> None:
    assert loaded("anomaly.GaussianScorer").cost_microseconds is None


def test_a_light_model_is_measured() -> None:
    cost = loaded("anomaly.GaussianScorer", clock=time.perf_counter).cost_microseconds
    assert cost is not None
    assert 0 < cost < 200


# What a restart keeps.


@pytest.mark.parametrize(("name", "options"), STORABLE)
def test_a_restored_model_goes_on_exactly(name: str, options: Options) -> None:
    rule = loaded(name, options)
    assert rule.storable
    original = rule.fresh()
    fed(original, watts(400, "before"))
    state = dumped(original)
    restored = rule.kept(state)
    assert dumped(restored) == state
    after = watts(500, "after")
    scores = fed(original, after)
    assert scores == fed(restored, after)
    assert any(score is not None for score, _ in scores)
    assert dumped(restored) == dumped(original)


@pytest.mark.parametrize(("name", "options"), STORABLE)
def test_a_model_can_be_kept_from_its_first_window_on(name: str, options: Options) -> None:
    rule = loaded(name, options)
    straight, restarted = rule.fresh(), rule.fresh()
    for value in watts(60, "short"):
        restarted = rule.kept(dumped(restarted))
        assert fed(straight, [value]) == fed(restarted, [value])


@pytest.mark.parametrize("name", RELEARNED)
def test_chance_and_functions_are_not_stored(name: str) -> None:
    rule = loaded(name)
    assert not rule.storable
    with pytest.raises(NotStorableError):
        dumped(fed_one(rule))


def fed_one(rule: LoadedRule) -> SeriesModel:
    model = rule.fresh()
    fed(model, watts(300, "chance"))
    return model


def test_a_state_of_another_model_is_refused() -> None:
    state = dumped(loaded("anomaly.GaussianScorer").fresh())
    with pytest.raises(NotStorableError, match="not of anomaly"):
        loaded("anomaly.StandardAbsoluteDeviation").kept(state)
    with pytest.raises(NotStorableError, match="not of drift"):
        loaded("drift.ADWIN").kept(state)


# Every model that may be named.


OPTIONS: dict[str, Options] = {
    "anomaly.QuantileFilter": {"anomaly_detector": GAUSSIAN, "q": 0.95},
    "anomaly.ThresholdFilter": {"anomaly_detector": GAUSSIAN, "threshold": 0.95},
    "time_series.HoltWinters": {"alpha": 0.3},
    "time_series.SNARIMAX": {"p": 1, "d": 0, "q": 1},
}


@pytest.mark.parametrize("name", [n for n in model_names() if n != "anomaly.LocalOutlierFactor"])
def test_every_model_works_and_is_the_same_in_every_run(name: str) -> None:
    rule = loaded(name, OPTIONS.get(name))
    values = watts(200, name)
    assert fed(rule.fresh(), values) == fed(rule.fresh(), values)


def test_a_forecaster_scores_its_error_by_its_spread() -> None:
    model = loaded("time_series.HoltWinters", {"alpha": 0.3}).fresh()
    assert scored(model, 300.0) is None
    usual = [score for score, _ in fed(model, watts(400, "even")[:200])[50:]]
    assert all(score is not None and score < 6 for score in usual)
    odd = scored(model, 400.0)
    assert odd is not None
    assert odd > 10
    assert model.expected() == pytest.approx(300, abs=10)


def test_a_steady_series_is_not_judged_by_its_rounding() -> None:
    for name in ("anomaly.GaussianScorer", "anomaly.StandardAbsoluteDeviation"):
        model = loaded(name).fresh()
        after_the_first = fed(model, [0.1] * 200)[1:]
        assert {score for score, _ in after_the_first} == {0.0}
    model = loaded("time_series.HoltWinters", {"alpha": 0.3}).fresh()
    fed(model, [300.0] * 200)
    slight = scored(model, 300.1)
    assert slight is not None
    assert slight < 1

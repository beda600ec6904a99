import random
from collections.abc import Callable

import msgspec
import pytest

from schemas.alerts import AlertKind
from schemas.anomaly_rules import AnomalyRule
from schemas.windows import WorkloadWindow
from streams.anomaly import Anomaly, AnomalyState, applies_to
from streams.river_models import load
from streams.verdicts import Detector, Verdict
from tests.streams.under_use_signals import GIB, HOUR, MINUTE, T0, series, workload

Watts = Callable[[int], float | None]
"""Power at a number of seconds since T0."""
STEP_AT = 3 * HOUR


def rule(**fields: object) -> AnomalyRule:
    known: dict[str, object] = {
        "name": "power",
        "metric": "power_watts",
        "model": "anomaly.GaussianScorer",
        "options": {"grace_period": 60},
        "threshold": 0.999,
        "hold": "5m",
    }
    return AnomalyRule.model_validate(known | fields)


def detector(state: AnomalyState | None = None, /, **fields: object) -> Anomaly:
    return Anomaly(load(rule(**fields)), state)


def noise(at: int, seed: str = "quiet") -> float:
    return random.Random(f"{seed} {at}").gauss(300.0, 5.0)  # noqa: S311 - a signal


def step(at: int) -> float:
    """Up by 100 W after three hours, for one hour."""
    return noise(at) + (100.0 if STEP_AT <= at < STEP_AT + HOUR else 0.0)


def window(watts: float | None, **fields: object) -> WorkloadWindow:
    return workload(series(50.0, **({"power_mean_watts": watts} | fields)))


def feed(
    anomaly: Anomaly, signal: Watts, seconds: int, start: int = 0, /, **fields: object
) -> list[tuple[int, AlertKind | None]]:
    """Only the windows in which what is open changed, by their end."""
    found: list[tuple[int, AlertKind | None]] = []
    last: AlertKind | None = "anomaly" if anomaly._open_count else None
    for at in range(start, start + seconds, 10):
        kind = one(anomaly, window(signal(at), **fields), at)
        if kind != last:
            found.append((at + 10, kind))
        last = kind
    return found


def one(anomaly: Anomaly, seen: WorkloadWindow, at: int) -> AlertKind | None:
    begin = (T0 + at) * 1000
    return anomaly.update(seen, begin, begin + 10_000)


def reloaded(anomaly: Anomaly, **fields: object) -> Anomaly:
    """The same detector after a restart of the worker."""
    anomaly.sync()
    dump = msgspec.json.encode(anomaly.state)
    return detector(msgspec.json.decode(dump, type=AnomalyState), **fields)


def ended(reason: str = "pod deleted") -> WorkloadWindow:
    end = {"node": "n1", "device_uuid": "GPU-1", "pod_uid": "u", "reason": reason}
    return WorkloadWindow.model_validate(workload().model_dump() | {"ended": (end,)})


def found_step(anomaly: Anomaly) -> Verdict:
    feed(anomaly, step, 3 * HOUR + 10 * MINUTE)
    return anomaly.describe()


def test_it_is_a_detector() -> None:
    seam: Detector = detector()
    assert seam.name == "anomaly.power"


# What it finds.


def test_a_step_in_power_is_found_within_the_hold_and_closes_after_it() -> None:
    opened, closed = feed(detector(), step, 5 * HOUR)
    assert opened[1] == "anomaly"
    assert STEP_AT + 300 <= opened[0] <= STEP_AT + 360
    assert closed[1] is None
    assert STEP_AT + HOUR + 300 <= closed[0] <= STEP_AT + HOUR + 900


@pytest.mark.parametrize("seed", [f"noise {n}" for n in range(5)])
def test_noise_is_no_anomaly(seed: str) -> None:
    assert feed(detector(), lambda at: noise(at, seed), 24 * HOUR) == []


def test_a_peak_shorter_than_the_hold_is_no_anomaly() -> None:
    def peaks(at: int) -> float:
        return noise(at) + (200.0 if at > STEP_AT and at % HOUR < 240 else 0.0)

    assert feed(detector(), peaks, 12 * HOUR) == []


def test_nothing_opens_in_the_warm_up() -> None:
    def early(at: int) -> float:
        return noise(at) + (100.0 if at > 800 else 0.0)

    assert feed(detector(warm_up="1h"), early, HOUR) == []


def test_an_anomaly_is_not_learned_unless_the_rule_says_so() -> None:
    def lasting(at: int) -> float:
        return noise(at) + (100.0 if at >= STEP_AT else 0.0)

    assert len(feed(detector(), lasting, 12 * HOUR)) == 1
    assert len(feed(detector(learn_while_open=True), lasting, 12 * HOUR)) == 2


def test_a_level_that_lasts_becomes_normal() -> None:
    def lasting(at: int) -> float:
        return noise(at) + (100.0 if at >= STEP_AT else 0.0)

    anomaly = detector(accept_after="2h")
    changes = feed(anomaly, lasting, 12 * HOUR)
    assert [kind for _, kind in changes] == ["anomaly", None]
    assert changes[1][0] == STEP_AT + 2 * HOUR
    assert anomaly.close_reason == "became normal"


def test_a_forecaster_follows_a_season_and_finds_what_leaves_it() -> None:
    """A square wave of one hour, then a night without it."""

    def wave(at: int) -> float:
        high = at % HOUR < HOUR / 2 or at >= 20 * HOUR
        return noise(at, "wave") + (200.0 if high else 0.0)

    options = {"alpha": 0.1, "beta": 0.0001, "gamma": 0.3, "seasonality": 360}
    forecaster = detector(
        model="time_series.HoltWinters", options=options, threshold=8, warm_up="6h"
    )
    changes = feed(forecaster, wave, 22 * HOUR)
    assert [kind for _, kind in changes][:1] == ["anomaly"]
    assert 20 * HOUR + 30 * MINUTE < changes[0][0] <= 20 * HOUR + 40 * MINUTE


def test_a_drift_opens_at_once_and_closes_after_the_hold() -> None:
    anomaly = detector(
        model="drift.PageHinkley", options={"delta": 1.0, "threshold": 500.0}, threshold=0.5
    )
    (opened, _), (closed, _) = feed(anomaly, step, STEP_AT + HOUR)
    assert STEP_AT < opened <= STEP_AT + 60
    assert closed == opened + 300


def test_a_filter_alerts_by_its_own_judgement() -> None:
    inner = {"model": "anomaly.GaussianScorer", "options": {"grace_period": 60}}
    anomaly = detector(
        model="anomaly.ThresholdFilter",
        options={"anomaly_detector": inner, "threshold": 0.9999},
        threshold=0.5,
    )
    opened = feed(anomaly, step, STEP_AT + HOUR)[0]
    assert STEP_AT + 300 <= opened[0] <= STEP_AT + 360


def test_a_steady_series_can_be_given_a_least_difference() -> None:
    def flat(at: int) -> float:
        return 300.0 if at < STEP_AT else 300.5

    assert len(feed(detector(), flat, 5 * HOUR)) == 1
    assert feed(detector(least_difference=5), flat, 5 * HOUR) == []


# What says nothing.


@pytest.mark.parametrize(
    "fields",
    [
        {"coverage_seconds": 0.0},
        {"shared": True},
        {"mig_instance": "1/0"},
        {"interval_seconds": 600.0},
    ],
)
def test_what_is_not_measured_adds_nothing(fields: dict[str, object]) -> None:
    anomaly = detector()
    assert feed(anomaly, step, 4 * HOUR, **fields) == []
    assert all(score.learned_seconds == 0 for score in anomaly.state.series.values())


def test_an_unknown_metric_adds_nothing() -> None:
    anomaly = detector(metric="link_bytes_per_second")
    assert feed(anomaly, step, 4 * HOUR) == []
    assert anomaly.state.series == {}


def test_unknown_windows_hold_what_is_open() -> None:
    anomaly = detector()
    feed(anomaly, step, STEP_AT + 600)
    assert feed(anomaly, lambda _: None, HOUR, STEP_AT + 600) == []
    assert one(anomaly, workload(), STEP_AT + 2 * HOUR) == "anomaly"
    assert anomaly.describe().evidence["above_minutes"] == pytest.approx(10, abs=1)


def test_a_change_of_measure_begins_anew() -> None:
    anomaly = detector(metric="use_percent")

    def use(at: int, percent: float, measure: str) -> AlertKind | None:
        busy = series(percent + noise(at) / 100, measure=measure)
        return one(anomaly, workload(busy), at)

    for at in range(0, 2 * HOUR, 10):
        use(at, 90.0, "gpu_util")
    kinds = {use(at, 20.0, "sm_active") for at in range(2 * HOUR, 4 * HOUR, 10)}
    assert kinds == {None}
    (score,) = anomaly.state.series.values()
    assert (score.measure, score.former_measure) == ("sm_active", "gpu_util")
    assert score.learning_since_ms == (T0 + 2 * HOUR) * 1000


def test_a_rule_is_for_its_namespaces() -> None:
    some = rule(namespaces=["ml-*", "web"])
    assert [applies_to(some, name) for name in ("ml-a", "web", "ml", "web2", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert applies_to(rule(), None)
    assert applies_to(rule(), "any")


# Several series.


def test_each_series_has_a_model_of_its_own() -> None:
    anomaly = detector()
    kind: AlertKind | None = None
    for at in range(0, STEP_AT + 10 * MINUTE, 10):
        devices = [
            series(50.0, device_uuid=f"GPU-{n}", power_mean_watts=100.0 * n + step(at) * (n == 2))
            for n in (1, 2, 3)
        ]
        kind = one(anomaly, workload(*devices), at)
    assert kind == "anomaly"
    verdict = anomaly.describe()
    assert verdict.evidence["device_uuid"] == "GPU-2"
    assert (verdict.evidence["series"], verdict.evidence["series_open"]) == (3, 1)
    assert verdict.subject.device_uuid is None
    assert verdict.subject.workload == "Deployment/server"


def test_a_series_that_ends_frees_its_model_and_its_alert() -> None:
    anomaly = detector()
    found_step(anomaly)
    assert one(anomaly, ended(), STEP_AT + HOUR) is None
    assert anomaly.close_reason == "pod deleted"
    anomaly.sync()
    assert (anomaly.state.series, anomaly.state.models, anomaly._models) == ({}, {}, {})
    with pytest.raises(RuntimeError, match=r"describe\(\) needs"):
        anomaly.describe()


# What is told.


def test_the_verdict_has_the_numbers() -> None:
    verdict = found_step(detector())
    assert (verdict.kind, verdict.tier, verdict.quality) == ("anomaly", "ticket", "exact")
    assert verdict.onset_ms == (T0 + STEP_AT) * 1000
    evidence = verdict.evidence
    assert evidence["value"] == step(STEP_AT + 590)
    assert evidence["expected_value"] == pytest.approx(300, abs=1)
    assert evidence["score"] == pytest.approx(1.0, abs=1e-4)
    assert evidence["above_minutes"] == pytest.approx(10)
    assert evidence["relearned_after_restart"] is False
    assert evidence["learning_since_ms"] == T0 * 1000
    assert evidence["cost_microseconds"] is None
    assert verdict.summary.startswith(
        "Deployment server in ml is unusual by rule power: power_mean_watts is 4"
    )
    assert verdict.parameters["hold"] == 300.0


def test_the_cost_is_told_as_a_step() -> None:
    ticks = iter(range(10**6))
    loaded = load(rule(), lambda: next(ticks) * 0.0024)
    verdict = found_step(Anomaly(loaded))
    assert loaded.cost_microseconds == pytest.approx(8)
    assert verdict.evidence["cost_microseconds"] == 10.0


def test_bytes_are_told_in_bytes() -> None:
    anomaly = detector(metric="memory_used_bytes")
    for at in range(0, 2 * HOUR, 10):
        held = round(4 * GIB + noise(at) * 2**20 + (10 * GIB if at >= HOUR else 0))
        one(anomaly, workload(series(50.0, memory_used_bytes=held)), at)
    assert " bytes where " in anomaly.describe().summary


# Restarts.


MODELS: list[tuple[str, dict[str, object], float]] = [
    ("anomaly.GaussianScorer", {"grace_period": 60}, 0.999),
    ("anomaly.StandardAbsoluteDeviation", {}, 4.0),
    ("time_series.SNARIMAX", {"p": 2, "d": 0, "q": 1}, 6.0),
    ("drift.ADWIN", {}, 0.5),
]


@pytest.mark.parametrize(("model", "options", "threshold"), MODELS)
@pytest.mark.parametrize("restart_at", [0, HOUR, STEP_AT + 100, STEP_AT + 10 * MINUTE])
def test_a_restart_changes_nothing(
    model: str, options: dict[str, object], threshold: float, restart_at: int
) -> None:
    fields = {"model": model, "options": options, "threshold": threshold}
    straight, restarted = detector(**fields), detector(**fields)
    end = STEP_AT + 2 * HOUR
    whole = feed(straight, step, end)
    parts = feed(restarted, step, restart_at)
    restarted = reloaded(restarted, **fields)
    assert parts + feed(restarted, step, end - restart_at, restart_at) == whole
    assert "anomaly" in {kind for _, kind in whole}
    straight.sync()
    restarted.sync()
    assert msgspec.json.encode(straight.state) == msgspec.json.encode(restarted.state)


def test_an_open_alert_is_told_the_same_after_a_restart() -> None:
    straight = detector()
    found_step(straight)
    restarted = reloaded(straight)
    later = STEP_AT + 10 * MINUTE
    assert one(straight, window(400.0), later) == one(restarted, window(400.0), later) == "anomaly"
    assert straight.describe() == restarted.describe()


def test_what_can_not_be_stored_is_relearned_and_says_so() -> None:
    fields: dict[str, object] = {
        "model": "anomaly.HalfSpaceTrees",
        "options": {"limits": {"value": [0, 700]}, "height": 6, "window_size": 60},
        "threshold": 0.9,
    }
    before = detector(**fields)
    feed(before, noise, 2 * HOUR)
    after = reloaded(before, **fields)
    assert after.state.models == {}

    def far(at: int) -> float:
        return noise(at) + (350.0 if at >= 4 * HOUR else 0.0)

    assert feed(after, far, 2 * HOUR + 10 * MINUTE, 2 * HOUR)[-1][1] == "anomaly"
    evidence = after.describe().evidence
    assert evidence["relearned_after_restart"] is True
    assert evidence["kept_over_restart"] is False
    assert evidence["learning_since_ms"] == (T0 + 2 * HOUR) * 1000
    assert after.close_reason == "model relearned after a restart"


def test_a_damaged_model_is_relearned() -> None:
    before = detector()
    feed(before, noise, HOUR)
    before.sync()
    before.state.models = dict.fromkeys(before.state.models, '{"version":99}')
    (score,) = detector(before.state).state.series.values()
    assert score.relearned
    assert score.learned_seconds == 0


def test_a_model_that_is_too_large_is_not_kept() -> None:
    fields: dict[str, object] = {"options": {"window_size": 5000, "grace_period": 60}}
    before = detector(**fields)
    feed(before, noise, 14 * HOUR)
    before.sync()
    assert before.state.models == {}


def test_another_model_begins_without_the_old_state() -> None:
    before = detector()
    found_step(before)
    after = reloaded(before, threshold=4.0, model="anomaly.StandardAbsoluteDeviation", options={})
    assert after.state.series == {}
    assert after.close_reason == "rule changed"
    kept = reloaded(before, hold="10m")
    assert len(kept.state.series) == 1


def test_a_model_that_fails_is_made_anew() -> None:
    """A multiplicative season divides by the level, which is 0 here."""
    options = {
        "alpha": 0.5,
        "beta": 0.1,
        "gamma": 0.1,
        "seasonality": 4,
        "multiplicative": True,
    }
    anomaly = detector(model="time_series.HoltWinters", options=options, threshold=5)
    assert feed(anomaly, lambda _: 0.0, 600) == []
    (score,) = anomaly.state.series.values()
    assert score.learned_seconds < 100

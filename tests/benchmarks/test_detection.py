"""The benchmark of the detectors: its signals, its rules and its judge are what they say."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.detection import leak_rules, leak_shapes
from benchmarks.detection.__main__ import judged
from benchmarks.detection.judge import (
    Outcome,
    f1,
    false_alarms_a_day,
    flaps,
    outcome,
    precision,
    recall,
)
from benchmarks.detection.signal import JUDGING_SEEDS, TUNING_SEEDS, Episode, Signal

HOUR = 3600
GIB = 2**30


def signal(episode: Episode | None) -> Signal:
    return Signal("leak", "a shape", 1, 24 * HOUR, episode, lambda: iter(()))


LEAK = Episode("memory_leak", begin_seconds=2 * HOUR, end_seconds=8 * HOUR)


def test_an_alert_in_the_episode_finds_it_once() -> None:
    made = outcome(signal(LEAK), [(4.0 * HOUR, 5.0 * HOUR), (6.0 * HOUR, 9.0 * HOUR)])
    assert (made.found_seconds, made.lead_seconds) == (2 * HOUR, 4 * HOUR)
    assert (made.flaps, made.false_alarms) == (1, 0)


def test_an_alert_before_it_is_false_and_one_after_its_end_finds_nothing() -> None:
    made = outcome(signal(LEAK), [(1.0 * HOUR, 1.5 * HOUR), (8.1 * HOUR, 9.0 * HOUR)])
    assert (made.found_seconds, made.false_alarms) == (None, 1)


def test_every_alert_of_a_healthy_signal_is_false() -> None:
    assert outcome(signal(None), [(1.0, 2.0), (3.0, 4.0)]).false_alarms == 2


def test_the_figures() -> None:
    found = Outcome("a", 1, 1.0, has_episode=True, found_seconds=60.0, lead_seconds=600.0, flaps=1)
    missed = Outcome("a", 2, 1.0, has_episode=True)
    false = Outcome("b", 1, 2.0, has_episode=False, false_alarms=1)
    all_ = [found, missed, false]
    assert (recall(all_), precision(all_), f1(all_)) == (0.5, 0.5, 0.5)
    assert (false_alarms_a_day(all_), flaps(all_)) == (0.25, 1.0)


def test_the_seeds_for_tuning_judge_nothing() -> None:
    assert not set(TUNING_SEEDS) & set(JUDGING_SEEDS)


def test_half_of_the_shapes_are_traps() -> None:
    signals = [leak_shapes.signal_of(name, TUNING_SEEDS[0]) for name in leak_shapes.SHAPES]
    traps = sum(one.episode is None for one in signals)
    assert len(signals) >= 12
    assert len(signals) / 2 <= traps < len(signals)


@pytest.mark.parametrize("name", ["steady leak", "stairs"])
def test_a_signal_is_the_same_in_every_run(name: str) -> None:
    def head() -> list[int | None]:
        windows = leak_shapes.signal_of(name, TUNING_SEEDS[3]).windows()
        return [next(windows)[1].series[0].memory_used_bytes for _ in range(50)]  # type: ignore[union-attr] # of workloads

    assert head() == head()


def ramp(gib_an_hour: float, begin: float, hours: float) -> leak_rules.Series:
    at = np.arange(0.0, hours * HOUR, 30.0)
    return at, (begin + gib_an_hour * at / HOUR) * GIB


def test_predict_linear_fires_an_hour_before_the_end_and_fifteen_minutes_later() -> None:
    rule = leak_rules.RULES["predict_linear"]
    ((begin, _),) = leak_rules.firing(rule, ramp(10.0, 0.0, 8.0), 80.0 * GIB)
    assert begin == pytest.approx(7 * HOUR + 15 * 60, abs=90)


def test_delta_fires_after_half_an_hour_of_more_than_a_gigabyte() -> None:
    rule = leak_rules.RULES["delta"]
    spans = leak_rules.firing(rule, ramp(3.0, 0.0, 3.0), 80.0 * GIB)
    assert len(spans) == 1
    assert 40 * 60 <= spans[0][0] <= HOUR * 1.1  # a delta needs only a part of its range
    assert leak_rules.firing(rule, ramp(1.5, 0.0, 3.0), 80.0 * GIB) == []


def test_a_rule_that_is_not_true_once_begins_anew() -> None:
    at, held = ramp(3.0, 0.0, 4.0)
    held[at >= 2 * HOUR] -= 3.0 * GIB
    spans = leak_rules.firing(leak_rules.RULES["delta"], (at, held), 80.0 * GIB)
    assert len(spans) == 2
    assert spans[0][1] == pytest.approx(2 * HOUR, abs=120)


Found = Callable[[Outcome], bool]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("steady leak", lambda one: one.found_seconds is not None),
        ("reserved", lambda one: not one.false_alarms),
    ],
)
def test_a_signal_is_judged_from_end_to_end(name: str, right: Found) -> None:
    ours, predict, delta = judged((name, TUNING_SEEDS[0]))
    assert right(ours)
    assert predict.shape == delta.shape == name

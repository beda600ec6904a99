import tomllib
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from schemas.anomaly_rules import METRICS, SHORT_METRICS, AnomalyRule, AnomalyRules
from schemas.windows import SeriesWindow

RULE = """
[[anomalies]]
name = "power"
metric = "power_watts"
model = "anomaly.GaussianScorer"
options = { grace_period = 100 }
threshold = 0.999
hold = "5m"
namespaces = ["ml-*"]
"""


def rule(**fields: object) -> AnomalyRule:
    known: dict[str, Any] = tomllib.loads(RULE)["anomalies"][0]
    return AnomalyRule.model_validate(known | fields)


def test_a_rule_reads_as_it_is_written() -> None:
    power = rule()
    assert (power.metric, power.hold) == ("power_mean_watts", 300.0)
    assert power.options == {"grace_period": 100}
    assert power.namespaces == ("ml-*",)


def test_it_survives_the_topic() -> None:
    assert AnomalyRule.model_validate_json(rule().model_dump_json()) == rule()


def test_every_metric_is_a_number_of_a_window() -> None:
    for name in METRICS:
        window = SeriesWindow.model_validate(
            {"node": "n", "device_uuid": "d", "coverage_seconds": 1.0, "interval_seconds": 1.0}
            | {name: 1}
        )
        assert getattr(window, name) == 1
    assert set(SHORT_METRICS.values()) <= set(METRICS)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"metric": "power_wats"}, "the nearest is 'power_watts'"),
        ({"metric": "device_uuid"}, "is no metric"),
        ({"metric": "__class__"}, "is no metric"),
        ({"name": "Power!"}, "pattern"),
        ({"hold": "five minutes"}, "is no duration"),
        ({"hold": "0s"}, "greater than 0"),
        ({"threshold": float("nan")}, "finite number"),
        ({"options": {"a": float("inf")}}, "finite"),
        ({"options": {"window_size": 10**9}}, "at most 100000"),
        ({"options": {"a": [[[[[[1]]]]]]}}, "nested more than"),
        ({"receiver": "pager"}, "Extra inputs"),
    ],
)
def test_a_wrong_shape_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        rule(**fields)


def test_two_rules_of_a_name_are_refused() -> None:
    rules = TypeAdapter(AnomalyRules)
    assert len(rules.validate_python([rule(), rule(name="other")])) == 2
    with pytest.raises(ValidationError, match="two rules are named 'power'"):
        rules.validate_python([rule(), rule()])

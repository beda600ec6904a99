"""Anomalies that a user names: a model of river on one metric of the windows.

Only shapes are checked here.  Whether the model exists, takes its options and is cheap enough is
found out by `streams.river_models`, because schemas know no model library.
"""

import math
from collections import Counter
from difflib import get_close_matches
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from schemas.parameters import Parameters, Seconds
from schemas.wire import Text

METRICS = (
    "use_mean_percent",
    "use_min_percent",
    "use_max_percent",
    "use_last_percent",
    "gpu_util_mean_percent",
    "memory_activity_mean_percent",
    "memory_used_bytes",
    "memory_min_bytes",
    "power_mean_watts",
    "power_min_watts",
    "power_max_watts",
    "link_bytes_per_second",
)
"""The fields of `schemas.windows.SeriesWindow` that vary and can be watched."""

SHORT_METRICS = {
    "use_percent": "use_mean_percent",
    "gpu_util_percent": "gpu_util_mean_percent",
    "memory_activity_percent": "memory_activity_mean_percent",
    "power_watts": "power_mean_watts",
}

OPTION_MAX = 100_000
"""Largest whole number in options; a window of more values is no state for each device."""
OPTION_DEPTH_MAX = 6


def _metric(value: object) -> object:
    """A short name in full; anything but a text is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    name = SHORT_METRICS.get(value, value)
    if name not in METRICS:
        known = [*METRICS, *SHORT_METRICS]
        near = get_close_matches(value, known, n=1, cutoff=0.0)
        raise ValueError(f"{value!r} is no metric of a window; the nearest is {near[0]!r}")
    return name


def _check_option(value: JsonValue, depth: int = 1) -> None:
    """Raises ValueError for numbers and nestings that no model needs."""
    if depth > OPTION_DEPTH_MAX:
        raise ValueError(f"options are nested more than {OPTION_DEPTH_MAX} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("options hold finite numbers only")
    if isinstance(value, int) and abs(value) > OPTION_MAX:
        raise ValueError(f"whole numbers in options are at most {OPTION_MAX}")
    if isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            _check_option(one, depth + 1)


def _checked_options(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_option(options)
    return options


class AnomalyRule(Parameters):
    """A model, the metric that it watches and when its score is an anomaly."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    """Unique; part of the detector's name, `anomaly.<name>`."""
    metric: Annotated[Text, BeforeValidator(_metric)]
    """A field of a series' window, or its short name."""
    model: Annotated[str, Field(max_length=128)]
    """An anomaly detector, forecaster or drift detector of river, like `anomaly.GaussianScorer`."""
    options: Annotated[dict[str, JsonValue], AfterValidator(_checked_options)] = Field(
        default_factory=dict
    )
    """The parameters of its constructor; a table with `model` and `options` is a model itself."""
    threshold: Annotated[float, Field(ge=0, le=1e12)]
    """Score above which a window is anomalous, in the model's own scale."""
    hold: Seconds = 300.0
    """Seconds for which the score must stay above before an alert opens, and below to close it."""
    least_difference: Annotated[float, Field(ge=0, le=1e18)] = 0.0
    """Least distance from the expected value that counts, in the metric's own unit.

    For models that expect a value; steady series otherwise alert on the smallest change.
    """
    namespaces: tuple[Text, ...] = ()
    """Globs; empty: all, devices without a pod too."""
    warm_up: Seconds = 900.0
    """Seconds that a model must have learned from before its score counts."""
    learn_while_open: bool = False
    """Whether the model learns from anomalous windows; it then gets used to them."""
    accept_after: Seconds = 86400.0
    """Seconds above the threshold after which the new level is normal and is learned afresh."""
    longest_interval: Seconds = 300.0
    """Seconds between samples above which the verdict is `not observable`."""


def _unique(rules: tuple[AnomalyRule, ...]) -> tuple[AnomalyRule, ...]:
    twice = [name for name, count in Counter(rule.name for rule in rules).items() if count > 1]
    if twice:
        raise ValueError(f"two rules are named {twice[0]!r}; names of anomalies are unique")
    return rules


AnomalyRules = Annotated[tuple[AnomalyRule, ...], AfterValidator(_unique)]
"""All rules of an installation, each with a name of its own."""

"""A user's own model of river by name: found, built, tried and timed before it may watch anything.

The only module that imports river.  A name is looked up in a list that is made of river's own
`__all__`, never imported, so that a configuration can not run what it likes.
"""

import inspect
import math
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any

from river import anomaly, base, drift, linear_model, stats, time_series

from streams.model_states import NotStorableError, is_storable, restored
from streams.series_models import (
    DriftModel,
    FeatureModel,
    FilterModel,
    ForecastModel,
    ModelBrokenError,
    SeriesModel,
    TargetModel,
    learned,
    scored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.anomaly_rules import AnomalyRule

COST_MAX_MICROSECONDS = 200.0
"""Highest cost of a window: with 10,000 series 0.2 of a core."""
UPDATES = 300
"""Updates of the synthetic stream in the warm-up and in each repetition."""
REPETITIONS = 3
_LOOK_EVERY = 20
_GIVE_UP_AT = 10
"""Times the bound at which a model is too slow whatever the rest would say."""

_MODULES: dict[str, ModuleType] = {"anomaly": anomaly, "drift": drift, "time_series": time_series}
_PARTS: dict[str, ModuleType] = {**_MODULES, "linear_model": linear_model, "stats": stats}
"""Where a model within a model may come from."""
_KINDS = (
    base.AnomalyDetector,
    base.AnomalyFilter,
    base.DriftDetector,
    base.SupervisedAnomalyDetector,
    time_series.base.Forecaster,
)


def _classes(modules: dict[str, ModuleType], kinds: tuple[type, ...]) -> dict[str, type]:
    """The classes of these kinds that the modules offer, by `module.Class`."""
    found = {}
    for short, module in modules.items():
        for name in module.__all__:
            one = getattr(module, name, None)
            if isinstance(one, type) and issubclass(one, kinds) and not inspect.isabstract(one):
                found[f"{short}.{name}"] = one
    return found


_MODELS = _classes(_MODULES, _KINDS)
_PART_MODELS = _classes(_PARTS, (base.Base,))


class ModelRefusedError(ValueError):
    """A rule's model is unknown, does not take its options, fails or is too slow: one line."""


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule whose model was seen to work."""

    rule: "AnomalyRule"
    storable: bool
    """Whether what it learned is kept over a restart."""
    cost_microseconds: float | None
    """Measured cost of one window of one series; None where no clock was given."""

    def fresh(self) -> SeriesModel:
        """A model that has learned nothing."""
        return _adapted(_built(self.rule.model, self.rule.options, _MODELS))

    def kept(self, state: str) -> SeriesModel:
        """A model with what it had learned.

        Raises NotStorableError where the state is damaged or of another release or model.
        """
        model, fresh = restored(state), self.fresh()
        if type(model) is not type(fresh) or _estimator(model) is not _estimator(fresh):
            raise NotStorableError(f"the state is not of {self.rule.model}")
        return model


def load(
    rule: "AnomalyRule",
    clock: "Callable[[], float] | None" = None,
    cost_max_microseconds: float = COST_MAX_MICROSECONDS,
) -> LoadedRule:
    """Find, build and try the model; time it where a clock (in seconds) is given.

    Raises ModelRefusedError.
    """
    try:
        untried = LoadedRule(rule=rule, storable=False, cost_microseconds=None)
        cost = None
        if clock is not None:
            cost = cost_microseconds(untried.fresh, clock, cost_max_microseconds)
            _check_cost(rule.model, cost, cost_max_microseconds)
        model = untried.fresh()
        _run(model, UPDATES)
    except (ModelBrokenError, ModelRefusedError) as error:
        reason = str(error).replace("\n", " ")
        raise ModelRefusedError(f"anomaly {rule.name!r}: {rule.model}: {reason}") from error
    return LoadedRule(rule=rule, storable=is_storable(model), cost_microseconds=cost)


def cost_microseconds(
    model_factory: "Callable[[], SeriesModel]",
    clock: "Callable[[], float]",
    cost_max_microseconds: float = COST_MAX_MICROSECONDS,
) -> float:
    """Microseconds to score and learn one value: the least mean of the repetitions.

    `clock` gives seconds.  A model far above the bound is not measured to the end: what is
    returned is then its mean so far.
    """
    model = model_factory()
    done, began = 0, clock()
    for done in range(_LOOK_EVERY, UPDATES + 1, _LOOK_EVERY):
        _run(model, _LOOK_EVERY, done)
        mean = (clock() - began) / done * 1e6
        if mean > _GIVE_UP_AT * cost_max_microseconds and done > _LOOK_EVERY:
            return mean
    least = math.inf
    for repetition in range(1, REPETITIONS + 1):
        began = clock()
        _run(model, UPDATES, repetition * UPDATES)
        least = min(least, (clock() - began) / UPDATES * 1e6)
    return least


def model_names() -> list[str]:
    """The models that a rule may name."""
    return sorted(_MODELS)


def _run(model: SeriesModel, updates: int, first: int = 0) -> None:
    """Let the model score and learn a smooth signal of watts with a little ripple."""
    for step in range(first, first + updates):
        value = 300.0 + 40.0 * math.sin(step / 50) + (step * 7919 % 101) / 10
        scored(model, value)
        learned(model, value)


def _check_cost(name: str, cost: float, bound: float) -> None:
    if cost > bound:
        raise ModelRefusedError(
            f"costs {cost:.0f} microseconds a window, the bound is {bound:.0f}; give {name} "
            f"smaller options or take a lighter model, like anomaly.GaussianScorer"
        )


def _built(name: str, options: dict[str, Any], known: dict[str, type]) -> Any:  # noqa: ANN401 - river's models share no type
    """An object of a listed class.  Raises ModelRefusedError."""
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.0)
        raise ModelRefusedError(f"{name!r} is no model that may be named; the nearest is {near[0]}")
    arguments = _arguments(known[name], options)
    try:
        return known[name](**arguments)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelRefusedError(f"does not take these options: {error}") from error


def _arguments(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The options with inner models built, and a fixed seed where chance is in the model."""
    takes = list(inspect.signature(kind).parameters)
    for name in options:
        if name not in takes:
            near = get_close_matches(name, takes, n=1, cutoff=0.0)
            hint = f"the nearest is {near[0]!r}" if near else "it takes none"
            raise ModelRefusedError(f"{kind.__name__} has no option {name!r}; {hint}")
    seeded = {"seed": 0} if "seed" in takes else {}
    return seeded | {name: _option(value) for name, value in options.items()}


def _option(value: Any) -> Any:  # noqa: ANN401 - what TOML has, or a model of it
    if not isinstance(value, dict) or "model" not in value:
        return value
    inner, unknown = value.get("options", {}), set(value) - {"model", "options"}
    if not isinstance(value["model"], str) or not isinstance(inner, dict) or unknown:
        raise ModelRefusedError("a model in options is a table of `model` and `options` only")
    return _built(value["model"], inner, _PART_MODELS)


def _adapted(model: Any) -> SeriesModel:  # noqa: ANN401 - river's models share no type
    """The model with the one face of all."""
    if isinstance(model, base.AnomalyFilter):
        return FilterModel(model, _scoring(model.anomaly_detector))
    if isinstance(model, base.DriftDetector):
        return DriftModel(model)
    if isinstance(model, time_series.base.Forecaster):
        season = max(getattr(model, "seasonality", 0), getattr(model, "m", 1))
        return ForecastModel(model, seasonal=season > 1)
    return _scoring(model)


def _scoring(model: Any) -> TargetModel:  # noqa: ANN401 - river's models share no type
    if isinstance(model, base.SupervisedAnomalyDetector):
        return TargetModel(model)
    if isinstance(model, base.AnomalyDetector):
        return FeatureModel(model)
    raise ModelRefusedError(f"a filter stands on an anomaly detector, not on {model!r:.60}")


def _estimator(model: object) -> type:
    return type(getattr(model, "estimator", None))

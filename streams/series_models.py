"""One face for the kinds of models: score a value, learn it, say what was expected.

These classes know the methods that river's kinds share and no model by name.  They are part of a
dumped state (`streams.model_states`), so a renamed attribute is a new version of it.
"""

import math
from typing import Any, Protocol

FORGETTING = 0.002
"""Weight of the newest error in a forecaster's spread: about 83 minutes of windows of 10 s."""
LEAST_SPREAD = 0.001
"""Least spread as a part of the forecast: a steady series is not judged by its rounding."""
TINY = 1e-9


class ModelBrokenError(ArithmeticError):
    """A model can not go on: it failed, or its score is no number any more."""


class SeriesModel(Protocol):
    """A model of one series of numbers."""

    momentary: bool
    """True where an anomaly shows in one window only, because the model then takes it as given."""

    def score(self, value: float) -> float | None:
        """How odd the value is; None while the model can not say.  Comes before `learn`."""

    def learn(self, value: float) -> None:
        """Take the value as normal."""

    def skip(self) -> None:
        """Let a window pass without learning from it."""

    def expected(self) -> float | None:
        """What the next value should be; None where the model does not know."""


class TargetModel:
    """A model of a target: `score_one(x, y)`, as GaussianScorer."""

    momentary = False

    def __init__(self, estimator: Any) -> None:  # noqa: ANN401 - river's models share no type
        self.estimator = estimator

    def score(self, value: float) -> float | None:
        """See `SeriesModel.score`.

        What is expected to the last bit is not odd; a Gaussian without spread would say that it is.
        """
        expected = self.expected()
        if value == expected:
            return 0.0
        if expected is None and hasattr(self.estimator, "sub_stat"):
            return None  # a statistic that has not seen a value yet
        return float(self.estimator.score_one({}, value))

    def learn(self, value: float) -> None:
        """See `SeriesModel.learn`."""
        self.estimator.learn_one({}, value)

    def skip(self) -> None:
        """Nothing to do: the order of values means nothing to the model."""

    def expected(self) -> float | None:
        """The centre that the model measures from."""
        return _centre(self.estimator)


class FeatureModel(TargetModel):
    """A model of features: `score_one(x)`, as HalfSpaceTrees.  The feature's name is `value`."""

    def score(self, value: float) -> float | None:
        """See `SeriesModel.score`."""
        return float(self.estimator.score_one({"value": value}))

    def learn(self, value: float) -> None:
        """See `SeriesModel.learn`."""
        self.estimator.learn_one({"value": value})


class FilterModel:
    """A filter on top of another model: the score is 1 where it calls the value anomalous, else 0.

    `inner` is the face of the model that it wraps, on the same estimator.
    """

    momentary = False

    def __init__(self, estimator: Any, inner: TargetModel) -> None:  # noqa: ANN401 - as above
        self.estimator = estimator
        self.inner = inner

    def score(self, value: float) -> float | None:
        """See `SeriesModel.score`."""
        return float(bool(self.estimator.classify(self.inner.score(value))))

    def learn(self, value: float) -> None:
        """See `SeriesModel.learn`."""
        if isinstance(self.inner, FeatureModel):
            self.estimator.learn_one({"value": value})
        else:
            self.estimator.learn_one({}, value)

    def skip(self) -> None:
        """Nothing to do, as for the model below."""

    def expected(self) -> float | None:
        """What the model below expects."""
        return self.inner.expected()


class ForecastModel:
    """A forecaster: the score is the error of its forecast over the usual spread of its errors."""

    momentary = False

    def __init__(self, estimator: Any, *, seasonal: bool) -> None:  # noqa: ANN401 - as above
        self.estimator = estimator
        self.seasonal = seasonal
        self.error_mean: float | None = None
        self.error_variance = 0.0

    def score(self, value: float) -> float | None:
        """See `SeriesModel.score`; None before the first forecast with a known spread."""
        forecast = self.expected()
        if forecast is None or self.error_mean is None:
            return None
        spread = max(math.sqrt(self.error_variance), LEAST_SPREAD * abs(forecast), TINY)
        return abs(value - forecast) / spread

    def learn(self, value: float) -> None:
        """See `SeriesModel.learn`."""
        forecast = self.expected()
        if forecast is not None:
            self._note_error(value - forecast)
        self.estimator.learn_one(y=value)

    def skip(self) -> None:
        """A season goes on, so a seasonal model is told its own forecast instead."""
        forecast = self.expected() if self.seasonal else None
        if forecast is not None:
            self.estimator.learn_one(y=forecast)

    def expected(self) -> float | None:
        """The next forecast; None while the forecaster has seen too little for one."""
        try:
            return float(self.estimator.forecast(1)[0])
        except LookupError:
            return None

    def _note_error(self, error: float) -> None:
        """Exponentially weighted mean and variance."""
        if self.error_mean is None:
            self.error_mean = error
            return
        off = error - self.error_mean
        self.error_mean += FORGETTING * off
        self.error_variance = (1 - FORGETTING) * (self.error_variance + FORGETTING * off * off)


class DriftModel:
    """A drift detector: the score is 1 in the window in which it finds a drift, else 0.

    It learns as it judges, because a drift is found once and is then the new normal.
    """

    momentary = True

    def __init__(self, estimator: Any) -> None:  # noqa: ANN401 - as above
        self.estimator = estimator

    def score(self, value: float) -> float | None:
        """See `SeriesModel.score`."""
        self.estimator.update(value)
        return float(bool(self.estimator.drift_detected))

    def learn(self, value: float) -> None:
        """Done by `score`."""

    def skip(self) -> None:
        """Done by `score`."""

    def expected(self) -> float | None:
        """Not known: the level of before is gone when a drift is found."""
        return None


def scored(model: SeriesModel, value: float) -> float | None:
    """The model's score; None while it has seen too little.

    Raises ModelBrokenError where the model fails or its score is infinite or no number.
    """
    try:
        score = model.score(value)
    except LookupError:
        return None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ModelBrokenError(f"{type(error).__name__}: {error}") from error
    if score is not None and not math.isfinite(score):
        raise ModelBrokenError(f"the score is {score}")
    return score


def learned(model: SeriesModel, value: float, *, normal: bool = True) -> None:
    """Let the model learn a value that is normal, or pass over it.

    Raises ModelBrokenError where it fails.
    """
    try:
        if normal:
            model.learn(value)
        else:
            model.skip()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelBrokenError(f"{type(error).__name__}: {error}") from error


def _centre(estimator: Any) -> float | None:  # noqa: ANN401 - river's models share no type
    """The mean of a Gaussian, the statistic of a deviation, the forecast of a prediction."""
    if (gaussian := getattr(estimator, "gaussian", None)) is not None:
        return float(gaussian.mu)
    if (statistic := getattr(estimator, "sub_stat", None)) is not None:
        value = statistic.get()
        return None if value is None else float(value)
    predictor = getattr(estimator, "predictive_model", None)
    if predictor is None:
        return None
    try:
        if hasattr(predictor, "predict_one"):
            return float(predictor.predict_one({}))
        return float(predictor.forecast(estimator.horizon)[0])
    except LookupError:
        return None

"""What people write in Prometheus against leaks, on the same signals.

Both follow Prometheus' semantics: a range selector holds the samples of that time, the expression
is asked once a minute, and `for` wants it true at each of those moments.  `predict_linear` is the
least-squares line through the range, read at the time to come; `delta` is the difference of the
samples at the range's ends, extended to the range's length, but by no more than half an interval
where a sample is missing there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EVALUATED_EVERY = 60
SCRAPED_EVERY = 30
HOUR = 3600
DELTA_SECONDS = HOUR // 2
GROWN_BYTES = 1e9

Series = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Times in seconds and bytes."""


class Rule(NamedTuple):
    """An alerting rule."""

    expression: str
    range_seconds: int
    for_seconds: int
    holds: Callable[[NDArray[np.float64], NDArray[np.float64], float, float], bool]
    """Given times and values of the range, the moment of asking and the memory's total."""


def _will_be_full(
    at: NDArray[np.float64], held: NDArray[np.float64], moment: float, total: float
) -> bool:
    since = at - moment
    spread = since - since.mean()
    variance = float((spread**2).sum())
    if not variance:
        return False
    slope = float((spread * (held - held.mean())).sum()) / variance
    return bool(held.mean() + slope * (HOUR - since.mean()) > total)


def _has_grown(
    at: NDArray[np.float64], held: NDArray[np.float64], moment: float, total: float
) -> bool:
    del total
    covered = float(at[-1] - at[0])
    interval = covered / (len(at) - 1)
    to_begin, to_end = float(at[0] - moment + DELTA_SECONDS), float(moment - at[-1])
    extended = covered + _extension(to_begin, interval) + _extension(to_end, interval)
    return float(held[-1] - held[0]) * extended / covered > GROWN_BYTES


def _extension(missing: float, interval: float) -> float:
    """How far a range's end may lie from its sample, in seconds."""
    return missing if missing < 1.1 * interval else interval / 2


RULES: Mapping[str, Rule] = {
    "predict_linear": Rule(
        "predict_linear(FB_USED[1h], 3600) > total for 15m", HOUR, 900, _will_be_full
    ),
    "delta": Rule("delta(FB_USED[30m]) > 1e9 for 30m", DELTA_SECONDS, 1800, _has_grown),
}


def firing(rule: Rule, series: Series, total: float) -> Sequence[tuple[float, float]]:
    """When the rule fires: (begin, end) in seconds, an end without one is infinite."""
    at, held = series
    spans: list[tuple[float, float]] = []
    since: float | None = None
    fires = False
    for moment in np.arange(EVALUATED_EVERY, at[-1] + EVALUATED_EVERY, EVALUATED_EVERY):
        first, last = np.searchsorted(at, [moment - rule.range_seconds, moment], side="right")
        true = last - first > 1 and rule.holds(
            at[first:last], held[first:last], float(moment), total
        )
        if not true:
            if fires:
                spans[-1] = (spans[-1][0], float(moment))
            since, fires = None, False
            continue
        since = float(moment) if since is None else since
        if not fires and moment - since >= rule.for_seconds:
            fires = True
            spans.append((float(moment), float("inf")))
    return spans

"""Whether a row of floors rises, how fast, and how surely: Mann-Kendall and Theil-Sen.

Both only compare pairs, so one odd floor moves neither.  Sources: H. B. Mann, Econometrica 13
(1945), with the correction for ties; P. K. Sen, J. Am. Stat. Assoc. 63 (1968), also for the
interval of the slope.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

SURE_95 = 1.96
"""Standard deviations on either side that hold 95 % of a normal distribution."""


class Slope(NamedTuple):
    """Growth from one floor to the next, in the floors' unit."""

    median: float
    low: float
    high: float
    """The 95 % interval."""


def mann_kendall(floors: Sequence[float | None]) -> float:
    """The standard score of a rising trend; 0 without any, negative for a falling one.

    None stands for a floor that is not known.
    """
    known = [floor for floor in floors if floor is not None]
    score = sum(
        (later > earlier) - (later < earlier)
        for at, earlier in enumerate(known)
        for later in known[at + 1 :]
    )
    deviation = _deviation(known)
    if not deviation or not score:
        return 0.0
    return (score - 1 if score > 0 else score + 1) / deviation


def theil_sen(floors: Sequence[float | None]) -> Slope:
    """The median slope over all pairs.  Raises ValueError with fewer than two known floors."""
    known = [(at, floor) for at, floor in enumerate(floors) if floor is not None]
    slopes = sorted(
        (later - earlier) / (later_at - at)
        for number, (at, earlier) in enumerate(known)
        for later_at, later in known[number + 1 :]
    )
    if not slopes:
        raise ValueError("a slope needs two floors")
    half = SURE_95 * _deviation([floor for _, floor in known]) / 2
    middle, last = (len(slopes) - 1) / 2, len(slopes) - 1
    low = slopes[max(0, round(middle - half))]
    high = slopes[min(last, round(middle + half))]
    return Slope((slopes[last // 2] + slopes[(last + 1) // 2]) / 2, low, high)


def _deviation(known: Sequence[float]) -> float:
    """Standard deviation of the Mann-Kendall score where there is no trend."""
    count = len(known)
    ties = sum(n * (n - 1) * (2 * n + 5) for n in Counter(known).values() if n > 1)
    return sqrt(max(0, count * (count - 1) * (2 * count + 5) - ties) / 18)

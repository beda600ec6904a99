"""What tells a leak from the ways in which healthy programs take memory.

A leak's floor rises all the time, in many steps, as fast late as early, above anything seen today
or yesterday, and towards an end that is near.  Each of these is a gate, in `schemas.parameters`.
"""

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from streams.floor_trend import Slope, mann_kendall, theil_sen
from streams.floors import BUCKET_SECONDS, KEPT, SLOW, Floors

if TYPE_CHECKING:
    from schemas.parameters import LeakParameters

LEAST_FLOORS = 12
"""Floors that a trend needs; it is asked of these and of all that are kept."""


class Room(NamedTuple):
    """What a series may hold and what it may still take, in steps."""

    limit: float
    left: float
    closed: int = 0
    """The floor at which an earlier leak stopped: what led to it is no evidence again."""


class Trend(NamedTuple):
    """A rise that has passed every gate; floors in steps."""

    scale: int
    buckets: int
    z: float
    slope: Slope
    """In steps from one bucket to the next."""
    floor_then: int
    floor_now: int


class Rise(NamedTuple):
    """The floors that are asked about, the oldest first, None where nothing was known."""

    values: list[int | None]
    known: list[int]
    record: int
    """The highest floor before them, today and yesterday."""

    @property
    def growth(self) -> int:
        """From the first to the newest."""
        return self.known[-1] - self.known[0]


def rising(floors: Floors, scale: int, room: Room, parameters: "LeakParameters") -> Trend | None:
    """The rise of the floors at a scale, of the newest twelve or of all; None if a gate holds it.

    The cheap gates are asked first: a flat floor costs no more than they do.
    """
    values = floors.scales[scale].values()
    record = max(floors.scales[scale].highest_before, room.closed)
    known_long = floors.scales[1].count >= LEAST_FLOORS
    for count in (LEAST_FLOORS, KEPT):
        newest, older = values[-count:], values[:-count]
        known = [one for one in newest if one is not None]
        if len(known) < LEAST_FLOORS or newest[-1] is None:
            continue
        rise = Rise(newest, known, max([record, *(one for one in older if one is not None)]))
        if _is_large(rise, scale, room, parameters) and _is_steady(rise, room, parameters):
            trend = _trend(rise, scale, room, parameters, known_long=known_long)
            if trend is not None:
                return trend
        if count >= len(values):
            break
    return None


def _is_large(rise: Rise, scale: int, room: Room, parameters: "LeakParameters") -> bool:
    """Enough to matter, and above what was seen before."""
    share = parameters.slow_room_fraction if scale == SLOW else parameters.room_fraction
    return (
        rise.growth >= parameters.growth_fraction * room.limit
        and rise.growth >= share * room.left
        and rise.known[-1] >= rise.record + parameters.record_fraction * room.limit
    )


def _is_steady(rise: Rise, room: Room, parameters: "LeakParameters") -> bool:
    """In many steps, and as fast late as early, or not so much slower that it ends in time."""
    known = rise.known
    steps = [later - earlier for earlier, later in pairwise(known)]
    middle = known[len(known) // 2]
    early, late = middle - known[0], known[-1] - middle
    return (
        max(steps) <= parameters.step_fraction * rise.growth
        and sum(step > 0 for step in steps) >= parameters.rising_fraction * len(steps)
        and late >= parameters.late_ratio * early
        and _still_to_come(early, late) >= parameters.level_fraction * room.left
    )


def _still_to_come(early: int, late: int) -> float:
    """What follows if each half of the window's length grows by the same factor as the last one."""
    return inf if late >= early else late * late / (early - late)


def _trend(
    rise: Rise, scale: int, room: Room, parameters: "LeakParameters", *, known_long: bool
) -> Trend | None:
    """Whether it rises for certain, and the memory ends soon enough.

    What has not been watched for an hour may be a tooth of a saw: it has to end very soon.
    """
    z = mann_kendall(rise.values)
    if z < parameters.trend_z:
        return None
    slope = theil_sen(rise.values)
    within = parameters.slow_exhaustion_within if scale == SLOW else parameters.exhaustion_within
    if scale == 0 and not known_long:
        within = min(within, parameters.urgent_within)
    if slope.median <= 0 or room.left / slope.median * BUCKET_SECONDS[scale] > within:
        return None
    return Trend(scale, len(rise.values), z, slope, rise.known[0], rise.known[-1])

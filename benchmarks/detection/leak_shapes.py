"""Shapes of GPU memory over time: leaks, and the ways in which healthy programs take memory.

Each is drawn anew by every seed: sizes, times, rates, noise and the sampling interval.  A leak's
episode begins where it begins to grow and ends where the memory is exhausted.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.detection.signal import Episode, Signal
from benchmarks.detection.synthesis import (
    DAY,
    GIB,
    HOUR,
    MINUTE,
    DeviceTrace,
    Scene,
    Values,
    generator,
    missing_windows,
    seconds_of,
    workload_windows,
)

if TYPE_CHECKING:
    from schemas.windows import WorkloadWindow

TOTAL_GIB = 80.0
FULL_GIB = 79.5
"""What the driver leaves to programs."""
INTERVALS = (1.0, 2.0, 5.0, 10.0)
"""Seconds between samples."""


class Drawn(NamedTuple):
    """A drawn signal, in GiB a sample."""

    held: Values
    begin_seconds: float | None = None
    """Begin of a leak; None: there is none."""


Shape = Callable[[np.random.Generator, Values], Drawn]
"""Draws the memory at the times given, which are in seconds since the start."""


class Row(NamedTuple):
    """A shape and how long its signals are."""

    shape: Shape
    hours: float


def _leaking(chance: np.random.Generator, at: Values) -> tuple[Values, float]:
    """How much of the leak's way to exhaustion is done (0 to more than 1), and when it begins."""
    begin = float(chance.uniform(0, 3 * HOUR))
    lasts = float(chance.uniform(3 * HOUR, 11 * HOUR))
    return np.maximum(0.0, at - begin) / lasts, begin


def _base(chance: np.random.Generator) -> float:
    return float(chance.uniform(4, 40))


# Leaks


def steady_leak(chance: np.random.Generator, at: Values) -> Drawn:
    """A tensor is kept at every step."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    return Drawn(base + (FULL_GIB - base) * done, begin)


def leak_below_batches(chance: np.random.Generator, at: Values) -> Drawn:
    """Batches of changing size above a floor that rises."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    swing = chance.uniform(2, 12) * chance.random(len(at))
    return Drawn(base + (FULL_GIB - base) * done + swing, begin)


def dripping_leak(chance: np.random.Generator, at: Values) -> Drawn:
    """A cache that grows by a block now and then."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    blocks = chance.integers(40, 200)
    return Drawn(base + (FULL_GIB - base) * np.floor(done * blocks) / blocks, begin)


def hastening_leak(chance: np.random.Generator, at: Values) -> Drawn:
    """The more is kept, the more is kept."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    return Drawn(base + (FULL_GIB - base) * done ** chance.uniform(1.2, 1.8), begin)


def leak_with_the_load(chance: np.random.Generator, at: Values) -> Drawn:
    """Grows by request, and requests come in waves of an hour or two."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    waves = 2 * np.pi * (at - begin) / chance.uniform(HOUR, 2 * HOUR)
    wavy = done + 0.03 * np.sin(waves) * (done > 0)
    return Drawn(base + (FULL_GIB - base) * np.maximum.accumulate(wavy), begin)


def leak_after_a_warm_up(chance: np.random.Generator, at: Values) -> Drawn:
    """An allocator finds its level first."""
    done, begin = _leaking(chance, at)
    base = float(chance.uniform(15, 40))
    warm = base * (1 - np.exp(-at / chance.uniform(5 * MINUTE, 20 * MINUTE)))
    return Drawn(warm + (FULL_GIB - base) * done, begin)


def leak_with_garbage(chance: np.random.Generator, at: Values) -> Drawn:
    """A collector that runs every few minutes hides the floor in between."""
    done, begin = _leaking(chance, at)
    base = _base(chance)
    period = chance.uniform(3 * MINUTE, 9 * MINUTE)
    saw = chance.uniform(2, 8) * (at % period) / period
    return Drawn(base + (FULL_GIB - base) * done + saw, begin)


# Healthy


def warm_up(chance: np.random.Generator, at: Values) -> Drawn:
    """Levels off within an hour or two."""
    base, more = _base(chance), float(chance.uniform(5, 38))
    return Drawn(base + more * (1 - np.exp(-at / chance.uniform(5 * MINUTE, 45 * MINUTE))))


def reserved(chance: np.random.Generator, at: Values) -> Drawn:
    """A KV cache that takes the card at the start."""
    return Drawn(np.full(len(at), chance.uniform(60, 78)) + 0.02 * chance.random(len(at)))


def batches(chance: np.random.Generator, at: Values) -> Drawn:
    """Each of another size."""
    lasts = chance.uniform(20, 300)
    sizes = chance.uniform(0, chance.uniform(10, 40), size=int(at[-1] / lasts) + 2)
    return Drawn(_base(chance) + sizes[(at / lasts).astype(int)])


def stairs(chance: np.random.Generator, at: Values) -> Drawn:
    """Two to four models are loaded, one after the other."""
    many = int(chance.integers(2, 5))
    held = np.full(len(at), chance.uniform(5, 20))
    for begin in np.sort(chance.uniform(0, 9 * HOUR, size=many)):
        held += chance.uniform(4, 14) * (at >= begin)
    return Drawn(held)


def saw_tooth(chance: np.random.Generator, at: Values) -> Drawn:
    """Kept until a collector runs, some minutes up to an hour later."""
    period = chance.uniform(5 * MINUTE, HOUR)
    return Drawn(_base(chance) + chance.uniform(5, 35) * (at % period) / period)


def day_rhythm(chance: np.random.Generator, at: Values) -> Drawn:
    """Sessions of the day's users, over three days."""
    phase = chance.uniform(0, 2 * np.pi)
    high = chance.uniform(2, 12)
    noise = np.repeat(chance.normal(0, 0.3, size=len(at) // 60 + 1), 60)[: len(at)]
    return Drawn(_base(chance) + high * (1 - np.cos(2 * np.pi * at / DAY + phase)) + noise)


def restarts(chance: np.random.Generator, at: Values) -> Drawn:
    """A program that ends and starts again, warming up each time."""
    period = chance.uniform(0.7 * HOUR, 4 * HOUR)
    since = at % period
    grown = chance.uniform(20, 60) * (1 - np.exp(-since / chance.uniform(3 * MINUTE, 20 * MINUTE)))
    return Drawn(np.where(since < MINUTE, 0.5, 2.0 + grown))


def slowing(chance: np.random.Generator, at: Values) -> Drawn:
    """A cache that is filled by rarer and rarer entries."""
    grown: Values = chance.uniform(2, 7) * np.log1p(at / chance.uniform(5 * MINUTE, 30 * MINUTE))
    return Drawn(chance.uniform(4, 30) + grown)


def one_step(chance: np.random.Generator, at: Values) -> Drawn:
    """A larger model from some time on."""
    larger = (at >= chance.uniform(0, 10 * HOUR)).astype(np.float64)
    return Drawn(_base(chance) + chance.uniform(5, 38) * larger)


def wandering(chance: np.random.Generator, at: Values) -> Drawn:
    """A level that drifts up and down and comes back."""
    steps = chance.normal(0, chance.uniform(0.2, 0.8), size=int(at[-1] / MINUTE) + 2)
    level = np.zeros(len(steps))
    for number in range(1, len(steps)):
        level[number] = 0.98 * level[number - 1] + steps[number]
    return Drawn(30.0 + np.interp(at, np.arange(len(level)) * MINUTE, level))


SHAPES: dict[str, Row] = {
    "steady leak": Row(steady_leak, 14),
    "leak below batches": Row(leak_below_batches, 14),
    "dripping leak": Row(dripping_leak, 14),
    "hastening leak": Row(hastening_leak, 14),
    "leak with the load": Row(leak_with_the_load, 14),
    "leak after a warm-up": Row(leak_after_a_warm_up, 14),
    "leak with garbage": Row(leak_with_garbage, 14),
    "warm-up": Row(warm_up, 14),
    "reserved": Row(reserved, 14),
    "batches": Row(batches, 14),
    "stairs": Row(stairs, 14),
    "saw-tooth": Row(saw_tooth, 14),
    "day rhythm": Row(day_rhythm, 72),
    "restarts": Row(restarts, 14),
    "slowing": Row(slowing, 14),
    "one step": Row(one_step, 14),
    "wandering": Row(wandering, 14),
}


def signal_of(name: str, seed: int) -> Signal:
    """The signal of a shape and a seed, the same in every run."""
    chance = generator(name, seed)
    row = SHAPES[name]
    duration = round(row.hours * HOUR)
    interval = float(chance.choice(INTERVALS))
    at = seconds_of(duration, interval)
    drawn = row.shape(chance, at)
    episode = None
    held = np.clip(drawn.held, 0.0, FULL_GIB)
    if drawn.begin_seconds is not None:
        full = at[drawn.held >= FULL_GIB]
        end = float(full[0]) if len(full) else float(duration)
        episode = Episode("memory_leak", begin_seconds=drawn.begin_seconds, end_seconds=end)
        duration = min(duration, round(end) + HOUR // 2)
        held = held[: len(seconds_of(duration, interval))]
    use = np.clip(chance.normal(55, 10, size=len(held)), 0, 100)
    trace = DeviceTrace(use, held * GIB, total_bytes=round(TOTAL_GIB * GIB))
    scene = Scene(interval_seconds=interval, missing=missing_windows(chance, duration))
    windows: Callable[[], Iterator[tuple[int, WorkloadWindow]]] = partial(
        workload_windows, [trace], scene
    )
    return Signal("leak", name, seed, duration, episode, windows)

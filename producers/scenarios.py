"""Shapes of load: what a simulated workload asks of its device, as phases over time.

A shape is a generator of (seconds, Load); `Script` turns it into a function of the seconds since
the pod began.  All chance comes from the `random.Random` that the shape is given.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

GIB = 2**30
MINUTE = 60.0
FOREVER = math.inf


class Load(NamedTuple):
    """What one pod asks of one device while a phase lasts; all zero: nothing, not even memory."""

    util_percent: float = 0.0
    """Share of time in which a kernel runs."""
    active_percent: float = 0.0
    """SM activity."""
    memory_percent: float = 0.0
    """Activity of the device's memory."""
    power_fraction: float = 0.0
    """Part of the way from the card's idle power to its limit."""
    memory_bytes: int = 0
    pcie_bytes_per_second: float = 0.0
    nvlink_bytes_per_second: float = 0.0
    spread: float = 0.0
    """How far samples swing about the level, 0 to 1; see `swung`."""


Phases = Iterator[tuple[float, Load]]
Shape = Callable[[Random], Phases]


def swung(level: float, swing: float) -> float:
    """A percentage moved by `swing` (-1 to 1): most at 50 %, not at all at 0 and 100."""
    return level + level * (100.0 - level) / 100.0 * swing


class Script:
    """The load of a shape at any time; phases are drawn once, when time first reaches them."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._sum = 0.0
        self._ends: list[float] = [0.0]
        self._loads: list[Load] = [Load()]

    def at(self, seconds: float) -> Load:
        """The load `seconds` (>= 0) after the pod began."""
        while seconds >= self._ends[-1]:
            length, load = next(self._phases)
            self._sum += length
            # On whole milliseconds, as the wire has them: sums of floats miss the round times.
            self._ends.append(round(self._sum, 3))
            self._loads.append(load)
        return self._loads[bisect_right(self._ends, seconds)]


def seeded(*parts: object) -> Random:
    """A random stream of its own for what `parts` name; equal parts give equal streams."""
    return Random("/".join(map(str, parts)))  # noqa: S311 - a simulation, no secret


def holding(memory_bytes: int) -> Load:
    """Memory held, no work done."""
    return Load(memory_bytes=memory_bytes, power_fraction=0.02)


def work(
    active: float,
    memory_bytes: int,
    *,
    util: float | None = None,
    nvlink: float = 0.0,
    spread: float = 0.3,
) -> Load:
    """Ordinary work at an SM activity: the other figures follow from it."""
    return Load(
        util_percent=min(100.0, 1.3 * active) if util is None else util,
        active_percent=active,
        memory_percent=0.6 * active,
        power_fraction=0.1 + 0.0085 * active,
        memory_bytes=memory_bytes,
        pcie_bytes_per_second=2e7 * active,
        nvlink_bytes_per_second=nvlink,
        spread=spread,
    )


def until(end_seconds: float, phases: Phases) -> Phases:
    """The phases up to a time, the last one cut short."""
    left = end_seconds
    for length, load in phases:
        if length >= left:
            yield left, load
            return
        yield length, load
        left -= length


# Healthy


def steady(rng: Random, active: float = 60.0, memory_bytes: int = 50 * GIB) -> Phases:
    """Ordinary busy work whose level wanders by a tenth."""
    while True:
        yield rng.uniform(30, 90), work(active * rng.uniform(0.9, 1.1), memory_bytes)


def training(rng: Random) -> Phases:
    """Steps with a checkpoint at 0 % for 1-2 min every 15-20 min and a slow data load between."""
    held = 70 * GIB
    checkpoint = Load(memory_bytes=held, power_fraction=0.06, pcie_bytes_per_second=3e9)
    while True:
        between, dip = rng.uniform(900, 1200), rng.uniform(30, 60)
        before = rng.uniform(0.3, 0.7) * between
        yield before, work(rng.uniform(65, 75), held, util=98.0, nvlink=150e9)
        yield dip, work(rng.uniform(5, 15), held, nvlink=10e9)
        yield between - before - dip, work(rng.uniform(65, 75), held, util=98.0, nvlink=150e9)
        yield rng.uniform(60, 120), checkpoint


def bursty(rng: Random, memory_bytes: int = 65 * GIB) -> Phases:
    """Inference by demand: bursts, short pauses, now and then up to five quiet minutes."""
    while True:
        yield rng.uniform(40, 120), work(rng.uniform(60, 80), memory_bytes)
        quiet = rng.uniform(120, 300) if rng.random() < 0.1 else rng.uniform(20, 90)  # noqa: PLR2004
        yield quiet, holding(memory_bytes)


def small_kernels(rng: Random) -> Phases:
    """Always a kernel, each far too small for the card: 100 % at low power, and healthy."""
    while True:
        load = Load(
            util_percent=100.0,
            active_percent=rng.uniform(6, 9),
            memory_percent=rng.uniform(5.2, 5.8),
            power_fraction=0.26,
            memory_bytes=9 * GIB,
            pcie_bytes_per_second=3e8,
            spread=0.4,
        )
        yield rng.uniform(60, 180), load


def shared(rng: Random) -> Phases:
    """One of two pods on a card, at 30-50 % each."""
    while True:
        level = rng.uniform(36, 44)
        yield rng.uniform(30, 120), work(0.7 * level, 12 * GIB, util=level, spread=0.15)


def instance(rng: Random) -> Phases:
    """Inference on a small MIG instance, 40-70 % active."""
    while True:
        level = rng.uniform(47, 60)
        yield rng.uniform(30, 120), work(level, 7 * GIB, util=1.05 * level, spread=0.2)


def loading(rng: Random) -> Phases:
    """A server that loads its model for three minutes, then serves."""
    for step in range(18):
        held = GIB // 2 + step * 3 * GIB
        yield 10.0, Load(memory_bytes=held, power_fraction=0.03, pcie_bytes_per_second=4e8)
    yield from bursty(rng, 56 * GIB)


# Not healthy


def notebook(rng: Random) -> Phases:
    """Cells for ten minutes; then its kernel is shut down and the card stays allocated."""
    yield from until(10 * MINUTE, _cells(rng))
    yield FOREVER, Load()


def _cells(rng: Random) -> Phases:
    while True:
        yield rng.uniform(20, 60), work(rng.uniform(20, 60), 6 * GIB)
        yield rng.uniform(10, 40), holding(6 * GIB)


def idle_server(rng: Random) -> Phases:
    """Serves for eight minutes, then keeps 60 GiB and gets no request."""
    yield from until(8 * MINUTE, bursty(rng, 60 * GIB))
    yield FOREVER, holding(60 * GIB)


def idle_then_used(rng: Random) -> Phases:
    """Used for five minutes, idle with its memory for fifty, then used again."""
    yield from until(5 * MINUTE, steady(rng, memory_bytes=40 * GIB))
    yield 50 * MINUTE, holding(40 * GIB)
    yield from steady(rng, memory_bytes=40 * GIB)


def hung(rng: Random) -> Phases:
    """Works for twenty minutes, then every rank spins in a collective that never ends.

    The spinning channels keep 24 of 132 multiprocessors busy and move nothing.
    """
    held = 55 * GIB
    for length, load in until(20 * MINUTE, steady(rng, 70.0, held)):
        yield length, load._replace(nvlink_bytes_per_second=80e9)
    yield (
        FOREVER,
        Load(
            util_percent=100.0,
            active_percent=18.2,
            power_fraction=0.0127,
            memory_bytes=held,
        ),
    )


def low_use(rng: Random) -> Phases:
    """Work that needs a twentieth of what it holds."""
    while True:
        yield rng.uniform(60, 180), work(rng.uniform(4.5, 5.5), 30 * GIB)


def leaking(rng: Random) -> Phases:
    """Inference by demand that keeps a quarter of a GiB of each minute: full after four hours."""
    most = 79 * GIB
    held = 20 * GIB
    while True:
        yield from until(MINUTE, bursty(rng, held))
        held = min(most, held + GIB // 4)

"""Short synthetic signals for the tests of the under-use detector."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from schemas.alerts import AlertKind
from schemas.parameters import Price, PriceParameters, UnderUseParameters
from schemas.windows import SeriesWindow, WorkloadWindow
from streams.prices import Prices
from streams.under_use import UnderUse, UnderUseState

MIB, GIB = 2**20, 2**30
MINUTE, HOUR = 60, 3600
T0 = 1_772_409_600
"""A Monday, 2026-03-02T00:00:00Z, in seconds since the epoch."""
PRICES = Prices(PriceParameters(table=(Price(device_model="H100", per_gpu_hour=4.0),)))

Signal = Callable[[int], WorkloadWindow]
"""The window at a number of seconds since T0."""


def series(use: float | None = 0.0, **fields: Any) -> SeriesWindow:
    """10 s of an H100 with pod; idle and empty unless told otherwise."""
    known: dict[str, Any] = {
        "node": "n1",
        "device_uuid": "GPU-1",
        "device_model": "NVIDIA H100 80GB HBM3",
        "pod": "p",
        "pod_uid": "u",
        "quality": "exact",
        "coverage_seconds": 10.0,
        "interval_seconds": 1.0,
        "measure": "gpu_util",
        "use_mean_percent": use,
        "gpu_util_mean_percent": use,
        "memory_activity_mean_percent": 0.0,
        "memory_used_bytes": 4 * MIB,
        "memory_total_bytes": 80 * GIB,
        "power_mean_watts": 70.0,
        "power_min_watts": 69.0,
        "power_max_watts": 72.0,
        "power_idle_watts": 60.0,
        "power_limit_watts": 400.0,
    }
    return SeriesWindow(**(known | fields))


def workload(*devices: SeriesWindow, **fields: Any) -> WorkloadWindow:
    known: dict[str, Any] = {
        "cluster": "c",
        "namespace": "ml",
        "kind": "Deployment",
        "name": "server",
        "owner": "team-a",
        "series": devices,
    }
    return WorkloadWindow(**(known | fields))


def use(percent: float | None, **fields: Any) -> WorkloadWindow:
    return workload(series(percent, **fields))


def hung(**fields: Any) -> SeriesWindow:
    """nccl 968: 100 % at 70 W, on a card that idles at 60 and works at 300."""
    return series(100.0, memory_used_bytes=60 * GIB, **fields)


def detector(state: UnderUseState | None = None, **parameters: Any) -> UnderUse:
    return UnderUse(UnderUseParameters(**parameters), PRICES, state)


def feed(
    under_use: UnderUse, signal: Signal, seconds: int, start: int = 0
) -> Iterator[tuple[int, AlertKind | None]]:
    """The kind that is open at the end of each window, with that end in seconds since T0."""
    for at in range(start, start + seconds, 10):
        begin = (T0 + at) * 1000
        yield at + 10, under_use.update(signal(at), begin, begin + 10_000)


def changes(
    under_use: UnderUse, signal: Signal, seconds: int, start: int = 0
) -> list[tuple[int, AlertKind | None]]:
    """Only the windows in which what is open changed."""
    last = under_use.state.kind
    found = []
    for at, kind in feed(under_use, signal, seconds, start):
        if kind != last:
            found.append((at, kind))
        last = kind
    return found


def reloaded(under_use: UnderUse) -> UnderUse:
    """The same detector after a restart of the worker."""
    dump = msgspec.json.encode(under_use.state)
    return detector(msgspec.json.decode(dump, type=UnderUseState))

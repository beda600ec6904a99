"""Short synthetic signals for the tests of the under-use detector."""

from collections.abc import Callable, Iterator

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


def series(use: float | None = 0.0, **fields: object) -> SeriesWindow:
    """10 s of an H100 with pod; idle and empty unless told otherwise."""
    busy = use or 0.0
    watts = 70.0 + 3.0 * busy
    known: dict[str, object] = {
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
        "use_max_percent": use,
        "gpu_util_mean_percent": use,
        "memory_activity_mean_percent": busy * 0.4,
        "memory_used_bytes": 4 * MIB,
        "memory_total_bytes": 80 * GIB,
        "power_mean_watts": watts,
        "power_min_watts": watts - 1.0,
        "power_max_watts": watts + 2.0,
        "power_idle_watts": 60.0,
        "power_limit_watts": 400.0,
    }
    return SeriesWindow.model_validate(known | fields)


def workload(*devices: SeriesWindow, **fields: object) -> WorkloadWindow:
    known: dict[str, object] = {
        "cluster": "c",
        "namespace": "ml",
        "kind": "Deployment",
        "name": "server",
        "owner": "team-a",
        "series": devices,
    }
    return WorkloadWindow.model_validate(known | fields)


def use(percent: float | None, **fields: object) -> WorkloadWindow:
    return workload(series(percent, **fields))


def hung(**fields: object) -> SeriesWindow:
    """nccl 968: 100 % at 70 W, on a card that idles at 60 and works at 300."""
    still: dict[str, object] = {
        "memory_used_bytes": 60 * GIB,
        "memory_activity_mean_percent": 0.0,
        "power_mean_watts": 70.0,
        "power_min_watts": 69.0,
        "power_max_watts": 72.0,
    }
    return series(100.0, **(still | fields))


def detector(state: UnderUseState | None = None, **parameters: object) -> UnderUse:
    return UnderUse(UnderUseParameters.model_validate(parameters), PRICES, state)


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

"""From values at the sampling interval to the windows of 10 s that a detector is fed.

A shape draws whole arrays, one value a sample, NaN where nothing is known.  They are reduced as
stage one reduces a node's samples: a sample counts for the time until the next one.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.signal import START_SECONDS, WINDOW_SECONDS
from schemas import hot
from schemas.windows import WorkloadWindow
from schemas.wire import Measure, Quality
from streams.device_windows import DeviceWindow, PodUse

MIB, GIB = 2**20, 2**30
MINUTE, HOUR, DAY = 60, 3600, 86_400
IDLE_WATTS, LIMIT_WATTS = 60.0, 400.0

Values = NDArray[np.float64]
"""One value a sample, NaN where it is not known."""
Reduced = list[float | None]
"""One value a window."""


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """What one device, or one pod on a shared one, shows."""

    use_percent: Values | None
    memory_bytes: Values | None
    total_bytes: int = 80 * GIB
    measure: Measure = "gpu_util"
    gpu_util_percent: Values | None = None
    """None: the same as `use_percent`."""
    memory_activity_percent: Values | None = None
    power_watts: Values | None = None
    link_bytes_per_second: Values | None = None
    uuid: str = "GPU-0"
    pod_uid: str | None = "pod-0"
    shared: bool = False
    quality: Quality = "exact"


@dataclass(frozen=True, slots=True)
class PodTrace:
    """What one pod has of a shared device, as fractions of the device's SM time in percent."""

    uid: str
    use_percent: Values
    memory_bytes: Values
    entitlement: float
    present: NDArray[np.bool_] | None = None
    """Samples in which the pod is there; None: always."""


@dataclass(frozen=True, slots=True)
class Scene:
    """How a signal is sampled, and what is true of the workload all the time."""

    interval_seconds: float = 1.0
    missing: frozenset[int] = frozenset()
    """Numbers of the windows of which nothing came."""
    starts_at_seconds: int = START_SECONDS
    started_at_seconds: int | None = None
    """When the workload's process began; None: not known."""
    standby: bool = False
    notebook: bool = False
    kind: str = "Deployment"


def generator(shape: str, seed: int) -> np.random.Generator:
    """The chance of one signal: the same for the same shape and seed, in every run."""
    return np.random.default_rng([zlib.crc32(shape.encode()), seed])


def seconds_of(duration_seconds: int, interval_seconds: float) -> Values:
    """The time of each sample since the signal's start, in seconds."""
    return np.arange(0.0, duration_seconds, interval_seconds)


def workload_windows(
    devices: Sequence[DeviceTrace], scene: Scene
) -> Iterator[tuple[int, WorkloadWindow]]:
    """(start in milliseconds since the epoch, window), lazily, without those that are missing."""
    columns = [_columns(device, scene.interval_seconds) for device in devices]
    names = [tuple(column) for column in columns]
    fixed = [_identity(device, scene.interval_seconds) for device in devices]
    started = scene.started_at_seconds
    workload: dict[str, Any] = {
        "cluster": "bench",
        "namespace": "ml",
        "kind": scene.kind,
        "name": "workload",
        "standby": scene.standby,
        "notebook": scene.notebook,
        "started_at_ms": None if started is None else started * 1000,
    }
    rows = zip(*[zip(*column.values(), strict=True) for column in columns], strict=True)
    for number, row in enumerate(rows):
        if number in scene.missing:
            continue
        series = tuple(
            hot.SeriesWindow(**own, **dict(zip(keys, values, strict=True)))
            for own, keys, values in zip(fixed, names, row, strict=True)
        )
        yield _start_ms(scene, number), hot.WorkloadWindow(**workload, series=series)


def device_windows(
    pods: Sequence[PodTrace], scene: Scene, total_bytes: int = 80 * GIB
) -> Iterator[tuple[int, DeviceWindow]]:
    """(start in milliseconds since the epoch, window of a device with all its pods), lazily."""
    interval = scene.interval_seconds
    present = [_present(pod, interval) for pod in pods]
    use = [_means(pod.use_percent, interval) for pod in pods]
    memory = [_whole(_lasts(pod.memory_bytes, interval)) for pod in pods]
    util = _means(np.minimum(100.0, _total([pod.use_percent for pod in pods])), interval)
    used = _whole(_lasts(_total([pod.memory_bytes for pod in pods]), interval))
    for number, whole in enumerate(util):
        if number in scene.missing:
            continue
        yield (
            _start_ms(scene, number),
            DeviceWindow(
                uuid="GPU-0",
                coverage_seconds=float(WINDOW_SECONDS),
                interval_seconds=interval,
                measure="gpu_util",
                util_percent=whole,
                memory_used_bytes=used[number],
                memory_total_bytes=total_bytes,
                pods=tuple(
                    PodUse(pod.uid, use[at][number], memory[at][number], pod.entitlement)
                    for at, pod in enumerate(pods)
                    if present[at][number]
                ),
            ),
        )


def missing_windows(chance: np.random.Generator, duration_seconds: int) -> frozenset[int]:
    """A few gaps of up to five minutes, as an agent that restarts leaves them."""
    windows = duration_seconds // WINDOW_SECONDS
    gaps: set[int] = set()
    for begin in chance.integers(0, windows, size=int(chance.integers(1, 4))):
        gaps.update(range(int(begin), int(begin + chance.integers(1, 30))))
    return frozenset(gaps)


def _start_ms(scene: Scene, number: int) -> int:
    return (scene.starts_at_seconds + number * WINDOW_SECONDS) * 1000


def _identity(device: DeviceTrace, interval_seconds: float) -> dict[str, Any]:
    return {
        "node": "node-0",
        "device_uuid": device.uuid,
        "device_model": "NVIDIA H100 80GB HBM3",
        "namespace": "ml",
        "pod": device.pod_uid,
        "pod_uid": device.pod_uid,
        "shared": device.shared,
        "quality": device.quality,
        "coverage_seconds": float(WINDOW_SECONDS),
        "interval_seconds": interval_seconds,
        "measure": device.measure,
        "memory_total_bytes": device.total_bytes,
        "power_idle_watts": None if device.power_watts is None else IDLE_WATTS,
        "power_limit_watts": LIMIT_WATTS,
    }


def _columns(device: DeviceTrace, interval: float) -> dict[str, Sequence[Any]]:
    """The fields of a `SeriesWindow` that vary, each with a value for every window."""
    columns: dict[str, Sequence[Any]] = {}
    if device.use_percent is not None:
        columns["use_mean_percent"] = _means(device.use_percent, interval)
        columns["use_min_percent"] = _least(device.use_percent, interval)
        columns["use_max_percent"] = _most(device.use_percent, interval)
        columns["use_last_percent"] = _lasts(device.use_percent, interval)
        util = device.use_percent if device.gpu_util_percent is None else device.gpu_util_percent
        columns["gpu_util_mean_percent"] = _means(util, interval)
    if device.memory_bytes is not None:
        columns["memory_used_bytes"] = _whole(_lasts(device.memory_bytes, interval))
        columns["memory_min_bytes"] = _whole(_least(device.memory_bytes, interval))
    if device.memory_activity_percent is not None:
        columns["memory_activity_mean_percent"] = _means(device.memory_activity_percent, interval)
    if device.power_watts is not None:
        columns["power_mean_watts"] = _means(device.power_watts, interval)
        columns["power_min_watts"] = _least(device.power_watts, interval)
        columns["power_max_watts"] = _most(device.power_watts, interval)
    if device.link_bytes_per_second is not None:
        columns["link_bytes_per_second"] = _means(device.link_bytes_per_second, interval)
    return columns


def _by_window(values: Values, interval: float) -> Values:
    """Two dimensions: windows, and the samples that count in each."""
    if interval > WINDOW_SECONDS:
        values = np.repeat(values, round(interval / (WINDOW_SECONDS / 2)))
        interval = WINDOW_SECONDS / 2
    many = round(WINDOW_SECONDS / interval)
    return values[: len(values) // many * many].reshape(-1, many)


def _means(values: Values, interval: float) -> Reduced:
    table = _by_window(values, interval)
    known = ~np.isnan(table)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return _known(np.where(known, table, 0.0).sum(axis=1) / count)


def _least(values: Values, interval: float) -> Reduced:
    return _known(np.fmin.reduce(_by_window(values, interval), axis=1))


def _most(values: Values, interval: float) -> Reduced:
    return _known(np.fmax.reduce(_by_window(values, interval), axis=1))


def _lasts(values: Values, interval: float) -> Reduced:
    return _known(_by_window(values, interval)[:, -1])


def _known(values: Values) -> Reduced:
    listed: list[float] = values.tolist()
    if not np.isnan(values).any():
        return list(listed)
    return [None if value != value else value for value in listed]  # noqa: PLR0124 - NaN


def _whole(values: Reduced) -> list[int | None]:
    return [None if value is None else max(0, int(value)) for value in values]


def _total(values: Sequence[Values]) -> Values:
    total: Values = np.nansum(np.stack(values), axis=0)
    return total


def _present(pod: PodTrace, interval: float) -> list[bool]:
    there = np.ones(len(pod.use_percent)) if pod.present is None else pod.present.astype(float)
    return [bool(value) for value in _by_window(there, interval)[:, -1]]

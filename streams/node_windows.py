"""The windows of one node: covered samples become series, series become workloads' windows.

A window is counted as a whole, once all its samples are there: that takes a third of the time that
it would take scrape by scrape, and nothing of a window in progress is in the state.
"""

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from schemas import hot
from schemas.hot import struct_of
from schemas.telemetry import DeviceSample as DeviceSampleModel
from streams.holders import (
    Holder,
    WorkloadKey,
    holders_by_device,
    is_notebook,
    is_standby,
    starting_grace_seconds,
    workload_key,
)
from streams.windows import WINDOW_MS, Series

if TYPE_CHECKING:
    from schemas.pods import Pod
    from schemas.telemetry import DeviceSample, NodeTelemetry
    from schemas.windows import EndReason, SeriesEnd, SeriesWindow, WorkloadWindow
    from schemas.wire import CapacityType
    from streams.join import PodState
else:
    DeviceSample = struct_of(DeviceSampleModel)
    SeriesEnd = hot.SeriesEnd
    WorkloadWindow = hot.WorkloadWindow

DRIVER_SETTLES_MS = 60_000
"""Utilisation in the first minute after the driver loads says nothing."""

IDLE_POWER_RISE = 0.02
"""Part of the distance by which the learned idle power follows a higher reading, per window."""

IDLE_PERCENT = 1.0
"""Utilisation up to which a card counts as doing nothing when its idle power is learned."""


class Ended(Struct):
    """A series that ended, with the workload it belonged to."""

    workload: WorkloadKey
    end: SeriesEnd
    start_ms: int = 0
    """Start of the window that it ended in: it is told with that window, however late this one is
    handed on, and with none before, in which the series was still there."""


class WindowsState(Struct):
    """The counted windows that were not taken yet, and what is known of each card."""

    live: dict[str, WorkloadKey] = {}
    """The series of allocated devices in the newest sample."""
    uuids: tuple[str, ...] = ()
    """The devices of the newest sample."""
    idle_watts: dict[str, float] = {}
    closed: dict[int, list[WorkloadWindow]] = {}
    ended: list[Ended] = []
    versioned: bool = False
    """Whether the newest sample refers to pod events."""


class Held(NamedTuple):
    """What the holders of a node's devices follow from."""

    pods: int
    """The generation of the node's pods."""
    capacity: "CapacityType | None"
    pods_known: bool
    """Whether a device without a pod is known to have none."""


class Slot(NamedTuple):
    """One series of a device while its holders stay the same."""

    key: str
    """`device uuid` or `device uuid|pod uid`, as in `WindowsState.series`."""
    holder: Holder
    workload: WorkloadKey


class NodeWindows:
    """Sums the samples of one node, which come in the order of their times."""

    def __init__(self, cluster: str, node: str, state: WindowsState, pods: "PodState") -> None:
        self.state = state
        self._cluster = cluster
        self._node = node
        self._pods = pods
        self._series: dict[str, Series] = {}
        """Of the window in progress, by `device uuid` or `device uuid|pod uid`."""
        self._samples: list[NodeTelemetry] = []
        self._covers_ms: list[int] = []
        self._uuids: list[str] | None = None
        self._held: Held | None = None
        self._use_known = True
        """What the samples that wait to be summed have in common."""
        self._before: NodeTelemetry | None = None
        """The sample before those."""
        self._holders: dict[str, tuple[Holder, ...]] = {}
        self._slots: dict[str, tuple[Slot, ...]] = {}

    def begin(self, before: "NodeTelemetry | None") -> None:
        """A window begins; `before` is the sample before its first one, if that is known."""
        self._before = before

    def cover(self, sample: "NodeTelemetry", start_ms: int, covered_ms: int) -> None:
        """Count a sample for a time from `start_ms` on, all of it within one window."""
        self.state.versioned = versioned = sample.pod_version is not None
        loaded, pods = sample.driver_loaded_at_ms, self._pods
        use_known = loaded is None or not 0 <= start_ms - loaded < DRIVER_SETTLES_MS
        held = pods.generation, sample.capacity_type, pods.known or versioned
        uuids = [device.uuid for device in sample.devices]
        if uuids != self._uuids or held != self._held or use_known != self._use_known:
            self._sum_up()
            self._use_known = use_known
            self._turn_to(uuids, Held(*held), start_ms - start_ms % WINDOW_MS)
        if covered_ms > 0:
            self._samples.append(sample)
            self._covers_ms.append(covered_ms)
        else:
            self._sum_up()
            self._before = sample

    def close(self, start_ms: int) -> None:
        """End the window and keep it for the partition to take."""
        self._sum_up()
        devices = {device.uuid: device for device in self._before.devices} if self._before else {}
        grouped: dict[WorkloadKey, list[SeriesWindow]] = {}
        pods: dict[WorkloadKey, list[Pod]] = {}
        for key, series in self._series.items():
            self._close_series(key, series, devices, grouped, pods)
        if grouped:
            self.state.closed[start_ms] = [
                self._workload(key, tuple(windows), pods.get(key, []))
                for key, windows in sorted(grouped.items(), key=lambda item: str(item[0]))
            ]
        self._series = {}

    def take(self, start_ms: int) -> "list[WorkloadWindow]":
        """The node's part of a window, with the series that have ended in it."""
        workloads = self.state.closed.pop(start_ms, [])
        ended = [one for one in self.state.ended if one.start_ms <= start_ms]
        if not ended:
            return workloads
        self.state.ended = [one for one in self.state.ended if one.start_ms > start_ms]
        ends: dict[WorkloadKey, list[SeriesEnd]] = {}
        for one in ended:
            ends.setdefault(one.workload, []).append(one.end)
        return workloads + [
            hot.WorkloadWindow(
                cluster=self._cluster, namespace=key[0], kind=key[1], name=key[2], ended=tuple(all_)
            )
            for key, all_ in ends.items()
        ]

    def end_all(self, reason: "EndReason", at_ms: int = 0) -> None:
        """Every series of the node ends, in the window of `at_ms`; as soon as can be without."""
        self._uuids = self._held = None
        for key, workload in self.state.live.items():
            self._end(key, workload, reason, at_ms - at_ms % WINDOW_MS)
        self.state.live = {}

    def _turn_to(self, uuids: list[str], held: Held, window: int) -> None:
        """From here on samples have other devices, or the devices other holders."""
        if held != self._held:
            self._holders = holders_by_device(self._pods.pods, held.capacity)
            self._slots = {}
        self._uuids, self._held = uuids, held
        for uuid in uuids:
            if uuid not in self._slots:
                self._slots[uuid] = self._slots_of(uuid, held)
        self.state.uuids = tuple(uuids)
        self._note_ends(window)

    def _slots_of(self, uuid: str, held: Held) -> tuple[Slot, ...]:
        """Series of a device; one without a pod where the pods are unknown or hold it not."""
        known = held.pods_known
        holders = self._holders.get(uuid) if known else None
        if holders is None:
            holders = (Holder(None, None, 1, not known, "exact", held.capacity),)
        return tuple(
            Slot(
                uuid if holder.pod is None else f"{uuid}|{holder.pod.uid}",
                holder,
                workload_key(holder.pod, uuid),
            )
            for holder in holders
        )

    def _sum_up(self) -> None:
        """Count the samples that wait, device by device: they have the same in the same order."""
        samples, covers_ms, use_known = self._samples, self._covers_ms, self._use_known
        if not samples:
            return
        covered_ms = sum(covers_ms)
        interval = max(sample.interval_seconds for sample in samples)
        before = {device.uuid: device for device in self._before.devices} if self._before else {}
        for devices in zip(*[sample.devices for sample in samples], strict=True):
            uuid = devices[0].uuid
            for key, holder, _ in self._slots[uuid]:
                series = self._series.get(key)
                if series is None:
                    series = self._series[key] = Series(quality=holder.quality)
                series.covered_ms += covered_ms
                series.interval_seconds = max(series.interval_seconds, interval)
                if holder.pod is None or holder.sharers == 1:
                    series.add_device(devices, covers_ms, before.get(uuid), use_known=use_known)
                else:
                    series.add_pod(devices, covers_ms, holder.pod.uid, use_known=use_known)
        self._before = samples[-1]
        self._samples, self._covers_ms = [], []

    def _note_ends(self, window: int) -> None:
        """Which series of the sample before are not there any more."""
        live = {
            slot.key: slot.workload
            for uuid in self.state.uuids
            for slot in self._slots[uuid]
            if slot.holder.allocated
        }
        before, self.state.live = self.state.live, live
        for key, workload in before.items():
            if key in live:
                continue
            device, _, pod = key.partition("|")
            if pod and pod not in self._pods.pods:
                self._end(key, workload, "pod deleted", window)
            else:
                there = device in self.state.uuids
                self._end(key, workload, "not allocated" if there else "device removed", window)

    def _end(self, key: str, workload: WorkloadKey, reason: "EndReason", window: int) -> None:
        device, _, pod = key.partition("|")
        end = hot.SeriesEnd(node=self._node, device_uuid=device, pod_uid=pod or None, reason=reason)
        self.state.ended.append(Ended(workload, end, window))

    def _close_series(
        self,
        key: str,
        series: Series,
        devices: "dict[str, DeviceSample]",
        grouped: "dict[WorkloadKey, list[SeriesWindow]]",
        pods: "dict[WorkloadKey, list[Pod]]",
    ) -> None:
        uuid, _, pod_uid = key.partition("|")
        device = devices.get(uuid)
        if device is None:
            return
        self._learn_idle_power(uuid, series)
        holder = self._holder_for(uuid, pod_uid)
        if holder is None or not holder.allocated:
            return
        workload = workload_key(holder.pod, uuid)
        window = series.close(self._node, device, holder, self.state.idle_watts.get(uuid))
        grouped.setdefault(workload, []).append(window)
        if holder.pod is not None:
            pods.setdefault(workload, []).append(holder.pod)

    def _holder_for(self, uuid: str, pod_uid: str) -> Holder | None:
        """The holder of a series as the pods are now; None if it has ended meanwhile."""
        if not pod_uid:
            unknown = self._held is None or not self._held.pods_known
            return Holder(None, None, 1, allocated=unknown, quality="exact")
        for holder in self._holders.get(uuid, ()):
            if holder.pod is not None and holder.pod.uid == pod_uid:
                return holder
        return None

    def _learn_idle_power(self, uuid: str, series: Series) -> None:
        """A card's least draw while nothing runs on it; follows a higher one slowly."""
        quiet = series.util_ms and series.util_sum / series.util_ms <= IDLE_PERCENT
        still = series.use_max is not None and series.use_max <= IDLE_PERCENT
        if not (quiet and still and series.power_ms):
            return
        power = series.power_sum / series.power_ms
        known = self.state.idle_watts.get(uuid)
        if known is None or power < known:
            self.state.idle_watts[uuid] = power
        else:
            self.state.idle_watts[uuid] = known + IDLE_POWER_RISE * (power - known)

    def _workload(
        self, key: WorkloadKey, series: "tuple[SeriesWindow, ...]", pods: "list[Pod]"
    ) -> "WorkloadWindow":
        starts = [pod.started_at_ms for pod in pods if pod.started_at_ms is not None]
        graces = [grace for pod in pods if (grace := starting_grace_seconds(pod)) is not None]
        return hot.WorkloadWindow(
            cluster=self._cluster,
            namespace=key[0],
            kind=key[1],
            name=key[2],
            owner=next((pod.owner for pod in pods if pod.owner), None),
            standby=bool(pods) and all(is_standby(pod) for pod in pods),
            notebook=any(is_notebook(pod) for pod in pods),
            started_at_ms=max(starts, default=None),
            starting_grace_seconds=max(graces, default=None),
            series=series,
        )

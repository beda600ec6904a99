"""The windows of one node: covered samples become series, series become workloads' windows."""

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from schemas import hot
from schemas.hot import struct_of
from schemas.telemetry import DeviceSample as DeviceSampleModel
from streams.holders import (
    Holder,
    WorkloadKey,
    device_reading,
    holders_by_device,
    is_notebook,
    is_standby,
    pod_reading,
    starting_grace_seconds,
    workload_key,
)
from streams.windows import WINDOW_MS, Reading, Series

if TYPE_CHECKING:
    from schemas.pods import Pod
    from schemas.telemetry import DeviceSample, NodeTelemetry
    from schemas.windows import EndReason, SeriesEnd, SeriesWindow, WorkloadWindow
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
    """The window in progress, the finished ones not taken yet, and what is known of each card."""

    start_ms: int | None = None
    """Start of the window in progress."""
    series: dict[str, Series] = {}
    """By `device uuid` or `device uuid|pod uid`."""
    live: dict[str, WorkloadKey] = {}
    """The series of allocated devices in the newest sample."""
    devices: dict[str, DeviceSample] = {}
    """The newest sample of each device, without its processes' weight in the sums."""
    idle_watts: dict[str, float] = {}
    closed: dict[int, list[WorkloadWindow]] = {}
    ended: list[Ended] = []
    versioned: bool = False
    """Whether the newest sample refers to pod events."""


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
        self._holders: dict[str, tuple[Holder, ...]] = {}
        self._slots: dict[str, tuple[Slot, ...]] = {}
        self._held_as: tuple[object, ...] = ()
        """What the holders follow from; they are found anew when it changes."""
        self._uuids: tuple[str, ...] | None = None
        """The devices of the newest sample; None when what is live has to be compared."""

    def cover(self, sample: "NodeTelemetry", start_ms: int, end_ms: int) -> None:
        """Count a sample for the time from `start_ms` to `end_ms`."""
        self.state.versioned = sample.pod_version is not None
        self._refresh_holders(sample)
        rows = self._rows(sample, start_ms)
        at = start_ms
        while at < end_ms:
            window = at - at % WINDOW_MS
            self._turn_to(window)
            upto = min(end_ms, window + WINDOW_MS)
            for key, quality, reading in rows:
                series = self.state.series.get(key)
                if series is None:
                    series = self.state.series[key] = Series(quality=quality)
                series.add(reading, upto - at, sample.interval_seconds)
            at = upto

    @property
    def _pods_known(self) -> bool:
        """Whether a device without a pod is known to have none."""
        return self._pods.known or self.state.versioned

    def close(self) -> None:
        """End the window in progress and keep it for the partition to take."""
        state = self.state
        if state.start_ms is None:
            return
        grouped: dict[WorkloadKey, list[SeriesWindow]] = {}
        pods: dict[WorkloadKey, list[Pod]] = {}
        for key, series in state.series.items():
            self._close_series(key, series, grouped, pods)
        if grouped:
            state.closed[state.start_ms] = [
                self._workload(key, tuple(windows), pods.get(key, []))
                for key, windows in sorted(grouped.items(), key=lambda item: str(item[0]))
            ]
        state.series, state.start_ms = {}, None

    def close_before(self, complete_ms: int) -> None:
        """End the window in progress if nothing before `complete_ms` can come any more."""
        if self.state.start_ms is not None and self.state.start_ms + WINDOW_MS <= complete_ms:
            self.close()

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

    def end_all(self, reason: "EndReason") -> None:
        """Every series of the node ends."""
        self._uuids = None
        window = self.state.start_ms or 0
        for key, workload in self.state.live.items():
            self._end(key, workload, reason, window)
        self.state.live = {}

    def _turn_to(self, window: int) -> None:
        if self.state.start_ms is None:
            self.state.start_ms = window
        elif window > self.state.start_ms:
            self.close()
            self.state.start_ms = window

    def _refresh_holders(self, sample: "NodeTelemetry") -> None:
        held_as = self._pods.generation, sample.capacity_type, self._pods_known
        if held_as != self._held_as:
            self._held_as = held_as
            self._holders = holders_by_device(self._pods.pods, sample.capacity_type)
            self._slots, self._uuids = {}, None

    def _slots_of(self, uuid: str, sample: "NodeTelemetry") -> tuple[Slot, ...]:
        """Series of a device; one without a pod where the pods are unknown or hold it not."""
        known = self._pods_known
        holders = self._holders.get(uuid) if known else None
        if holders is None:
            capacity = sample.capacity_type
            holders = (
                Holder(None, None, 1, allocated=not known, quality="exact", capacity_type=capacity),
            )
        slots = self._slots[uuid] = tuple(
            Slot(
                uuid if holder.pod is None else f"{uuid}|{holder.pod.uid}",
                holder,
                workload_key(holder.pod, uuid),
            )
            for holder in holders
        )
        return slots

    def _rows(self, sample: "NodeTelemetry", at_ms: int) -> list[tuple[str, str, Reading]]:
        """Each series of a sample with its reading; notes which series have ended."""
        loaded = sample.driver_loaded_at_ms
        use_known = loaded is None or not 0 <= at_ms - loaded < DRIVER_SETTLES_MS
        before, slots_by_uuid = self.state.devices, self._slots
        rows: list[tuple[str, str, Reading]] = []
        for device in sample.devices:
            uuid = device.uuid
            for key, holder, _ in slots_by_uuid.get(uuid) or self._slots_of(uuid, sample):
                if holder.pod is None or holder.sharers == 1:
                    reading = device_reading(device, before.get(uuid), use_known=use_known)
                else:
                    reading = pod_reading(device, holder.pod.uid, use_known=use_known)
                rows.append((key, holder.quality, reading))
        devices = {device.uuid: device for device in sample.devices}
        self._note_live(devices, at_ms - at_ms % WINDOW_MS)
        self.state.devices = devices
        return rows

    def _note_live(self, devices: "dict[str, DeviceSample]", window: int) -> None:
        """Compare the series with those of the sample before, where they can differ."""
        uuids = tuple(devices)
        if uuids == self._uuids:
            return
        self._uuids = uuids
        live = {
            slot.key: slot.workload
            for uuid in uuids
            for slot in self._slots[uuid]
            if slot.holder.allocated
        }
        self._note_ends(live, devices, window)

    def _note_ends(
        self, live: dict[str, WorkloadKey], devices: "dict[str, DeviceSample]", window: int
    ) -> None:
        before = self.state.live
        if live.keys() == before.keys():
            return
        for key, workload in before.items():
            if key in live:
                continue
            device, _, pod = key.partition("|")
            if pod and pod not in self._pods.pods:
                self._end(key, workload, "pod deleted", window)
            else:
                reason: EndReason = "not allocated" if device in devices else "device removed"
                self._end(key, workload, reason, window)
        self.state.live = live

    def _end(self, key: str, workload: WorkloadKey, reason: "EndReason", window: int) -> None:
        device, _, pod = key.partition("|")
        end = hot.SeriesEnd(node=self._node, device_uuid=device, pod_uid=pod or None, reason=reason)
        self.state.ended.append(Ended(workload, end, window))

    def _close_series(
        self,
        key: str,
        series: Series,
        grouped: "dict[WorkloadKey, list[SeriesWindow]]",
        pods: "dict[WorkloadKey, list[Pod]]",
    ) -> None:
        uuid, _, pod_uid = key.partition("|")
        device = self.state.devices.get(uuid)
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
            return Holder(None, None, 1, allocated=not self._pods_known, quality="exact")
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

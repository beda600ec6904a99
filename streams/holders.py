"""Who holds each device: the join of a sample's devices with the pods of its time."""

from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.parameters import seconds
from streams.windows import HIGHEST_PERCENT, plausible_percent

if TYPE_CHECKING:
    from schemas.pods import Pod
    from schemas.telemetry import DeviceSample
    from schemas.wire import CapacityType, Measure, Quality
    from streams.windows import Reading

NOTHING_HELD_BYTES = 64 * 2**20
"""Below this no process can be computing, whatever utilisation the card shows."""

STANDBY = "gpuvigil/standby"
STARTING_GRACE = "gpuvigil/starting-grace"
WORKLOAD_CLASS = "gpuvigil/class"


class Holder(Struct, frozen=True):
    """One user of a device: a pod, or nobody known."""

    pod: "Pod | None"
    container: str | None
    sharers: int
    """How many pods hold the device."""
    allocated: bool
    """False where the pods are known and none holds the device."""
    quality: "Quality"
    capacity_type: "CapacityType | None" = None


WorkloadKey = tuple[str | None, str | None, str]
"""(namespace, kind, name); a device whose pods are not known is (None, None, uuid)."""


def workload_key(pod: "Pod | None", device_uuid: str) -> WorkloadKey:
    """The workload that a series belongs to; a pod without a controller is its own."""
    if pod is None:
        return (None, None, device_uuid)
    if pod.workload is None:
        return (pod.namespace, "Pod", pod.name)
    return (pod.namespace, pod.workload.kind, pod.workload.name)


def is_standby(pod: "Pod") -> bool:
    """Whether the pod is kept without load on purpose."""
    return pod.annotations.get(STANDBY, "").lower() == "true"


def is_notebook(pod: "Pod") -> bool:
    """Whether a person works in the pod, who may be thinking."""
    kind = pod.workload.kind if pod.workload else ""
    return kind == "Notebook" or pod.annotations.get(WORKLOAD_CLASS) == "notebook"


def starting_grace_seconds(pod: "Pod") -> float | None:
    """Seconds that the annotation allows; None where there is none or it is no duration."""
    text = pod.annotations.get(STARTING_GRACE)
    if text is None:
        return None
    try:
        grace = seconds(text)
    except ValueError:
        return None
    return grace if isinstance(grace, float) and 0 < grace <= 7 * 86400 else None


def holders_by_device(
    pods: "dict[str, Pod]", capacity: "CapacityType | None"
) -> dict[str, tuple[Holder, ...]]:
    """For each allocated device its holders, ordered by pod uid."""
    held: dict[str, dict[str, tuple[Pod, str | None]]] = {}
    for uid in sorted(pods):
        for allocation in pods[uid].allocations:
            users = held.setdefault(allocation.device_uuid, {})
            users[uid] = (pods[uid], allocation.container)
    return {
        uuid: tuple(
            Holder(
                pod,
                container,
                len(users),
                allocated=True,
                quality=pod.quality,
                capacity_type=capacity,
            )
            for pod, container in users.values()
        )
        for uuid, users in held.items()
    }


def device_reading(
    device: "DeviceSample", before: "DeviceSample | None", *, use_known: bool
) -> "Reading":
    """What a device itself says, for its only holder; implausible values are None.

    `before` is its previous sample: utilisation looks back, so the sample after a process has left
    still shows its work.
    """
    measure, use = _preferred(device) if use_known else (None, None)
    util = device.gpu_util_percent
    if util is not None and not 0 <= util <= HIGHEST_PERCENT:
        util = None
    if util is not None and util > 1 and _holds_nothing(device) and _holds_nothing(before):
        measure = use = util = None
    activity = device.dram_active_percent
    if activity is None or not 0 <= activity <= HIGHEST_PERCENT:
        activity = plausible_percent(device.memory_controller_percent)
    power = device.power_watts
    return (
        measure,
        use,
        util if use_known else None,
        activity,
        device.memory_used_bytes,
        power if power is not None and power >= 0 else None,
        _link(device),
    )


def pod_reading(device: "DeviceSample", pod_uid: str, *, use_known: bool) -> "Reading":
    """What a pod uses of a shared device, by its processes; unknown where none could be seen."""
    own = [process for process in device.processes if process.pod_uid == pod_uid]
    use: float | None = None
    memory: int | None = None
    if own or device.processes_complete:
        shares = [plausible_percent(process.sm_percent) for process in own]
        if use_known and None not in shares:
            use = min(100.0, sum(share for share in shares if share is not None))
        sizes = [process.memory_used_bytes for process in own]
        if None not in sizes:
            memory = sum(size for size in sizes if size is not None)
    return ("gpu_util" if use is not None else None, use, None, None, memory, None, None)


def _preferred(device: "DeviceSample") -> "tuple[Measure | None, float | None]":
    use = device.sm_active_percent
    if use is not None and 0 <= use <= HIGHEST_PERCENT:
        return "sm_active", use
    use = device.gr_engine_active_percent
    if use is not None and 0 <= use <= HIGHEST_PERCENT:
        return "gr_engine_active", use
    use = plausible_percent(device.gpu_util_percent)
    return ("gpu_util", use) if use is not None else (None, None)


def _holds_nothing(device: "DeviceSample | None") -> bool:
    """No process and no memory: high use on top of that is a fault of the counter, not work."""
    if device is None:
        return True
    used = device.memory_used_bytes
    return used is not None and used < NOTHING_HELD_BYTES and not device.processes


def _link(device: "DeviceSample") -> float | None:
    pcie, nvlink = device.pcie_bytes_per_second, device.nvlink_bytes_per_second
    if pcie is not None and pcie >= 0:
        return pcie + nvlink if nvlink is not None and nvlink >= 0 else pcie
    return nvlink if nvlink is not None and nvlink >= 0 else None

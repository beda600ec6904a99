"""Who holds each device: the join of a sample's devices with the pods of its time."""

from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.parameters import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.pods import DeviceAllocation, Pod
    from schemas.wire import CapacityType, Quality

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
    memory_limit_bytes: int | None = None
    """What its containers were given of the device's memory; None where one has no limit."""


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
    held: dict[str, dict[str, list[DeviceAllocation]]] = {}
    for uid in sorted(pods):
        for allocation in pods[uid].allocations:
            held.setdefault(allocation.device_uuid, {}).setdefault(uid, []).append(allocation)
    return {
        uuid: tuple(
            Holder(
                pods[uid],
                allocations[-1].container,
                len(users),
                allocated=True,
                quality=pods[uid].quality,
                capacity_type=capacity,
                memory_limit_bytes=_memory_limit(allocations),
            )
            for uid, allocations in users.items()
        )
        for uuid, users in held.items()
    }


def _memory_limit(allocations: "Sequence[DeviceAllocation]") -> int | None:
    """What a pod's containers have together; one without a limit has the whole device."""
    limits = [one.memory_limit_bytes for one in allocations]
    return None if None in limits else sum(limit for limit in limits if limit is not None)

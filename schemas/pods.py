"""Which pods hold which devices of a node, as events that a snapshot starts anew."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.wire import Count, EpochMs, Label, Message, NodeClock, PodVersion, Quality, Text, Wire

PodAction = Literal["snapshot", "upsert", "deleted"]


class WorkloadRef(Wire):
    """The controller that a pod belongs to in the end (not the ReplicaSet in between)."""

    kind: Text
    name: Text


class DeviceAllocation(Wire):
    """A device given to a container."""

    device_uuid: Text
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Declared share (MPS, HAMi, KAI, DRA); None where none was declared."""
    container: Text | None = None
    memory_limit_bytes: Count | None = None
    """Declared memory (HAMi, KAI, MPS); None where none was declared."""


class Pod(Wire):
    """A pod on this node with the devices that its containers hold."""

    namespace: Text
    name: Text
    uid: Text
    workload: WorkloadRef | None = None
    owner: Text | None = None
    """Who is told: the value of the configured owner label."""
    started_at_ms: EpochMs | None = None
    allocations: Annotated[tuple[DeviceAllocation, ...], Field(max_length=256)] = ()
    annotations: Annotated[dict[Text, Label], Field(max_length=64)] = {}  # noqa: RUF012 - pydantic copies it
    """Only those of the form `gpuvigil/...`."""
    quality: Quality = "exact"
    """How surely the allocation is known."""


class PodEvent(Message):
    """A change of a node's pods.  Key: `cluster/node`.

    `snapshot` replaces all pods of the node, `upsert` adds or replaces those listed, `deleted` ends
    those listed (their `allocations` may be empty).
    """

    type: Literal["pod_event"] = "pod_event"
    version: Literal[1] = 1
    cluster: Text
    node: Text
    observed_at_ms: EpochMs
    clock: NodeClock = "host"
    position: PodVersion
    action: PodAction
    pods: Annotated[tuple[Pod, ...], Field(max_length=1024)] = ()

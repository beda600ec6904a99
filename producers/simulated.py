"""A small cluster that exists only as messages: the same bytes for the same seed."""

from collections.abc import Iterator
from heapq import merge
from itertools import count, takewhile
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from uuid import UUID

from producers.scenarios import Script, seeded
from producers.simulated_cards import (
    A100,
    H100,
    L40S,
    MIG_INSTANCES,
    Card,
    CardModel,
    Device,
    MigInstance,
    Tenant,
)
from producers.simulated_workloads import EXPECTED, RUNS, PodRun
from schemas import pods, telemetry, wire
from schemas.hot import struct_of

if TYPE_CHECKING:
    from schemas.alerts import AlertKind
    from schemas.pods import DeviceAllocation, Pod, PodAction, PodEvent, WorkloadRef
    from schemas.telemetry import NodeTelemetry
    from schemas.wire import CapacityType, PodVersion
else:
    DeviceAllocation = struct_of(pods.DeviceAllocation)
    NodeTelemetry = struct_of(telemetry.NodeTelemetry)
    Pod = struct_of(pods.Pod)
    PodEvent = struct_of(pods.PodEvent)
    WorkloadRef = struct_of(pods.WorkloadRef)
    PodVersion = struct_of(wire.PodVersion)

SNAPSHOT_EVERY_SECONDS = 3600.0
DRIVER_AGE_MS = 86_400_000
CARDS = 8
"""On each node."""

CONTAINER = "main"


class NodePlan(NamedTuple):
    """What a node is made of."""

    model: CardModel
    capacity_type: "CapacityType"
    has_mig: bool = False
    """True: its last card is cut into MIG instances."""


NODES = (
    *(NodePlan(H100, "reserved") for _ in range(5)),
    NodePlan(A100, "on_demand"),
    NodePlan(L40S, "spot"),
    NodePlan(H100, "on_demand", has_mig=True),
)


class PodChange(NamedTuple):
    """A pod event to come.  The order of the fields is the order in which changes happen."""

    seconds: float
    node: int
    rank: int
    """At one moment pods end before others begin, and a snapshot shows the result."""
    action: "PodAction"
    runs: tuple[PodRun, ...] = ()


class SimulatedCluster:
    """8 nodes with 64 GPUs, MIG and shared cards among them, under loads good and bad.

    `messages` may be called again and starts anew each time.  Samples are instances of the hot
    path's structs, which have the attributes of the models.
    """

    EXPECTED: ClassVar[dict[str, "AlertKind | None"]] = EXPECTED

    def __init__(
        self,
        seed: int = 0,
        *,
        cluster: str = "demo",
        start_ms: int = 1_790_000_000_000,
        duration_seconds: float = 9000,
        interval_seconds: float = 5.0,
    ) -> None:
        if not 0 < interval_seconds <= SNAPSHOT_EVERY_SECONDS:
            raise ValueError(
                f"an interval of {interval_seconds} s can't be simulated; give one above 0 and up "
                f"to {SNAPSHOT_EVERY_SECONDS:.0f} s"
            )
        self.seed = seed
        self.cluster = cluster
        self.start_ms = start_ms
        self.duration_seconds = duration_seconds
        self.interval_seconds = interval_seconds

    def messages(self) -> Iterator["NodeTelemetry | PodEvent"]:
        """Pod events and scrapes in the order of `observed_at_ms`, up to the duration."""
        nodes = [SimulatedNode(self, index) for index in range(len(NODES))]
        changes = takewhile(lambda change: change.seconds < self.duration_seconds, pod_changes())
        upcoming = next(changes, None)
        for seconds, node in self._scrapes(nodes):
            while upcoming is not None and upcoming.seconds <= seconds:
                yield nodes[upcoming.node].apply(upcoming)
                upcoming = next(changes, None)
            yield node.scrape(seconds)
        while upcoming is not None:
            yield nodes[upcoming.node].apply(upcoming)
            upcoming = next(changes, None)

    def _scrapes(self, nodes: "list[SimulatedNode]") -> "Iterator[tuple[float, SimulatedNode]]":
        """When each node is scraped, in order."""
        by_phase = sorted(nodes, key=lambda node: node.phase_seconds)
        for tick in count():
            for node in by_phase:
                seconds = tick * self.interval_seconds + node.phase_seconds
                if seconds >= self.duration_seconds:
                    return
                yield seconds, node


class SimulatedNode:
    """A node's devices, pods and counters."""

    def __init__(self, plan: SimulatedCluster, index: int) -> None:
        self._plan = plan
        self._index = index
        self._name = f"node-{index}"
        rng = seeded(plan.seed, self._name)
        self.phase_seconds = rng.randint(1, 999) / 1000 * min(1.0, plan.interval_seconds)
        """Its scrapes come this much after those of a node without delay, below 1 s."""
        self._boot_id = str(UUID(int=rng.getrandbits(128), version=4))
        self._devices = _devices(plan.seed, self._name, NODES[index])
        self._running: dict[str, PodRun] = {}
        self._sequence = 0
        self._version = PodVersion(epoch=plan.start_ms, sequence=0)
        for run in RUNS:
            if run.node == index and run.begin_seconds == 0:
                self._start(run)

    def apply(self, change: PodChange) -> "PodEvent":
        """Let pods begin or end, and tell it."""
        now_ms = self._ms(change.seconds)
        told = change.runs
        for run in told:
            if change.action == "deleted":
                self._stop(run)
            else:
                self._start(run)
        if change.action == "snapshot":
            self._version = PodVersion(epoch=now_ms, sequence=0)
            told = tuple(self._running.values())
        else:
            last = self._version
            self._version = PodVersion(epoch=last.epoch, sequence=last.sequence + 1)
        return PodEvent(
            cluster=self._plan.cluster,
            node=self._name,
            observed_at_ms=now_ms,
            clock="data",
            position=self._version,
            action=change.action,
            pods=tuple(self._pod(run, held=change.action != "deleted") for run in told),
        )

    def scrape(self, seconds: float) -> "NodeTelemetry":
        """One message with all its devices."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        plan = self._plan
        return NodeTelemetry(
            cluster=plan.cluster,
            node=self._name,
            boot_id=self._boot_id,
            sequence=sequence,
            observed_at_ms=self._ms(seconds),
            interval_seconds=plan.interval_seconds,
            clock="data",
            pod_version=self._version,
            driver_loaded_at_ms=max(0, plan.start_ms - DRIVER_AGE_MS),
            capacity_type=NODES[self._index].capacity_type,
            devices=tuple([device.sample(seconds) for device in self._devices]),
        )

    def _ms(self, seconds: float) -> int:
        return self._plan.start_ms + round(seconds * 1000)

    def _start(self, run: PodRun) -> None:
        uid = self._uid(run)
        self._running[uid] = run
        pid = seeded(uid).randint(10_000, 4_000_000)
        script = Script(run.shape(seeded(self._plan.seed, run.stream)))
        for number, slot in enumerate(run.slots):
            tenant = Tenant(uid, CONTAINER, pid + number, run.begin_seconds, script)
            self._devices[slot].tenants[uid] = tenant

    def _stop(self, run: PodRun) -> None:
        uid = self._uid(run)
        del self._running[uid]
        for slot in run.slots:
            del self._devices[slot].tenants[uid]

    def _uid(self, run: PodRun) -> str:
        rng = seeded(self._plan.seed, "uid", run.workload.namespace, run.pod, run.begin_seconds)
        return str(UUID(int=rng.getrandbits(128), version=4))

    def _pod(self, run: PodRun, *, held: bool) -> "Pod":
        workload = run.workload
        slots = run.slots if held else ()
        return Pod(
            namespace=workload.namespace,
            name=run.pod,
            uid=self._uid(run),
            workload=WorkloadRef(kind=workload.kind, name=workload.name),
            owner=workload.owner,
            started_at_ms=self._ms(run.begin_seconds),
            allocations=tuple(
                DeviceAllocation(device_uuid=self._devices[slot].uuid, container=CONTAINER)
                for slot in slots
            ),
        )


def pod_changes() -> Iterator[PodChange]:
    """Every pod event of the cluster in order, without end: each hour has its snapshots."""
    changes = []
    for run in RUNS:
        if run.begin_seconds > 0:
            changes.append(PodChange(run.begin_seconds, run.node, 1, "upsert", (run,)))
        if run.end_seconds is not None:
            changes.append(PodChange(run.end_seconds, run.node, 0, "deleted", (run,)))
    changes.sort(key=_order)
    return merge(changes, _snapshots(), key=_order)


def _order(change: PodChange) -> tuple[float, int, int]:
    return change.seconds, change.node, change.rank


def _snapshots() -> Iterator[PodChange]:
    for hour in count():
        for node in range(len(NODES)):
            yield PodChange(hour * SNAPSHOT_EVERY_SECONDS, node, 2, "snapshot")


def _devices(seed: int, node: str, plan: NodePlan) -> list[Device]:
    """The devices of a node; the instances of a MIG card stand last, in its place."""
    rng = seeded(seed, node, "devices")
    whole = CARDS - 1 if plan.has_mig else CARDS
    devices: list[Device] = []
    for index in range(CARDS):
        uuid = f"GPU-{UUID(int=rng.getrandbits(128), version=4)}"
        if index < whole:
            devices.append(Card(plan.model, uuid, index, seeded(seed, uuid)))
            continue
        for number in range(MIG_INSTANCES):
            slice_uuid = f"MIG-{UUID(int=rng.getrandbits(128), version=4)}"
            own = seeded(seed, slice_uuid)
            devices.append(MigInstance(uuid, number, slice_uuid, index, own))
    return devices

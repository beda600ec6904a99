"""A small cluster that exists only as messages: the same bytes for the same seed."""

from collections.abc import Iterator
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
from schemas import hot, pods, wire
from schemas.hot import struct_of

if TYPE_CHECKING:
    from schemas.alerts import AlertKind
    from schemas.pods import DeviceAllocation, Pod, PodAction, PodEvent, WorkloadRef
    from schemas.telemetry import NodeTelemetry
    from schemas.wire import CapacityType, PodVersion
else:
    DeviceAllocation = struct_of(pods.DeviceAllocation)
    Pod = struct_of(pods.Pod)
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
        by_phase = sorted(nodes, key=lambda node: node.phase_seconds)
        changes = pod_changes(self.duration_seconds)
        upcoming = 0
        tick = 0.0
        while tick < self.duration_seconds:
            for node in by_phase:
                seconds = tick + node.phase_seconds
                while upcoming < len(changes) and changes[upcoming].seconds <= seconds:
                    change = changes[upcoming]
                    yield nodes[change.node].apply(change)
                    upcoming += 1
                yield node.scrape(seconds)
            tick += self.interval_seconds


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
        self._version: PodVersion | None = None

    def apply(self, change: PodChange) -> "PodEvent":
        """Let pods begin or end, and tell it."""
        now_ms = self._ms(change.seconds)
        if change.action == "deleted":
            for run in change.runs:
                self._stop(run)
        elif change.action == "upsert":
            for run in change.runs:
                self._start(run)
        if change.action == "snapshot" or self._version is None:
            if change.seconds == 0:
                self._start_first()
            self._version = PodVersion(epoch=now_ms, sequence=0)
            told = tuple(self._running.values())
        else:
            version = self._version
            self._version = PodVersion(epoch=version.epoch, sequence=version.sequence + 1)
            told = change.runs
        return hot.PodEvent(
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
        return hot.NodeTelemetry(
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

    def _start_first(self) -> None:
        for run in RUNS:
            if run.node == self._index and run.begin_seconds == 0:
                self._start(run)

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


def pod_changes(duration_seconds: float) -> list[PodChange]:
    """Every pod event of the cluster before the duration, in order."""
    changes = [
        PodChange(hour * SNAPSHOT_EVERY_SECONDS, node, 2, "snapshot")
        for node in range(len(NODES))
        for hour in range(int(duration_seconds / SNAPSHOT_EVERY_SECONDS) + 1)
    ]
    for run in RUNS:
        if run.begin_seconds > 0:
            changes.append(PodChange(run.begin_seconds, run.node, 1, "upsert", (run,)))
        if run.end_seconds is not None:
            changes.append(PodChange(run.end_seconds, run.node, 0, "deleted", (run,)))
    return sorted(
        (change for change in changes if change.seconds < duration_seconds),
        key=lambda change: change[:3],
    )


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

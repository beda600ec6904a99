"""Both stages over plain lists, with every freedom that a broker and its consumers have."""

from collections import Counter
from collections.abc import Iterable

from schemas.codec import encode
from schemas.parameters import DetectorParameters
from schemas.pods import DeviceAllocation, Pod, PodEvent, WorkloadRef
from schemas.telemetry import DeviceSample, NodeTelemetry
from schemas.topics import ALERTS, PODS, TELEMETRY, WINDOWS, node_key, partition_of
from schemas.wire import PodVersion
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from transport.contract import Record

PARTITIONS = 4
START_MS = 1_790_000_000_000
GIB = 2**30
QUICK = DetectorParameters.model_validate(
    {"under_use": {"open_after": "60s", "open_after_max": "90s", "starting_grace": "20s"}}
)

Sent = tuple[int, NodeTelemetry | PodEvent]
"""(append time in milliseconds, message)."""


def pods(node: str, workload: str, at_ms: int = START_MS) -> Sent:
    """A snapshot: one pod on the node's only device."""
    pod = Pod(
        namespace="team",
        name=f"{workload}-{node}",
        uid=f"uid-{node}",
        workload=WorkloadRef(kind="Job", name=workload),
        started_at_ms=at_ms - 3_600_000,
        allocations=(DeviceAllocation(device_uuid=f"GPU-{node}"),),
    )
    event = PodEvent(
        cluster="c",
        node=node,
        observed_at_ms=at_ms,
        position=PodVersion(epoch=1, sequence=0),
        action="snapshot",
        pods=(pod,),
    )
    return at_ms, event


def sample(node: str, sequence: int, use: float | None, *, skew_ms: int = 0) -> Sent:
    """A scrape each 5 s of a node with one device, on a clock that is off by `skew_ms`."""
    at_ms = START_MS + 1_000 + sequence * 5_000
    device = DeviceSample(
        uuid=f"GPU-{node}",
        model="NVIDIA H100",
        gpu_util_percent=use,
        sm_active_percent=use,
        memory_used_bytes=40 * GIB,
        memory_total_bytes=80 * GIB,
        power_watts=None if use is None else 70 + 5 * use,
        power_limit_watts=700.0,
    )
    message = NodeTelemetry(
        cluster="c",
        node=node,
        boot_id="b",
        sequence=sequence,
        observed_at_ms=at_ms + skew_ms,
        interval_seconds=5.0,
        pod_version=PodVersion(epoch=1, sequence=0),
        devices=(device,),
    )
    return at_ms, message


class Harness:
    """Topics as lists, stages that can be held back, starved of one topic, or replaced."""

    def __init__(self, sent: Iterable[Sent], parameters: DetectorParameters = QUICK) -> None:
        self.parameters = parameters
        self.topics: dict[tuple[str, int], list[Record]] = {}
        self.positions: Counter[tuple[str, int]] = Counter()
        self.now_ms = 0
        self.one = [StageOne(p, PARTITIONS, parameters) for p in range(PARTITIONS)]
        self.two = [StageTwo(p, PARTITIONS, parameters) for p in range(PARTITIONS)]
        for append_ms, message in sent:
            topic = TELEMETRY if isinstance(message, NodeTelemetry) else PODS
            key = node_key(message.cluster, message.node)
            self.append(topic, partition_of(key, PARTITIONS), key, encode(message), append_ms)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, at_ms: int
    ) -> None:
        log = self.topics.setdefault((topic, partition), [])
        log.append(Record(topic, partition, len(log), at_ms, key, value))
        self.now_ms = max(self.now_ms, at_ms)

    def read(self, topic: str, partition: int, most: int) -> list[Record]:
        at = self.positions[topic, partition]
        records = self.topics.get((topic, partition), [])[at : at + most]
        self.positions[topic, partition] += len(records)
        return records

    def feed(self, partition: int, topic: str, most: int = 1 << 30) -> bool:
        """Give a source partition some records of one topic; False at the end of it."""
        records = self.read(topic, partition, most)
        for out in self.one[partition].process(records):
            self.append(out.topic, out.partition, out.key, out.value, self.now_ms)
        return bool(records)

    def judge(self) -> None:
        for two in self.two:
            for out in two.process(self.read(WINDOWS, two.partition, 1 << 30)):
                self.append(out.topic, out.partition, out.key, out.value, self.now_ms)

    def finish(self) -> None:
        """All partitions are at their ends, and the broker's clock goes on for 20 minutes."""
        for partition, one in enumerate(self.one):
            self.feed(partition, PODS)
            self.feed(partition, TELEMETRY)
            for minutes in range(0, 21, 1):
                for out in one.tick(*[self.now_ms_at_end + minutes * 60_000] * 2):
                    self.append(out.topic, out.partition, out.key, out.value, self.now_ms)
        self.judge()

    @property
    def now_ms_at_end(self) -> int:
        """The newest append time of the sources."""
        logs = [log for (topic, _), log in self.topics.items() if topic in (TELEMETRY, PODS)]
        return max(log[-1].append_time_ms for log in logs if log)

    def restart(self) -> None:
        """Replace every stage by one that loads what the old one dumped."""
        for partition in range(PARTITIONS):
            old_one, old_two = self.one[partition], self.two[partition]
            one = StageOne(partition, PARTITIONS, self.parameters)
            one.load(old_one.dump())
            two = StageTwo(partition, PARTITIONS, self.parameters)
            two.load(old_two.dump())
            for topic, offset in old_one.resume_offsets().items():
                self.positions[topic, partition] = offset
            self.positions[WINDOWS, partition] = old_two.resume_offsets()[WINDOWS]
            self.one[partition], self.two[partition] = one, two

    def alerts(self) -> list[tuple[bytes | None, bytes | None]]:
        """All alert events, each subject's in their order."""
        return sorted(
            (
                (record.key, record.value)
                for (topic, _), log in self.topics.items()
                if topic == ALERTS
                for record in log
            ),
            key=lambda event: event[0] or b"",
        )


def ran(sent: Iterable[Sent], parameters: DetectorParameters = QUICK) -> Harness:
    """A plain run from beginning to end."""
    harness = Harness(sent, parameters)
    harness.finish()
    return harness

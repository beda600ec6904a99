"""`gpuvigil topics repartition`: other partitions, the same nodes, workloads and incidents."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer
from typer.testing import CliRunner, Result

from commands.errors import UsageError
from commands.topics import app
from producers.simulated import SimulatedCluster
from schemas import hot
from schemas.alerts import AlertEvent
from schemas.parameters import DetectorParameters
from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry
from schemas.topics import partition_of
from streams.checkpoints import Checkpoint, CheckpointStore
from streams.clock import ClockState
from streams.engine import clients
from streams.engine.app import GROUP
from streams.engine.operators import STAGES
from streams.engine.state_files import States, Stored, newest_version
from streams.engine.state_moves import StateWriter
from streams.engine.state_topic import StateTopic
from streams.node import NodeState
from streams.node_windows import Ended
from streams.repartition import moved
from streams.runner import InProcess
from streams.stage_one import PARTITION_KEY, PartitionState
from streams.stage_two import StageTwoState, WorkloadState
from streams.states import NewerStateError
from tests.commands.test_state import create_state_topics, harness_in_the_middle
from tests.kafka_topics import records
from tests.streams.harness import PARTITIONS
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka import KafkaTransport
from transport.kafka_admin import KafkaAdmin
from transport.layout import TopicLayout

SECONDS = 3300.0
STOP_AT_SECONDS = 2600.0
OLD, NEW = 4, 6

Message = NodeTelemetry | PodEvent


class Told(NamedTuple):
    """What matters of an event."""

    incident: str
    revision: int
    status: str
    workload: str | None
    opened_at: datetime


def told(event: AlertEvent) -> Told:
    subject = event.subject.workload
    return Told(event.incident_id, event.revision, event.status, subject, event.opened_at)


class StoppedError(Exception):
    """The run is stopped in the middle."""


def stopped(messages: Iterable[Message]) -> Iterator[Message]:
    begin_ms = None
    for message in messages:
        begin_ms = begin_ms or message.observed_at_ms
        if message.observed_at_ms - begin_ms > STOP_AT_SECONDS * 1000:
            raise StoppedError
        yield message


def cluster() -> Iterator[Message]:
    return iter(SimulatedCluster(duration_seconds=SECONDS).messages())


def run(
    messages: Iterable[Message], *, partitions: int, state_dir: Path | None = None
) -> list[Told]:
    events: list[AlertEvent] = []
    runner = InProcess(DetectorParameters(), partitions=partitions, state_dir=state_dir)
    runner.run(messages, on_alert=events.append)
    return [told(event) for event in events]


def checkpoint_in_the_middle(folder: Path) -> Checkpoint:
    with pytest.raises(StoppedError):
        run(stopped(cluster()), partitions=OLD, state_dir=folder)
    saved = CheckpointStore(folder, OLD).load()
    assert saved is not None
    return saved


def open_incidents(saved: Checkpoint) -> dict[str, int]:
    """Revision of each."""
    states = [
        msgspec.json.decode(value, type=WorkloadState)
        for held in saved.stage_two
        for key, value in held.items()
        if key != PARTITION_KEY and value is not None
    ]
    return {
        one.incident_id: one.revision
        for state in states
        for incidents in state.incidents.subjects.values()
        for one in incidents
        if one.resolved_at_ms is None
    }


Dumps = list[dict[bytes, bytes | None]]


def states(stage_one: Dumps, stage_two: Dumps) -> States:
    offsets = {"gpu.telemetry": 7, "gpu.windows": 7}
    return {
        (stage.name, number): {
            key: Stored(b"", newest_version(stage.name, key), offsets, value)
            for key, value in held.items()
            if value is not None
        }
        for stage, dumped in zip(STAGES, (stage_one, stage_two), strict=True)
        for number, held in enumerate(dumped)
    }


async def save(connection: Connection, saved: Checkpoint) -> None:
    """Put a checkpoint into Kafka, as workers would have written it."""
    await create_state_topics(connection, OLD)
    writer = StateWriter(connection, OLD, lambda _: None)
    await writer.write(states(saved.stage_one, saved.stage_two), replace=False)


async def load(connection: Connection) -> list[Dumps]:
    """The states of both stages, as workers load them."""
    dumped = []
    for stage in STAGES:
        topic = StateTopic(
            connection.topic(stage.state_topic), NEW,
            make_producer=partial(clients.state_producer, connection, stage.name),
            make_consumer=partial(clients.state_consumer, connection),
        )  # fmt: skip
        held = await topic.load(range(NEW))
        dumped.append([dict[bytes, bytes | None](held[number].states) for number in range(NEW)])
    return dumped


def repartition(connection: Connection, monkeypatch: pytest.MonkeyPatch, *given: str) -> Result:
    monkeypatch.setenv("GPUVIGIL_KAFKA__PREFIX", connection.prefix)
    arguments = ["repartition", *given, "--bootstrap", connection.bootstrap]
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.exception
    return result


@pytest.mark.slow
def test_open_incidents_go_on_in_other_partitions(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(cluster(), partitions=OLD)
    saved = checkpoint_in_the_middle(tmp_path / "old")
    still_open = open_incidents(saved)
    assert len(still_open) == 2

    old = Connection(bootstrap=kafka.bootstrap, prefix="four.")
    asyncio.run(save(old, saved))
    said = repartition(old, monkeypatch, "--partitions", str(NEW), "--to", "six.").stderr
    assert "with 2 open incidents from 4 partitions of 'four.' to 6 of 'six.'" in said

    new = Connection(bootstrap=kafka.bootstrap, prefix="six.")
    one, two = asyncio.run(load(new))
    for number, held in enumerate(one):
        assert {partition_of(key, NEW) for key in held if key != PARTITION_KEY} <= {number}
    CheckpointStore(tmp_path / "new", NEW).save(
        Checkpoint(NEW, saved.taken, saved.event_time_ms, one, two, tail=[])
    )
    rest = run(cluster(), partitions=NEW, state_dir=tmp_path / "new")

    after = [one for one in whole if one.revision > still_open.get(one.incident, 0)]
    assert [one for one in rest if one.incident in still_open] == [
        one for one in after if one.incident in still_open
    ]
    # What opens later has lost a few windows on the way, and the time of its opening is in its id.
    [expected] = [one for one in after if one.incident not in still_open]
    [late] = [one for one in rest if one.incident not in still_open]
    assert (late.workload, late.status, late.revision) == ("Job/hung-job", "firing", 1)
    delay = late.opened_at - expected.opened_at
    assert timedelta(0) <= delay <= timedelta(seconds=40)


def encoded(state: msgspec.Struct) -> bytes:
    return msgspec.json.encode(state)


def node(name: str, **fields: object) -> NodeState:
    return NodeState(cluster="c", node=name, **fields)  # type: ignore[arg-type]


def test_what_a_partition_knew_begins_anew_at_a_safe_time() -> None:
    old_nodes = [
        {
            PARTITION_KEY: encoded(PartitionState(marked_ms=marked_ms, now_ms=9, seen={"t": 5})),
            b"c/%d" % number: encoded(node(str(number), seen_ms=number)),
        }
        for number, marked_ms in enumerate((500_000, 300_000, 400_000))
    ]
    old_nodes[1][b"c/1"] = encoded(node("1", seen_ms=1, clock=ClockState(skews_ms=[3])))
    old_workloads = [
        {PARTITION_KEY: encoded(StageTwoState(marks={0: 9}, judged_ms=judged_ms, seen=5))}
        for judged_ms in (200_000, 250_000, 0)
    ]
    result = moved(old_nodes, old_workloads, 2)
    places = [{key for key in held if key != PARTITION_KEY} for held in result.nodes]
    assert places == [
        {key for key in (b"c/0", b"c/1", b"c/2") if partition_of(key, 2) == number}
        for number in (0, 1)
    ]
    for held in result.nodes:
        state = msgspec.json.decode(held[PARTITION_KEY], type=PartitionState)
        marks = {b"c/0": 500_000, b"c/1": 300_000, b"c/2": 400_000}
        mine = [key for key in held if key != PARTITION_KEY]
        assert state == PartitionState(
            marked_ms=min((marks[key] for key in mine), default=0),
            now_ms=max((int(key[2:]) for key in mine), default=0),
            host_clock=b"c/1" in mine,
        )
    for held in result.workloads:
        assert list(held) == [PARTITION_KEY]
        fresh = msgspec.json.decode(held[PARTITION_KEY], type=StageTwoState)
        assert fresh == StageTwoState(judged_ms=250_000)


def test_states_stay_as_they_are() -> None:
    harness = harness_in_the_middle()
    nodes, workloads = (
        [_live(one.dump()) for one in stage] for stage in (harness.one, harness.two)
    )
    result = moved(nodes, workloads, 7)
    for before, after in ((nodes, result.nodes), (workloads, result.workloads)):
        assert _flat(before) == _flat(after)
        assert len(_flat(after)) >= 4
    again = moved(result.nodes, result.workloads, PARTITIONS)
    for before, after in ((nodes, again.nodes), (workloads, again.workloads)):
        for held, held_again in zip(before, after, strict=True):
            assert held.keys() - {PARTITION_KEY} == held_again.keys() - {PARTITION_KEY}


def _live(dump: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in dump.items() if value is not None}


def _flat(partitions: list[dict[bytes, bytes]]) -> dict[bytes, bytes]:
    return {k: v for held in partitions for k, v in held.items() if k != PARTITION_KEY}


def test_a_device_without_a_pod_goes_with_its_node() -> None:
    known = node("n2")
    known.windows.uuids = ("GPU-2",)
    nodes = [{b"c/n1": encoded(node("n1")), b"c/n2": encoded(known)}]
    workloads = [
        {
            b"c//GPU-1": encoded(WorkloadState(live={"GPU-1|": "n1"})),
            b"c//GPU-2": encoded(WorkloadState()),
            b"c//GPU-3": encoded(WorkloadState()),
            b"c/team/Job/a": encoded(WorkloadState()),
        }
    ]
    result = moved(nodes, workloads, 48)
    placed = {k: n for n, held in enumerate(result.workloads) for k in held if k != PARTITION_KEY}
    assert placed == {
        b"c//GPU-1": partition_of(b"c/n1", 48),
        b"c//GPU-2": partition_of(b"c/n2", 48),
        b"c/team/Job/a": partition_of(b"c/team/Job/a", 48),
    }
    assert result.left == ["c//GPU-3"]


def test_a_series_whose_end_was_on_the_way_ends_again() -> None:
    still, gone, told_already = node("still"), node("gone", gone=True), node("told")
    still.windows.live["GPU-1|uid-1"] = ("team", "Job", "a")
    end = hot.SeriesEnd(node="told", device_uuid="GPU-4", pod_uid=None, reason="not allocated")
    told_already.windows.ended.append(Ended((None, None, "GPU-4"), end))
    nodes = [
        {f"c/{one.node}".encode(): encoded(one) for one in (still, gone, told_already)},
    ]
    live = {"GPU-1|uid-1": "still", "GPU-2|uid-2": "still", "GPU-3|uid-3": "gone"}
    workloads = [
        {
            b"c/team/Job/a": encoded(WorkloadState(live=live)),
            b"c//GPU-4": encoded(WorkloadState(live={"GPU-4|": "told"})),
            b"c//GPU-5": encoded(WorkloadState(live={"GPU-5|": "still"})),
        }
    ]
    [held] = moved(nodes, workloads, 1).nodes
    ends = [
        (one.end.node, one.end.device_uuid, one.end.reason, one.workload)
        for key, value in held.items()
        if key != PARTITION_KEY
        for one in msgspec.json.decode(value, type=NodeState).windows.ended
    ]
    assert sorted(ends, key=str) == [
        ("gone", "GPU-3", "node silent", ("team", "Job", "a")),
        ("still", "GPU-2", "pod deleted", ("team", "Job", "a")),
        ("still", "GPU-5", "not allocated", (None, None, "GPU-5")),
        ("told", "GPU-4", "not allocated", (None, None, "GPU-4")),
    ]


def test_a_newer_state_is_not_moved() -> None:
    with pytest.raises(NewerStateError, match="c/n has version 2"):
        moved([{b"c/n": encoded(node("n", version=2))}], [], 3)


@pytest.mark.slow
def test_what_can_not_be_moved_is_one_line(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Connection(bootstrap=kafka.bootstrap, prefix="moves.")
    to = partial(repartition, old, monkeypatch, "--partitions", "2", "--to")
    with pytest.raises(UsageError, match=r"'moves\.' is the prefix that the topics have now"):
        to("moves.")
    with pytest.raises(UsageError, match=r"no topic 'moves\.gpu\.state"):
        to("moved.")
    asyncio.run(create_state_topics(old, PARTITIONS))
    with pytest.raises(UsageError, match="hold no states"):
        to("moved.")
    asyncio.run(filled(old))
    asyncio.run(create_topic(kafka.bootstrap, "moved-a.gpu.telemetry", 3))
    with pytest.raises(UsageError, match=r"moved-a\.gpu\.telemetry: partitions is 3, should be 2"):
        to("moved-a.")
    assert "6 nodes and 4 workloads" in to("moved-b.").stderr
    with pytest.raises(UsageError, match="hold 14 states"):
        to("moved-b.")
    asyncio.run(written(kafka.bootstrap, "moved-c.gpu.windows"))
    with pytest.raises(UsageError, match=r"moved-c\.gpu\.windows was written to before"):
        to("moved-c.")
    with pytest.raises(UsageError, match=r"moves\.gpuvigil is .* stop the workers"):
        asyncio.run(with_a_member(old, partial(to, "moved-d.")))
    found = asyncio.run(records(kafka.bootstrap, "moved-b.gpu.state.node", partitions=2))
    assert all(found.values())


async def filled(connection: Connection) -> None:
    harness = harness_in_the_middle()
    dumps = [[one.dump() for one in harness.one], [two.dump() for two in harness.two]]
    await StateWriter(connection, PARTITIONS, lambda _: None).write(states(*dumps), replace=False)


async def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}
    async with KafkaAdmin(Connection(bootstrap=bootstrap)) as admin:
        await admin.create([TopicLayout(topic, partitions, 1, config)])


async def written(bootstrap: str, topic: str) -> None:
    await create_topic(bootstrap, topic, 2)
    async with KafkaTransport(Connection(bootstrap=bootstrap)) as transport:
        await transport.publish(topic, 1, b"1", b"{}")


async def with_a_member(connection: Connection, action: Callable[[], object]) -> None:
    member = AIOKafkaConsumer(
        connection.topic(STAGES[0].state_topic),
        bootstrap_servers=connection.bootstrap,
        group_id=connection.prefix + GROUP,
    )
    await member.start()
    try:
        await asyncio.to_thread(action)
    finally:
        await member.stop()

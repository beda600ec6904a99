"""`gpuvigil state` on a real Kafka: out of the topics, into a file, and back."""

import asyncio
import gc
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import ProducerFenced
from typer.testing import CliRunner, Result

from commands.errors import UsageError
from commands.state import app
from streams.engine import clients
from streams.engine.app import GROUP
from streams.engine.operators import BY_NODE, BY_WORKLOAD, STAGES, Operator, Stage
from streams.engine.state_files import StateFileError, read_file
from streams.engine.state_topic import Saving, StateTopic
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from tests.kafka_topics import records
from tests.streams.harness import PARTITIONS, QUICK, Harness
from tests.streams.test_same_result import world
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

Edit = Callable[[list[dict[str, Any]]], None]


def harness_in_the_middle() -> Harness:
    """Alerts are open, windows are in progress."""
    harness = Harness(world())
    for partition in range(PARTITIONS):
        for topic in ("pod.events", "gpu.telemetry"):
            harness.feed(partition, topic, most=60)
    harness.judge()
    return harness


def operators(harness: Harness) -> list[tuple[Stage, Operator]]:
    one: list[tuple[Stage, Operator]] = [(BY_NODE, o) for o in harness.one]
    two: list[tuple[Stage, Operator]] = [(BY_WORKLOAD, o) for o in harness.two]
    return one + two


def state_topic(connection: Connection, stage: Stage) -> StateTopic:
    return StateTopic(
        connection.topic(stage.state_topic),
        PARTITIONS,
        make_producer=partial(clients.state_producer, connection, stage.name),
        make_consumer=partial(clients.state_consumer, connection),
    )


async def saved(
    connection: Connection, harness: Harness, *, end: bytes | None = None
) -> list[StateTopic]:
    """What workers write, who do not let go of their partitions; `end` is a key that ends."""
    topics = {stage.name: state_topic(connection, stage) for stage in STAGES}
    for stage, operator in operators(harness):
        topic, number = topics[stage.name], operator.partition
        await topic.claim(number)
        saving = Saving(stage.name, number, PARTITIONS, operator.resume_offsets())
        dump = operator.dump()
        await topic.save(saving, {k: (operator.state_version(k), v) for k, v in dump.items()})
        if end in dump:
            await topic.save(saving, {end: (1, None)})
    return list(topics.values())


async def released(topics: list[StateTopic]) -> None:
    for topic in topics:
        for number in topic.claimed:
            await topic.release(number)


async def installation(kafka: Broker, prefix: str, *, partitions: int = PARTITIONS) -> Connection:
    connection = Connection(bootstrap=kafka.bootstrap, prefix=prefix)
    await create_state_topics(connection, partitions)
    return connection


async def create_state_topics(connection: Connection, partitions: int) -> None:
    """Make them, and wait until the broker has heard of them."""
    names = [connection.topic(stage.state_topic) for stage in STAGES]
    layouts = wanted_layouts(connection.prefix, partitions, 1)
    async with KafkaAdmin(connection) as admin:
        await admin.create(one for one in layouts if one.name in names)


async def filled(kafka: Broker, prefix: str) -> Connection:
    connection = await installation(kafka, prefix)
    await released(await saved(connection, harness_in_the_middle(), end=b"c/n5"))
    return connection


def state(
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    given: bytes | None = None,
) -> Result:
    monkeypatch.setenv("GPUVIGIL_KAFKA__PREFIX", connection.prefix)
    result = CliRunner().invoke(app, [*arguments, "--bootstrap", connection.bootstrap], input=given)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.exception
    return result


def content(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.slow
def test_out_and_back_is_the_same(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = asyncio.run(filled(kafka, "state-old."))
    new = asyncio.run(installation(kafka, "state-new."))
    first, second = tmp_path / "first", tmp_path / "second"
    told = state(old, monkeypatch, "export", str(first)).stderr
    assert "read state-old.gpu.state.node: 9 states" in told
    state(new, monkeypatch, "import", str(first))
    state(new, monkeypatch, "export", str(second))

    header, *lines = content(first)
    assert (header["prefix"], header["partitions"]) == ("state-old.", PARTITIONS)
    keys = [line["key"] for line in lines if line["stage"] == "node"]
    assert sorted(set(keys)) == ["c/n0", "c/n1", "c/n2", "c/n3", "c/n4", "partition"]
    assert len(lines) == header["records"] == keys.count("partition") * 2 + 5 + 4
    assert any(line["state"].get("incidents", {}).get("subjects") for line in lines)
    assert content(second)[1:] == lines
    assert not (tmp_path / "first.new").exists()

    piped = state(old, monkeypatch, "export", "-").stdout_bytes
    assert piped == first.read_bytes()
    state(new, monkeypatch, "import", "-", "--replace", given=piped)
    state(new, monkeypatch, "export", str(second))
    assert content(second)[1:] == lines


def test_a_successor_goes_on_where_the_states_were(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_in_the_middle()
    old = asyncio.run(installation(kafka, "state-on-old."))
    asyncio.run(_save_and_release(old, harness))
    new = asyncio.run(installation(kafka, "state-on-new."))
    state(old, monkeypatch, "export", str(tmp_path / "f"))
    state(new, monkeypatch, "import", str(tmp_path / "f"))
    loaded = asyncio.run(_loaded(new))
    for stage, before in operators(harness):
        made = StageOne if stage is BY_NODE else StageTwo
        after = made(before.partition, PARTITIONS, QUICK)
        after.load(loaded[stage.name, before.partition])
        assert after.resume_offsets() == before.resume_offsets()
        assert after.dump() == before.dump()
    positions = [before.resume_offsets()["gpu.telemetry"] for before in harness.one]
    assert any(positions), "else nothing was read before"


async def _save_and_release(connection: Connection, harness: Harness) -> None:
    await released(await saved(connection, harness))


async def _loaded(connection: Connection) -> dict[tuple[str, int], dict[bytes, bytes]]:
    found: dict[tuple[str, int], dict[bytes, bytes]] = {}
    for stage in STAGES:
        topic = state_topic(connection, stage)
        loads = await topic.load(range(PARTITIONS))
        found |= {(stage.name, number): dict(held.states) for number, held in loads.items()}
    return found


def test_an_import_replaces_only_when_told(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = asyncio.run(filled(kafka, "state-full."))
    file = tmp_path / "f"
    state(connection, monkeypatch, "export", str(file))
    whole = content(file)
    node = next(line for line in whole[1:] if line["key"] == "c/n2")
    fewer = [line for line in whole[1:] if line is not node]
    write(file, [whole[0] | {"records": len(fewer)}, *fewer])
    before = asyncio.run(records(kafka.bootstrap, "state-full.gpu.state.node"))
    with pytest.raises(UsageError, match="hold 17 states; with --replace they end"):
        state(connection, monkeypatch, "import", str(file))
    assert asyncio.run(records(kafka.bootstrap, "state-full.gpu.state.node")) == before
    state(connection, monkeypatch, "import", str(file), "--replace")
    after = asyncio.run(records(kafka.bootstrap, "state-full.gpu.state.node"))
    [last] = [one for one in after[node["source_partition"]] if one.key == b"c/n2"][-1:]
    assert last.value is None, "a key that is not in the file ends by a tombstone"
    state(connection, monkeypatch, "export", str(tmp_path / "g"))
    assert content(tmp_path / "g")[1:] == fewer


def test_a_former_owner_cannot_write_behind_an_import(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard: list[str] = []

    async def around(file: Path) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unheard.append(context["message"])
        )
        harness = harness_in_the_middle()
        connection = await installation(kafka, "state-zombie.")
        zombies = await saved(connection, harness)
        try:
            await asyncio.to_thread(state, connection, monkeypatch, "export", str(file))
            again = ("import", str(file), "--replace")
            await asyncio.to_thread(state, connection, monkeypatch, *again)
            for zombie, stage in zip(zombies, STAGES, strict=True):
                for number in range(PARTITIONS):
                    with pytest.raises(ProducerFenced):
                        await zombie.save(
                            Saving(stage.name, number, PARTITIONS, {}), {b"c/z": (1, b"{}")}
                        )
        finally:
            await released(zombies)
        del zombies
        gc.collect()  # where a failure that nobody has taken note of is reported

    asyncio.run(around(tmp_path / "f"))
    assert unheard == []


def test_an_import_waits_for_no_worker(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def around(file: Path) -> None:
        connection = await filled(kafka, "state-busy.")
        member = AIOKafkaConsumer(
            connection.topic(BY_NODE.state_topic),
            bootstrap_servers=kafka.bootstrap,
            group_id=connection.prefix + GROUP,
        )
        await asyncio.to_thread(state, connection, monkeypatch, "export", str(file))
        again = ("import", str(file), "--replace")
        await member.start()
        try:
            with pytest.raises(UsageError, match=r"state-busy\.gpuvigil is .* stop the workers"):
                await asyncio.to_thread(state, connection, monkeypatch, *again)
        finally:
            await member.stop()
        await asyncio.to_thread(state, connection, monkeypatch, *again)

    asyncio.run(around(tmp_path / "f"))


def test_another_number_of_partitions_is_refused(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = asyncio.run(filled(kafka, "state-four."))
    new = asyncio.run(installation(kafka, "state-three.", partitions=3))
    state(old, monkeypatch, "export", str(tmp_path / "f"))
    with pytest.raises(UsageError, match=r"4 partitions and the state topics have 3.*repartition"):
        state(new, monkeypatch, "import", str(tmp_path / "f"))


def write(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


RECORD = {
    "type": "state_record", "version": 1, "stage": "node", "source_partition": 1, "key": "c/n",
    "operator": "node", "operator_version": 1, "partitions": 4, "next_offsets": {},
    "state": {"cluster": "c", "node": "n", "version": 1},
}  # fmt: skip
HEADER = {
    "type": "state_file", "version": 1, "prefix": "", "partitions": 4, "release": "0.1.0",
    "records": 2,
}  # fmt: skip
OTHER = RECORD | {"key": "c/o"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no record": (RECORD | {"type": "demand"}, "is no state record: the type is 'demand'"),
    "newer record": (RECORD | {"version": 2}, "version 2 is newer than 1"),
    "newer operator": (RECORD | {"operator_version": 2}, "a state of version 2, this release"),
    "newer state": (RECORD | {"state": RECORD["state"] | {"version": 2}}, "has version 2"),  # type: ignore[operator]
    "no state": (RECORD | {"state": {"node": 1}}, "holds no state of this release"),
    "other stage": (RECORD | {"stage": "leak"}, "of the stage 'leak'"),
    "partition outside": (RECORD | {"source_partition": 4}, "is of partition 4"),
    "other partitions": (RECORD | {"partitions": 8}, "written with 8 partitions, not 4"),
    "twice": (OTHER, "has the key of line 2 again"),
    "negative offset": (RECORD | {"next_offsets": {"gpu.telemetry": -1}}, "next_offsets"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_is_unusable_is_named(name: str, tmp_path: Path) -> None:
    line, expected = BAD[name]
    write(tmp_path / "f", [HEADER, OTHER, line])
    with pytest.raises(StateFileError) as caught:
        read_file((tmp_path / "f").read_bytes().splitlines(), "f")
    assert str(caught.value).startswith("f: line 3 ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_good_file_is_read() -> None:
    ended = RECORD | {"key": "c/o", "tombstone": True, "state": None}
    lines = [json.dumps(line).encode() for line in (HEADER, RECORD, ended)]
    header, states = read_file(lines, "f")
    assert header.records == 2
    assert list(states) == [("node", 1)]
    assert list(states["node", 1]) == [b"c/n"]
    with pytest.raises(StateFileError, match="has 1 records and its header says 2"):
        read_file(lines[:2], "f")
    for header_line in (b"", b"{}", b'{"type":"state_file","version":2}', lines[1]):
        with pytest.raises(StateFileError, match="f: line 1 is no header"):
            read_file([header_line, *lines[1:]], "f")
    with pytest.raises(StateFileError, match="f: line 1 is no header"):
        read_file([], "f")


def test_a_bad_file_writes_nothing(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = asyncio.run(installation(kafka, "state-bad."))
    write(tmp_path / "f", [HEADER, RECORD, OTHER | {"operator_version": 9}])
    with pytest.raises(UsageError, match="line 3 holds a state of version 9"):
        state(connection, monkeypatch, "import", str(tmp_path / "f"))
    found = asyncio.run(records(kafka.bootstrap, "state-bad.gpu.state.node"))
    assert not any(found.values())


@pytest.mark.parametrize("command", ["export", "import"])
def test_nobody_there_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f"
    write(file, [HEADER, RECORD, OTHER])
    before = file.read_bytes()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"no Kafka at {server}") as caught:
            state(Connection(bootstrap=server), monkeypatch, command, str(file))
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before


def test_a_file_that_is_not_there_is_one_line(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = asyncio.run(installation(kafka, "state-no-file."))
    missing = tmp_path / "missing" / "f"
    with pytest.raises(UsageError, match=f"cannot read {missing}: No such file"):
        state(connection, monkeypatch, "import", str(missing))
    with pytest.raises(UsageError, match=f"cannot write {missing}: No such file"):
        state(connection, monkeypatch, "export", str(missing))

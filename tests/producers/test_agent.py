"""The agent from a simulated cluster to a real broker."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from commands import contact
from commands.agent import agent
from commands.errors import UsageError
from producers.agent import Agent, with_boot
from producers.buffer import Buffer
from producers.kafka_client import kafka_producer
from producers.pacing import Message, Stop
from producers.publisher import Publisher
from producers.simulated import SimulatedCluster
from producers.source_topics import SourceTopics, newest_observed_ms, source_topics
from schemas.codec import Decoder, encode
from schemas.hot import NodeTelemetry
from schemas.topics import PODS, TELEMETRY, node_key, partition_of
from tests.kafka_topics import create, records
from transport.broker import Broker
from transport.contract import TransportError, UnknownPartitionError

NOBODY = "localhost:1"
"""Nothing listens there."""


def published(prefix: str, kafka: Broker, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:  # noqa: ANN401
    """The command as the command line calls it: five minutes of a simulated cluster."""
    monkeypatch.setenv("GPUVIGIL_KAFKA__PREFIX", prefix)
    given: dict[str, Any] = {"speed": 0, "duration": "5m", "cluster": "c1"} | options
    agent(simulated=True, bootstrap=kafka.bootstrap, **given)


async def telemetry(kafka: Broker, topic: str) -> list[Any]:
    """All scrapes, decoded against their keys."""
    decoder = Decoder(NodeTelemetry, TELEMETRY)
    found = await records(kafka.bootstrap, topic)
    return [
        decoder.decode(record.value, partition=number, offset=record.offset, key=record.key)
        for number, part in found.items()
        for record in part
    ]


def sequences(scrapes: list[Any]) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for scrape in scrapes:
        found[scrape.node, scrape.boot_id].append(scrape.sequence)
    return dict(found)


def test_a_simulated_cluster_arrives_whole_and_a_second_run_follows_the_first(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "twice-"
    asyncio.run(create(kafka.bootstrap, prefix + TELEMETRY, prefix + PODS))
    published(prefix, kafka, monkeypatch)
    first = asyncio.run(telemetry(kafka, prefix + TELEMETRY))
    assert len(first) == 8 * 60
    assert all(counted == list(range(60)) for counted in sequences(first).values())
    published(prefix, kafka, monkeypatch)
    both = asyncio.run(telemetry(kafka, prefix + TELEMETRY))
    assert len(sequences(both)) == 16
    newest = max(scrape.observed_at_ms for scrape in first)
    assert sum(scrape.observed_at_ms > newest for scrape in both) == 8 * 60
    pods = asyncio.run(records(kafka.bootstrap, prefix + PODS))
    for number, part in pods.items():
        assert {partition_of(record.key, 4) for record in part} <= {number}
    assert sum(len(part) for part in pods.values()) >= 2 * 8


def test_the_same_start_gives_the_same_bytes(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is repeated on purpose is known as a repetition."""
    prefix = "same-"
    asyncio.run(create(kafka.bootstrap, prefix + TELEMETRY, prefix + PODS))
    for _ in range(2):
        published(prefix, kafka, monkeypatch, start="2026-09-01T06:00:00Z", duration="1m")
    found = asyncio.run(records(kafka.bootstrap, prefix + TELEMETRY))
    values = [record.value for part in found.values() for record in part]
    assert len(values) == 2 * len(set(values)) == 2 * 8 * 12


async def test_topics_that_are_missing_or_differ_are_told_and_never_made(kafka: Broker) -> None:
    options = {"bootstrap_servers": kafka.bootstrap}
    await create(kafka.bootstrap, "four", partitions=4)
    await create(kafka.bootstrap, "three", partitions=3)
    with pytest.raises(TransportError, match="four has 4, three has 3"):
        await source_topics(options, "four", "three")
    for _ in range(2):
        with pytest.raises(UnknownPartitionError, match="absent; run `gpuvigil topics create`"):
            await source_topics(options, "four", "absent")
    empty = await source_topics(options, "four", "four")
    assert empty == SourceTopics("four", "four", 4)
    assert await newest_observed_ms(options, empty) is None


async def test_unreadable_records_do_not_keep_an_agent_from_its_start(kafka: Broker) -> None:
    options = {"bootstrap_servers": kafka.bootstrap}
    await create(kafka.bootstrap, "odd")
    producer = kafka_producer(options)
    await producer.start()
    (scrape, *_) = (m for m in SimulatedCluster().messages() if m.type == "node_telemetry")
    key = node_key(scrape.cluster, scrape.node)
    await producer.send_and_wait("odd", encode(scrape), key=key, partition=1)
    await producer.send_and_wait("odd", b"{", key=key, partition=1)
    await producer.send_and_wait("odd", b"no JSON", partition=2)
    await producer.stop()
    newest = await newest_observed_ms(options, SourceTopics("odd", "odd", 4))
    assert newest == scrape.observed_at_ms


def scrapes(count: int, every_seconds: float, taken: list[float]) -> Iterator[Message]:
    for number, message in enumerate(SimulatedCluster().messages()):
        if number == count:
            return
        time.sleep(every_seconds)
        taken.append(time.monotonic())
        yield message


async def test_sampling_keeps_its_pace_while_kafka_is_away() -> None:
    taken: list[float] = []
    publisher = Publisher(Buffer(), lambda: kafka_producer({"bootstrap_servers": NOBODY}), print)
    running = Agent(scrapes(60, 0.01, taken), publisher, SourceTopics("t", "p", 4), Stop())
    assert await running.run(flush_seconds=0.2) == 60
    assert len(taken) == 60
    assert max(after - before for before, after in itertools.pairwise(taken)) < 0.5


async def test_a_patient_source_waits_for_room_and_loses_nothing(kafka: Broker) -> None:
    await create(kafka.bootstrap, "patient", "patient-pods")
    small = Buffer(200_000)
    publisher = Publisher(
        small, lambda: kafka_producer({"bootstrap_servers": kafka.bootstrap}), print
    )
    messages = SimulatedCluster(duration_seconds=120).messages()
    to = SourceTopics("patient", "patient-pods", 4)
    assert await Agent(messages, publisher, to, Stop(), patient=True).run() == 0
    assert small.dropped == 0
    assert len(await telemetry(kafka, "patient")) == 8 * 24


def test_another_boot_changes_the_boot_id_alone() -> None:
    plain = list(SimulatedCluster(duration_seconds=10).messages())
    for before, after in zip(plain, with_boot(plain, "7"), strict=True):
        if before.type == "pod_event" or after.type == "pod_event":
            assert after is before
        else:
            assert after.boot_id == f"{before.boot_id}-7"
            assert encode(after) == encode(before).replace(
                before.boot_id.encode(), after.boot_id.encode(), 1
            )


def test_without_a_broker_it_gives_up_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contact, "GIVE_UP_SECONDS", 0.3)
    monkeypatch.setattr(contact, "RETRY_SECONDS", 0.1)
    with pytest.raises(typer.Exit) as ended:
        agent(simulated=True, bootstrap=NOBODY)
    assert ended.value.exit_code == 1
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert lines[-1].startswith("no Kafka at localhost:1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "--simulated"),
        ({"simulated": True, "start": "tomorrow"}, "--start"),
        ({"simulated": True, "start": "-5"}, "--start"),
        ({"simulated": True, "duration": "long"}, "--duration"),
        ({"simulated": True, "bootstrap": "nowhere"}, "host:port"),
    ],
)
def test_what_the_user_can_mend_is_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        agent(**options)

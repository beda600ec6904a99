"""The publisher on a real broker, and without one."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from producers.buffer import DEFAULT_BYTES, OVERHEAD_BYTES, Buffer, Outgoing
from producers.kafka_client import kafka_producer
from producers.publisher import Publisher
from tests.kafka_topics import create, records
from transport.broker import Broker

NOBODY = "localhost:1"
"""Nothing listens there."""


def outgoing(topic: str, number: int, size: int = 1000) -> Outgoing:
    """The number stands at the front; eight keys over four partitions."""
    value = b"%08d" % number + Random(number).randbytes(size)  # noqa: S311 - hard to compress
    return Outgoing(topic, number % 4, b"node-%d" % (number % 8), value)


@asynccontextmanager
async def publishing(
    bootstrap: str, said: list[str], *, max_bytes: int = DEFAULT_BYTES, stall_seconds: float = 60
) -> AsyncIterator[Publisher]:
    buffer = Buffer(max_bytes)
    options = {"bootstrap_servers": bootstrap}
    publisher = Publisher(
        buffer, lambda: kafka_producer(options), said.append, stall_seconds=stall_seconds
    )
    publisher.start()
    try:
        yield publisher
    finally:
        await publisher.close(0)


def numbers(found: dict[int, list[Any]]) -> list[list[int]]:
    return [[int(record.value[:8]) for record in found[partition]] for partition in sorted(found)]


def expected(count: int) -> list[list[int]]:
    return [list(range(partition, count, 4)) for partition in range(4)]


async def test_messages_arrive_in_order_with_their_keys(kafka: Broker) -> None:
    await create(kafka.bootstrap, "order")
    said: list[str] = []

    def sample(publisher: Publisher) -> None:
        for number in range(2000):
            publisher.put(outgoing("order", number))

    async with publishing(kafka.bootstrap, said) as publisher:
        await asyncio.to_thread(sample, publisher)
        assert await publisher.close(30) == 0
        assert publisher.counters == {"sent": 2000}
    found = await records(kafka.bootstrap, "order")
    assert numbers(found) == expected(2000)
    assert {record.key for record in found[1]} == {b"node-1", b"node-5"}
    assert said == []


@pytest.mark.slow
async def test_an_outage_loses_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    """Killed with messages in flight, away for seconds while more come, back on the same data."""
    said: list[str] = []
    with Broker(tmp_path / "broker") as broker:
        await create(broker.bootstrap, "outage")
        async with publishing(broker.bootstrap, said) as publisher:
            await _through_an_outage(broker, publisher)
            assert publisher.buffer.dropped == 0
        found = numbers(await records(broker.bootstrap, "outage"))
    assert [list(dict.fromkeys(part)) for part in found] == expected(3000)


async def _through_an_outage(broker: Broker, publisher: Publisher) -> None:
    for number in range(3000):
        publisher.put(outgoing("outage", number))
        if number == 1000:
            await asyncio.sleep(0.05)
            broker.kill(1)
        if number == 2000:
            await asyncio.sleep(4)
            await asyncio.to_thread(broker.start_node, 1)
        if number % 100 == 0:
            await asyncio.sleep(0.01)
    assert await publisher.close(60) == 0


@pytest.mark.slow
async def test_a_silent_producer_is_replaced_and_the_order_holds(tmp_path: Path) -> None:
    """Without an answer for so long everything unacknowledged goes by a fresh producer."""
    said: list[str] = []
    with Broker(tmp_path / "broker") as broker:
        await create(broker.bootstrap, "outage")
        async with publishing(broker.bootstrap, said, stall_seconds=2) as publisher:
            await _through_an_outage(broker, publisher)
            assert publisher.counters["replaced"] >= 1
            assert publisher.counters["sent"] == 3000
        found = numbers(await records(broker.bootstrap, "outage"))
    firsts = [list(dict.fromkeys(part)) for part in found]
    assert firsts == expected(3000)
    assert any("trying again" in line for line in said)
    assert "Kafka takes messages again" in said[-1]


async def test_without_kafka_the_oldest_are_dropped_and_nobody_waits() -> None:
    said: list[str] = []
    room = OVERHEAD_BYTES + 6 + 1008
    async with publishing(NOBODY, said, max_bytes=100 * room) as publisher:
        began = time.monotonic()
        for number in range(1000):
            publisher.put(outgoing("t", number))
        assert time.monotonic() - began < 1
        await asyncio.sleep(0.5)
        oldest = publisher.buffer.first()
        assert oldest is not None
        assert int(oldest.value[:8]) == 900
        assert await publisher.close(0.1) == 100
        assert publisher.buffer.dropped == 900
    assert any("900 messages dropped, the oldest first" in line for line in said)
    assert any("cannot send to Kafka" in line for line in said)
    assert len(said) == 2


class Watched(AIOKafkaProducer):  # type: ignore[misc] # aiokafka has no types
    """A real producer that keeps a diary of what was sent and acknowledged."""

    diary: list[tuple[str, str, bytes]]

    async def send(self, topic: str, *arguments: Any, key: bytes, **named: Any) -> Any:  # noqa: ANN401
        self.diary.append(("sent", topic, key))
        answer = await super().send(topic, *arguments, key=key, **named)
        answer.add_done_callback(lambda _: self.diary.append(("acknowledged", topic, key)))
        return answer


async def test_a_scrape_follows_the_acknowledged_pod_event_of_its_node(kafka: Broker) -> None:
    await create(kafka.bootstrap, "pods", "scrapes")
    diary: list[tuple[str, str, bytes]] = []

    def make() -> AIOKafkaProducer:
        producer = Watched(
            bootstrap_servers=kafka.bootstrap, acks="all", enable_idempotence=True, linger_ms=20
        )
        producer.diary = diary
        return producer

    publisher = Publisher(Buffer(), make, print)
    publisher.start()
    for number in range(80):
        publisher.put(outgoing("pods" if number % 24 < 8 else "scrapes", number))
    assert await publisher.close(30) == 0
    flying: set[bytes] = set()
    for what, topic, key in diary:
        if topic == "pods":
            (flying.add if what == "sent" else flying.discard)(key)
        elif what == "sent":
            assert key not in flying
    assert len(diary) == 160


@pytest.mark.parametrize("size", [200_000, 9 * 2**20])
async def test_what_is_too_large_is_given_up_and_the_rest_arrives(kafka: Broker, size: int) -> None:
    """Refused by the broker for the topic's limit, or by the client for its own."""
    topic = f"limit-{size}"
    await create(kafka.bootstrap, topic, config={"max.message.bytes": "100000"})
    said: list[str] = []
    async with publishing(kafka.bootstrap, said) as publisher:
        for number in range(40):
            publisher.put(outgoing(topic, number, size if number == 5 else 1000))
        assert await publisher.close(30) == 0
        assert publisher.counters["too_large"] == 1
        assert publisher.counters["sent"] == 39
    found = numbers(await records(kafka.bootstrap, topic))
    assert sorted({n for part in found for n in part}) == [n for n in range(40) if n != 5]
    assert [line for line in said if "raise max.message.bytes" in line]

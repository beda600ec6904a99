"""The transport on a real Kafka: the contract, and what only it can meet."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.kafka_topics import create, widen
from tests.transport.contract_suite import OTHER, PARTITIONS, TOPIC, TransportContract
from transport.broker import Broker
from transport.connection import Connection
from transport.contract import (
    MessageTooLargeError,
    OffsetOutOfRangeError,
    TransportError,
    UnknownPartitionError,
    UnreachableError,
)
from transport.kafka import FULL_BATCHES, LONE_MESSAGES, KafkaTransport

LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
async def transport(kafka: Broker) -> AsyncIterator[KafkaTransport]:
    async with KafkaTransport(Connection(bootstrap=kafka.bootstrap)) as one:
        yield one


class TestKafkaTransport(TransportContract):
    @pytest.fixture
    async def transport(self, kafka: Broker) -> AsyncIterator[KafkaTransport]:
        async with KafkaTransport(Connection(bootstrap=kafka.bootstrap)) as one:
            await empty(one, kafka.bootstrap)
            yield one


async def empty(transport: KafkaTransport, bootstrap: str) -> None:
    """Make the contract's topics, or delete all records that an earlier test left in them."""
    try:
        await transport.partitions(TOPIC)
    except UnknownPartitionError:
        await create(bootstrap, TOPIC, OTHER, partitions=PARTITIONS, config=LOG_APPEND_TIME)
        return
    places = [TopicPartition(topic, n) for topic in (TOPIC, OTHER) for n in range(PARTITIONS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.delete_records({place: RecordsToDelete(before_offset=-1) for place in places})
    await admin.close()


async def test_the_offset_below_the_beginning_is_refused_after_deletion(
    kafka: Broker, transport: KafkaTransport
) -> None:
    await empty(transport, kafka.bootstrap)
    for _ in range(3):
        await transport.publish(TOPIC, 0, None, b"v")
    begin, _ = await transport.offsets(TOPIC, 0)
    assert len(await transport.read(TOPIC, 0, begin, 10)) == 3
    await empty(transport, kafka.bootstrap)
    with pytest.raises(OffsetOutOfRangeError, match=f"read from {begin + 3} to {begin + 3}"):
        await transport.read(TOPIC, 0, begin, 10)


async def test_open_and_aborted_transactions_are_not_seen(
    kafka: Broker, transport: KafkaTransport
) -> None:
    topic = "kafka-transport.transactions"
    await create(kafka.bootstrap, topic, partitions=1)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        assert await transport.offsets(topic, 0) == (0, 0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"committed")
        await producer.commit_transaction()
    finally:
        await producer.stop()
    assert await transport.offsets(topic, 0) == (0, 4)
    assert [one.value for one in await transport.read(topic, 0, 0, 10)] == [b"committed"]
    assert list(await transport.read(topic, 0, 3, 10)) == []


async def test_a_record_larger_than_a_fetch_is_read(
    kafka: Broker, transport: KafkaTransport
) -> None:
    topic = "kafka-transport.large"
    large = {"max.message.bytes": str(16 * 2**20)}
    await create(kafka.bootstrap, topic, partitions=1, config=large)
    value = os.urandom(10 * 2**20)
    await transport.publish(topic, 0, None, value)
    await transport.publish(topic, 0, None, b"next")
    (first,) = await transport.read(topic, 0, 0, 1)
    assert first.value == value
    assert [one.value for one in await transport.read(topic, 0, 1, 9)] == [b"next"]


async def test_a_message_too_large_is_told_with_topic_and_size(
    kafka: Broker, transport: KafkaTransport
) -> None:
    topic = "kafka-transport.small"
    await create(kafka.bootstrap, topic, config={"max.message.bytes": "1000"})
    with pytest.raises(MessageTooLargeError, match=r"2003 bytes.*max\.message\.bytes") as caught:
        await transport.publish(topic, 0, b"key", os.urandom(2000))
    assert (caught.value.topic, caught.value.size_bytes) == (topic, 2003)
    assert await transport.publish(topic, 0, b"key", b"small") == 0


async def test_both_codecs_are_read(kafka: Broker, transport: KafkaTransport) -> None:
    topic = "kafka-transport.codecs"
    await create(kafka.bootstrap, topic, partitions=1)
    for codec in (LONE_MESSAGES, FULL_BATCHES, None):
        one = KafkaTransport(Connection(bootstrap=kafka.bootstrap), compression=codec)
        await one.publish(topic, 0, None, b"x" * 1000)
        await one.stop()
    values = [record.value for record in await transport.read(topic, 0, 0, 10)]
    assert values == [b"x" * 1000] * 3


async def test_a_record_of_nothing_is_refused(transport: KafkaTransport) -> None:
    with pytest.raises(TransportError, match="needs a key or a value"):
        await transport.publish(TOPIC, 0, None, None)


async def test_a_missing_topic_is_told_with_what_to_do(transport: KafkaTransport) -> None:
    with pytest.raises(UnknownPartitionError, match="gpuvigil topics create"):
        await transport.partitions("kafka-transport.absent")


async def test_new_partitions_are_seen(kafka: Broker, transport: KafkaTransport) -> None:
    topic = "kafka-transport.grows"
    await create(kafka.bootstrap, topic, partitions=1)
    await transport.publish(topic, 0, None, b"old")
    assert await transport.offsets(topic, 0) == (0, 1)
    await widen(kafka.bootstrap, topic, 2)
    assert await transport.publish(topic, 1, None, b"new") == 0
    assert [one.value for one in await transport.read(topic, 1, 0, 9)] == [b"new"]
    assert [one.value for one in await transport.read(topic, 0, 0, 9)] == [b"old"]


async def test_many_at_once(kafka: Broker, transport: KafkaTransport) -> None:
    topic = "kafka-transport.many"
    await create(kafka.bootstrap, topic, partitions=3)
    sent = await asyncio.gather(
        *(transport.publish(topic, n % 3, None, b"%d" % n) for n in range(60))
    )
    assert sorted(sent) == sorted(list(range(20)) * 3)
    pages = await asyncio.gather(*(transport.read(topic, n, 0, 99) for n in range(3)))
    assert [{one.value for one in page} for page in pages] == [
        {b"%d" % n for n in range(first, 60, 3)} for first in range(3)
    ]


async def test_reading_page_by_page_is_quick(kafka: Broker, transport: KafkaTransport) -> None:
    """No read waits for the long poll of an earlier one: 100 reads would take 50 s."""
    topic = "kafka-transport.pages"
    await create(kafka.bootstrap, topic, partitions=2)
    await asyncio.gather(*(transport.publish(topic, n % 2, None, b"v") for n in range(100)))
    began = time.monotonic()
    for offset in range(50):
        for partition in range(2):
            assert len(await transport.read(topic, partition, offset, 1)) == 1
    assert time.monotonic() - began < 10


@pytest.mark.slow
@pytest.mark.kafka
async def test_an_outage_is_told_and_survived(tmp_path: Path) -> None:
    topic, node = "outage", 1
    with Broker(tmp_path / "own") as broker:
        await create(broker.bootstrap, topic, partitions=1)
        connection = Connection(bootstrap=broker.bootstrap)
        transport = KafkaTransport(connection, timeout_seconds=3)
        try:
            await transport.publish(topic, 0, None, b"before")
            assert len(await transport.read(topic, 0, 0, 9)) == 1
            broker.kill(node)
            began = time.monotonic()
            with pytest.raises(UnreachableError, match="no Kafka at"):
                await transport.publish(topic, 0, None, b"during")
            with pytest.raises(UnreachableError, match="no Kafka at"):
                await transport.read(topic, 0, 0, 9)
            assert time.monotonic() - began < 20
            await asyncio.to_thread(broker.start_node, node)
            after = await transport.publish(topic, 0, None, b"after")
            assert [one.value for one in await transport.read(topic, 0, after, 9)] == [b"after"]
            broker.kill(node)
        finally:
            began = time.monotonic()
            await transport.stop()
        assert time.monotonic() - began < 20


async def test_nobody_there_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        transport = KafkaTransport(Connection(bootstrap=server), timeout_seconds=5)
        with pytest.raises(UnreachableError, match=rf"no Kafka at {server} \(.*\); see") as caught:
            await transport.publish(TOPIC, 0, None, b"v")
        await transport.stop()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.slow
async def test_a_server_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    began = time.monotonic()
    transport = KafkaTransport(Connection(bootstrap=f"127.0.0.1:{port}"), timeout_seconds=0.5)
    with pytest.raises(UnreachableError, match="no answer"):
        await transport.start()
    await transport.stop()
    server.close()
    await server.wait_closed()
    assert time.monotonic() - began < 8

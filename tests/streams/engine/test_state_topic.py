"""Checkpoints on a real Kafka: who is fenced writes nothing, and a load gives the last save."""

import asyncio
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from schemas.state import StateRecord
from streams.engine import clients
from streams.engine.faults import StateTopicError
from streams.engine.state_topic import Saving, StateTopic
from tests.kafka_topics import create
from tests.streams.engine.running import fresh
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_closing import closed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "gpu.state.node"
FENCED_SECONDS = 20.0
COMPACTING = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "200",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}


def states(connection: Connection, partitions: int = 2) -> StateTopic:
    return StateTopic(
        connection.topic(TOPIC),
        partitions,
        make_producer=partial(clients.state_producer, connection, "node"),
        make_consumer=partial(clients.state_consumer, connection),
    )


async def made(kafka: Broker, name: str, **config: str) -> Connection:
    connection = fresh(kafka, name)
    await create(kafka.bootstrap, connection.topic(TOPIC), partitions=2, config=config)
    return connection


def saving(offset: int = 0, partitions: int = 2) -> Saving:
    return Saving("node", 0, partitions, {"gpu.telemetry": offset})


def values(**given: int) -> dict[bytes, tuple[int, bytes | None]]:
    return {key.encode(): (1, b'{"n":%d}' % number) for key, number in given.items()}


async def held(topic: StateTopic) -> dict[bytes, bytes]:
    return (await topic.load([0]))[0].states


async def fenced(topic: StateTopic) -> None:
    """A save of one who was followed is refused, soon."""
    begun = time.monotonic()
    with pytest.raises((ProducerFenced, KafkaError)) as caught:
        await topic.save(saving(95), values(a=95, b=95))
    assert isinstance(caught.value, ProducerFenced)
    assert time.monotonic() - begun < FENCED_SECONDS
    await topic.release(0)


async def test_a_zombie_writes_nothing_after_its_successor(kafka: Broker) -> None:
    connection = await made(kafka, "zombie")
    zombie, successor = states(connection), states(connection)
    await zombie.claim(0)
    await zombie.save(saving(90), values(a=90, b=90))
    await successor.claim(0)
    await successor.save(saving(100), values(a=100))
    await fenced(zombie)
    assert await held(successor) == {b"a": b'{"n":100}', b"b": b'{"n":90}'}
    await successor.release(0)


async def test_a_zombie_writes_nothing_after_a_compaction_either(tmp_path: Path) -> None:
    overrides = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}
    with Broker(tmp_path, overrides=overrides) as broker:
        connection = await made(broker, "compacted", **COMPACTING)
        zombie, successor = states(connection), states(connection)
        await zombie.claim(0)
        await zombie.save(saving(90), values(a=90, b=90))
        await successor.claim(0)
        for offset in (100, 101, 102):
            await asyncio.sleep(0.4)  # a segment of its own for each
            await successor.save(saving(offset), values(a=offset))
        await until_compacted(connection)
        await fenced(zombie)
        assert await held(successor) == {b"a": b'{"n":102}', b"b": b'{"n":90}'}
        await successor.release(0)


async def until_compacted(connection: Connection) -> None:
    """Until the first record of the key `a` is gone."""
    place = TopicPartition(connection.topic(TOPIC), 0)
    async with asyncio.timeout(60):
        while True:
            consumer = AIOKafkaConsumer(**connection.client_options())
            await consumer.start()
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            first = await consumer.getone()
            await closed(consumer)
            if first.key != b"a":
                return
            await asyncio.sleep(0.3)


async def test_a_transaction_left_open_by_a_kill_is_no_state(kafka: Broker) -> None:
    connection = await made(kafka, "open")
    killed, successor = states(connection), states(connection)
    await killed.claim(0)
    await killed.save(saving(10), values(a=10))
    producer: AIOKafkaProducer = killed._claims[0].producer
    await producer.begin_transaction()
    await producer.send_and_wait(connection.topic(TOPIC), b"never", key=b"a", partition=0)
    await killed.release(0)
    async with asyncio.timeout(20):
        await successor.claim(0)
        assert await held(successor) == {b"a": b'{"n":10}'}
    await successor.save(saving(11), values(a=11))
    assert await held(successor) == {b"a": b'{"n":11}'}
    await successor.release(0)


async def test_two_claims_at_once_leave_one_that_works(kafka: Broker) -> None:
    connection = await made(kafka, "claims")
    topic = states(connection)
    await asyncio.gather(topic.claim(0), topic.claim(0), topic.claim(0))
    await topic.save(saving(1), values(a=1))
    assert await held(topic) == {b"a": b'{"n":1}'}
    await topic.release(0)
    assert topic.claimed == set()
    with pytest.raises(ConnectionError, match="released"):
        await topic.save(saving(2), values(a=2))


async def test_memory_is_kept_only_where_nobody_wrote_since(kafka: Broker) -> None:
    connection = await made(kafka, "unchanged")
    ours, theirs = states(connection), states(connection)
    await ours.claim(0)
    assert await ours.unchanged([0, 1]) == set()  # nothing was saved yet
    for offset in range(3):
        await ours.save(saving(offset), values(**{f"k{n}": offset for n in range(3000)}))
        assert await ours.unchanged([0, 1]) == {0}
    await theirs.claim(0)
    await theirs.save(saving(9), values(k1=9))
    assert await ours.unchanged([0, 1]) == set()
    await theirs.release(0)
    await ours.release(0)


async def test_states_of_another_number_of_partitions(kafka: Broker) -> None:
    connection = await made(kafka, "repartitioned")
    old = states(connection, partitions=4)
    await old.claim(0)
    await old.save(saving(partitions=4), values(a=1))
    await old.release(0)
    with pytest.raises(StateTopicError, match=r"4 partitions .* have 2; `gpuvigil topics repart"):
        await held(states(connection))


@pytest.mark.parametrize("value", [b"no JSON", b'{"stage":1}', b'{"stage":"node"}'])
async def test_what_is_no_state_stops_and_says_where(kafka: Broker, value: bytes) -> None:
    connection = await made(kafka, "garbage")
    producer = AIOKafkaProducer(**connection.client_options())
    await producer.start()
    await producer.send_and_wait(connection.topic(TOPIC), value, key=b"a", partition=0)
    await producer.stop()
    with pytest.raises(StateTopicError, match=r"/0 at 0 is no state that this release can read"):
        await held(states(connection))


async def test_a_key_that_ended_is_gone(kafka: Broker) -> None:
    connection = await made(kafka, "ended")
    topic = states(connection)
    await topic.claim(0)
    await topic.save(saving(1), values(a=1, b=1))
    await topic.save(saving(2), {b"a": (1, None)})
    assert await held(topic) == {b"b": b'{"n":1}'}
    await topic.release(0)


async def test_what_is_written_is_the_contracts_state_record(kafka: Broker) -> None:
    connection = await made(kafka, "contract")
    topic = states(connection)
    await topic.claim(0)
    await topic.save(saving(7), values(a=1))
    await topic.release(0)
    consumer = AIOKafkaConsumer(
        connection.topic(TOPIC), **connection.client_options(), auto_offset_reset="earliest"
    )
    await consumer.start()
    record = await asyncio.wait_for(consumer.getone(), 20)
    await closed(consumer)
    model = StateRecord.model_validate_json(record.value)
    assert model.model_dump() == msgspec.json.decode(record.value)
    assert (model.stage, model.source_partition, model.key, model.partitions) == ("node", 0, "a", 2)
    assert model.next_offsets == {"gpu.telemetry": 7}

"""Outputs reach Kafka in their order, through a broker that is killed."""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from schemas.topics import ALERTS, DEADLETTER
from streams.engine import clients
from streams.engine.outbox import Outbox
from streams.outputs import Output
from tests.kafka_topics import create, records
from tests.streams.engine.running import fresh
from transport.broker import Broker
from transport.connection import Connection

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PATIENCE_SECONDS = 60.0


def outbox(connection: Connection) -> Outbox:
    made = Outbox(partial(clients.output_producer, connection), connection.prefix)
    made.start()
    return made


def outputs(numbers: range, partition: int = 0, size: int = 0) -> list[Output]:
    return [
        Output(ALERTS, partition, b"k", str(number).encode().ljust(size), ()) for number in numbers
    ]


async def said(connection: Connection, topic: str = ALERTS) -> list[int]:
    held = await records(connection.bootstrap, connection.topic(topic), 1)
    return [int(record.value) for record in held[0]]


async def test_a_broker_that_is_killed_costs_no_output_and_no_order(tmp_path: Path) -> None:
    with Broker(tmp_path, overrides={"broker.session.timeout.ms": "3000"}) as broker:
        connection = fresh(broker, "killed")
        await create(broker.bootstrap, connection.topic(ALERTS), partitions=1)
        sending = outbox(connection)
        for begin in range(0, 3000, 100):
            sending.put("me", outputs(range(begin, begin + 100), size=2000))
            await asyncio.sleep(0.01)
            if begin == 1000:
                await asyncio.to_thread(broker.kill, 1)
            if begin == 2000:
                await asyncio.to_thread(broker.start_node, 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await sending.acknowledged("me")
        await sending.stop()
        assert list(dict.fromkeys(await said(connection))) == list(range(3000))


async def test_one_that_is_too_large_becomes_a_dead_letter(kafka: Broker) -> None:
    connection = fresh(kafka, "large")
    topic = connection.topic(ALERTS)
    await create(kafka.bootstrap, topic, partitions=1, config={"max.message.bytes": "5000"})
    await create(kafka.bootstrap, connection.topic(DEADLETTER), partitions=1)
    sending = outbox(connection)
    noise = random.Random(1).randbytes(200_000)  # noqa: S311 - no secret
    sending.put("me", [*outputs(range(3)), Output(ALERTS, 0, b"k", noise), *outputs(range(3, 6))])
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sending.acknowledged("me")
    await sending.stop()
    assert sorted(set(await said(connection))) == list(range(6))
    (letter,) = (await records(kafka.bootstrap, connection.topic(DEADLETTER), 1))[0]
    headers = dict(letter.headers)
    assert headers["reason"] == b"above the topic's max.message.bytes"
    assert headers["topic"] == ALERTS.encode()
    assert letter.value == noise
    assert sending.counters["too_large"] >= 1


async def test_an_owner_waits_for_its_own_outputs_alone(kafka: Broker) -> None:
    connection = fresh(kafka, "owners")
    await create(kafka.bootstrap, connection.topic(ALERTS), partitions=1)
    sending = outbox(connection)
    async with asyncio.timeout(PATIENCE_SECONDS):
        sending.put("mine", outputs(range(5)))
        await sending.acknowledged("mine")
        sending.put("theirs", [Output("no.such.topic", 0, b"k", b"0")])
        await sending.acknowledged("mine")
    assert sending.waiting("mine") == 0
    assert sending.waiting("theirs") == 1
    await sending.stop()

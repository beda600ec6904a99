"""No connection outlives its client, however that ends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import GroupAuthorizationFailedError

from transport.broker import Broker
from transport.kafka_closing import closed
from transport.kafka_errors import bootstrapped
from transport.kafka_producer import started, stopped


async def consumer_of(kafka: Broker) -> AIOKafkaConsumer:
    """A consumer with a connection."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap)
    await consumer.start()
    await consumer.topics()
    return consumer


def connections(client: AIOKafkaClient) -> list[AIOKafkaConnection]:
    return list(client._conns.values())


def unclosed(held: list[AIOKafkaConnection]) -> list[AIOKafkaConnection]:
    return [one for one in held if one.connected() or not one._closed_fut.done()]


async def raises() -> None:
    raise GroupAuthorizationFailedError("gpuvigil")


async def hangs() -> None:
    await asyncio.Event().wait()


async def awaits_what_it_cancelled() -> None:
    task = asyncio.create_task(hangs())
    await asyncio.sleep(0)
    task.cancel()
    await task


@pytest.mark.parametrize("stop", [raises, hangs, awaits_what_it_cancelled])
async def test_an_end_in_order_that_fails_leaves_no_connection(
    kafka: Broker, stop: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    consumer = await consumer_of(kafka)
    held = connections(consumer._client)
    consumer.stop = stop
    await closed(consumer, 0.1)
    assert held
    assert not unclosed(held)
    consumer._closed = True  # it has no end in order; this one only says that it was forgotten
    await consumer._client.close()


async def test_an_interrupted_end_leaves_no_connection(kafka: Broker) -> None:
    consumer = await consumer_of(kafka)
    held = connections(consumer._client)
    consumer.stop = hangs
    ending = asyncio.create_task(closed(consumer, 60.0))
    await asyncio.sleep(0.05)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert held
    assert not unclosed(held)
    consumer._closed = True
    await consumer._client.close()


async def test_a_connection_that_is_opened_while_its_client_ends_ends_with_it(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await bootstrapped(client)
    made: list[AIOKafkaConnection] = []
    begun, opened = asyncio.Event(), asyncio.Event()
    real = AIOKafkaConnection.connect

    async def slow(self: AIOKafkaConnection) -> object:
        answer = await real(self)
        made.append(self)
        begun.set()
        await opened.wait()
        return answer

    monkeypatch.setattr(AIOKafkaConnection, "connect", slow)
    asking = asyncio.create_task(client.ready(client.get_random_node(), group="another"))
    await asyncio.wait_for(begun.wait(), 10.0)
    await closed(client)
    opened.set()
    await asking
    await asyncio.sleep(0.05)
    assert not unclosed(made)


async def test_what_ends_in_order_ends_as_ever(kafka: Broker) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.describe_topics()
    consumer = await consumer_of(kafka)
    held = connections(admin._client) + connections(consumer._client)
    await closed(admin)
    await closed(consumer)
    assert len(held) >= 2
    assert not unclosed(held)


async def test_a_fetch_that_waits_to_ask_again_does_not_end_who_closes_its_consumer(
    kafka: Broker,
) -> None:
    """aiokafka's fetcher cancels it in its pause, and awaits it."""
    consumer = await consumer_of(kafka)
    consumer._fetcher._pending_tasks.add(asyncio.create_task(asyncio.sleep(60.0)))
    await asyncio.sleep(0)
    await closed(consumer)
    assert consumer._closed


async def test_a_producer_whose_sender_is_cancelled_does_not_end_who_stops_it(
    kafka: Broker,
) -> None:
    producer = await started(AIOKafkaProducer(bootstrap_servers=kafka.bootstrap))
    await producer.client.fetch_all_metadata()
    held = connections(producer.client)
    producer.stop = awaits_what_it_cancelled
    await stopped(producer)
    assert held
    assert not unclosed(held)

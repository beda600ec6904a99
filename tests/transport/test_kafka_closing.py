"""No connection outlives its client, however that ends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import GroupAuthorizationFailedError

from transport.broker import Broker
from transport.kafka_closing import closed
from transport.kafka_errors import bootstrapped


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


@pytest.mark.parametrize("stop", [raises, hangs], ids=["raises", "hangs"])
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

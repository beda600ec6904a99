"""The Kafka client of a node: how it is set, started, and given up."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas.codec import MAX_MESSAGE_BYTES

BATCH_BYTES = 128 * 2**10
LINGER_MS = 5
REQUEST_TIMEOUT_MS = 20_000

START_SECONDS = 20.0
ABANDON_SECONDS = 5.0

TROUBLE = (KafkaError, OSError, TimeoutError, AssertionError)
"""What a producer that lost its broker may raise.  AssertionError is aiokafka's answer to a
partition that the topic no longer has."""


def kafka_producer(options: Mapping[str, Any]) -> AIOKafkaProducer:
    """A producer for scrapes, idempotent.  lz4 is the cheapest codec where a batch holds one."""
    return AIOKafkaProducer(
        **options,
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=MAX_MESSAGE_BYTES,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )


async def started(producer: AIOKafkaProducer) -> AIOKafkaProducer:
    """The producer, ready.  Raises one of TROUBLE, and then nothing of it is left."""
    try:
        await asyncio.wait_for(producer.start(), START_SECONDS)
    except BaseException:
        await stop(producer)
        raise
    return producer


async def stop(producer: AIOKafkaProducer) -> None:
    """End a producer that holds nothing unacknowledged."""
    with suppress(*TROUBLE):
        await asyncio.wait_for(producer.stop(), ABANDON_SECONDS)


async def abandon(producer: AIOKafkaProducer) -> None:
    """End a producer that still holds messages: `stop` would wait for them without end.

    Nothing of it may live on, or it would send its messages after those of its successor.
    """
    task = producer._sender.sender_task  # noqa: SLF001 - aiokafka has no public way to give up
    if task is not None:
        task.cancel()
        await asyncio.wait([task], timeout=ABANDON_SECONDS)
    with suppress(*TROUBLE):
        await asyncio.wait_for(producer.client.close(), ABANDON_SECONDS)
    producer._closed = True  # noqa: SLF001 - so that it is not taken for a forgotten one

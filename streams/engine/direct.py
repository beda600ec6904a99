"""A consumer of our own, in a service of the Faust app, in whose place no Faust consumer runs.

The fallback for the day when Faust's consumer can't be used; the same tests hold for both.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from faust.app.base import BootStrategy
from mode import Service

from streams.engine import clients
from streams.engine.member import FETCH_SECONDS, Member
from transport.cancelling import whole
from transport.kafka_closing import closed

STOP_SECONDS = 8.0
"""A consumer may wait for a rebalance before it can leave the group; then it is given up."""


class DirectIntake(Member):
    """`Intake` by a consumer of our own."""

    def __init__(
        self,
        app: faust.App,
        prefix: str,
        topics: Collection[str],
        make_consumer: Callable[[], AIOKafkaConsumer],
    ) -> None:
        """`make_consumer` is called when the app starts and gives a member of the group."""
        super().__init__(prefix, topics)
        app.boot_strategy = _ReaderOnly(app, _Reader(self, make_consumer))


class _ReaderOnly(BootStrategy):
    """Nothing of Faust's touches Kafka; where its consumer would start, the reader does."""

    enable_kafka = False

    def __init__(self, app: faust.App, reader: "_Reader") -> None:
        super().__init__(app, enable_web=False)
        self.reader = reader

    def kafka_consumer(self) -> Iterable[Service]:
        """What the app starts and stops, and whose crash is its own."""
        return [self.reader]


class _Reader(Service):
    """Runs the consumer."""

    logger = clients.FAUST_LOG

    def __init__(self, intake: Member, make_consumer: Callable[[], AIOKafkaConsumer]) -> None:
        super().__init__()
        self.intake = intake
        self.make_consumer = make_consumer
        self.consumer: AIOKafkaConsumer | None = None
        self.reading: asyncio.Future[None] | None = None

    async def on_start(self) -> None:
        """Join the group; the assignment comes later, to the listener."""
        self.consumer = consumer = self.make_consumer()
        self.intake.joins_with(consumer)
        await whole(consumer.start())
        consumer.subscribe(list(self.intake.topics), listener=_Listener(self.intake))
        self.reading = self.add_future(self.read(consumer))

    async def read(self, consumer: AIOKafkaConsumer) -> None:
        """Fetch until cancelled.  What is raised here crashes the app."""

        async def fetch(wanted: set[TopicPartition]) -> Mapping[TopicPartition, list[Any]]:
            records: Mapping[TopicPartition, list[Any]] = await consumer.getmany(
                *wanted, timeout_ms=round(FETCH_SECONDS * 1000)
            )
            return records

        while True:
            await self.intake.fetched(fetch)

    async def on_stop(self) -> None:
        """Stop reading, then leave the group."""
        if self.reading is not None:
            self.reading.cancel()
            with suppress(asyncio.CancelledError):
                await self.reading
        if self.consumer is not None:
            await closed(self.consumer, STOP_SECONDS)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Tells the intake; aiokafka waits for both."""

    def __init__(self, intake: Member) -> None:
        self.intake = intake

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Before the group is joined again; heartbeats go on meanwhile."""
        del revoked  # all of them, in this protocol
        await self.intake.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """After it was joined."""
        self.intake.assigned(assigned)

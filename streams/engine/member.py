"""What both intakes do alike: names, a fetch, questions to the broker, what the engine hears."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import InvalidSessionTimeoutError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from streams.engine import clients
from streams.engine.faults import NOT_ALLOWED, TRANSIENT
from streams.engine.operators import Place
from transport.contract import Record

if TYPE_CHECKING:
    from streams.engine.engine import Engine

log = logging.getLogger(__name__)

ASK_SECONDS = 15.0
"""A question to the broker is given up after this."""

FETCH_SECONDS = 0.25
"""A fetch waits for records no longer, so that a change of what is wanted is soon obeyed."""

NOTHING_TO_FETCH_SECONDS = 0.1
WATCH_SECONDS = 1.0

Fetch = Callable[[set[Any]], Awaitable[Mapping[Any, list[Any]]]]
"""Records by partition from a set of partitions, which is never empty."""


class Member:
    """`Intake` without the loop that fetches, which belongs to whoever runs the consumer."""

    def __init__(self, prefix: str, topics: Collection[str]) -> None:
        self.engine: Engine | None = None
        self.generation = -1
        """See Intake.  Below 0 until the group is joined; then it counts the beginning and the end
        of each rebalance, so that what began before one is over does not go on."""
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        """Set with `error`: the worker has to stop."""
        self.topics = {prefix + topic: topic for topic in topics}
        """The engine's topics: as the broker calls them, and without the prefix."""
        self._prefix = prefix
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._consumer: AIOKafkaConsumer | None = None
        self._consumer_loop: asyncio.AbstractEventLoop | None = None

    # What the engine asks

    def fetch_from(self, places: Collection[Place]) -> None:
        """See Intake.  A fetch that is under way ends as it began."""
        self._wanted = frozenset(self._tps(places))

    async def seek(self, positions: Mapping[Place, int]) -> None:
        """See Intake.  A place that was taken from us meanwhile is passed over."""

        async def seek_all(consumer: AIOKafkaConsumer) -> None:
            assigned = consumer.assignment()
            for tp, offset in zip(self._tps(positions), positions.values(), strict=True):
                if tp in assigned:
                    consumer.seek(tp, offset)

        await self._asked(seek_all)

    async def beginning_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """See Intake."""
        tps = self._tps(places)
        return self._named(await self._asked(lambda consumer: consumer.beginning_offsets(tps)))

    async def end_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """See Intake."""
        tps = self._tps(places)
        return self._named(await self._asked(lambda consumer: consumer.end_offsets(tps)))

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """See Intake."""
        values = [OffsetAndMetadata(offset, "") for offset in offsets.values()]
        named = dict(zip(self._tps(offsets), values, strict=True))
        try:
            await self._asked(lambda consumer: consumer.commit(named))
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            log.info("the group's offsets were not committed: %s", type(error).__name__)

    async def watch(self) -> None:
        """Raise what goes wrong with the membership.

        aiokafka tells it only to who fetches, and a member that was refused has nothing to fetch.
        """
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._consumer is None:
                continue
            try:
                await self._asked(clients.raise_pending)
            except (*NOT_ALLOWED, InvalidSessionTimeoutError):
                raise
            except TRANSIENT as error:
                log.info("the membership: %s: %s", type(error).__name__, error)

    def stop(self, error: Exception) -> None:
        """See Intake."""
        self.error = self.error or error
        self.ended.set()

    # What whoever runs the consumer tells

    def joins_with(self, consumer: AIOKafkaConsumer) -> None:
        """Say which consumer it is; called in the loop that runs it."""
        self._consumer = consumer
        self._consumer_loop = asyncio.get_running_loop()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """A rebalance is over and these partitions are ours; returns at once."""
        self.generation += 1
        if self.engine is not None:
            self.engine.on_assigned({tp.partition for tp in partitions if tp.topic in self.topics})

    async def revoked(self) -> None:
        """A rebalance begins and waits for this, which is bounded."""
        self.generation += self.generation >= 0
        if self.engine is None:
            return
        try:
            await self.engine.on_revoked()
        except Exception as error:  # noqa: BLE001 - whoever calls may only log it
            self.stop(error)

    async def fetched(
        self, fetch: Fetch, others: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, list[Any]]:
        """Fetch once; the engine's records go to the engine, those of others are returned."""
        wanted = self._wanted.union(others)
        if not wanted:  # aiokafka takes an empty set for "from everywhere"
            await asyncio.sleep(NOTHING_TO_FETCH_SECONDS)
            return {}
        cold: dict[TopicPartition, list[Any]] = {}
        for tp, records in (await fetch(set(wanted))).items():
            topic = self.topics.get(tp.topic)
            if topic is None:
                cold[tp] = records
            else:
                await self._hand_over(topic, tp.partition, records)
                await asyncio.sleep(0)  # heartbeats and answers come between two places
        return cold

    async def _hand_over(self, topic: str, partition: int, records: Collection[Any]) -> None:
        if self.engine is None:
            return
        batch = [
            Record(topic, partition, r.offset, r.timestamp, r.key, r.value, r.headers)
            for r in records
        ]
        seek_to = self.engine.take(topic, partition, batch)
        if seek_to is not None:
            await self.seek({(topic, partition): seek_to})

    # Small things

    def _tps(self, places: Iterable[Place]) -> list[TopicPartition]:
        return [TopicPartition(self._prefix + topic, partition) for topic, partition in places]

    def _named(self, offsets: Mapping[TopicPartition, int]) -> dict[Place, int]:
        return {(self.topics[tp.topic], tp.partition): n for tp, n in offsets.items()}

    async def _asked(self, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401 - aiokafka has no types
        """Run something in the consumer's loop, beside whatever that waits for."""
        consumer, loop = self._consumer, self._consumer_loop
        if consumer is None or loop is None or loop.is_closed():
            raise ConnectionError("there is no consumer that could be asked")
        answer = asyncio.run_coroutine_threadsafe(question(consumer), loop)
        async with asyncio.timeout(ASK_SECONDS):
            return await asyncio.wrap_future(answer)

"""Faust's consumer, made to hand over whole batches and to leave offsets to the engine.

Faust keeps the group, its rebalances, the consumer's thread and the fetching loop.  Records of the
engine's topics leave it right where they come out of aiokafka, so that no message, event, queue
and task is made for each; records of any other topic go on through Faust as ever.  Every private
name of Faust that stands here is watched by `tests/streams/engine/test_faust_guard.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.engine.operators import Place
from transport.contract import Record

if TYPE_CHECKING:
    from streams.engine.engine import Engine

log = logging.getLogger(__name__)

ASK_SECONDS = 15.0
"""A question to the broker is given up after this."""

NOTHING_TO_FETCH_SECONDS = 0.1


class FaustIntake:
    """`Intake` by a Faust app."""

    def __init__(
        self,
        app: faust.App,
        prefix: str,
        topics: Collection[str],
        make_consumer: Callable[[], AIOKafkaConsumer],
    ) -> None:
        """`make_consumer` is called in the consumer's thread and gives a member of the group."""
        self.engine: Engine | None = None
        self.error: Exception | None = None
        self._app = app
        self._prefix = prefix
        self._topics = {prefix + topic: topic for topic in topics}
        self._wanted: frozenset[TP] = frozenset()
        app.transport = _transport(self, make_consumer)(app.conf.broker_consumer, app)
        app.on_rebalance_complete.connect(self._assigned, weak=False)
        app.on_partitions_revoked.connect(self._revoked, weak=False)

    @property
    def generation(self) -> int:
        """See Intake."""
        return int(self._app.consumer_generation_id)

    def fetch_from(self, places: Collection[Place]) -> None:
        """See Intake.  Faust's own way to pause loses what was fetched; this one drops nothing."""
        self._wanted = frozenset(TP(self._prefix + topic, p) for topic, p in places)

    async def seek(self, positions: Mapping[Place, int]) -> None:
        """See Intake."""
        consumer = self._consumer()

        async def seek_all() -> None:
            assigned = consumer.assignment()
            for (topic, partition), offset in positions.items():
                place = TopicPartition(self._prefix + topic, partition)
                if place in assigned:
                    consumer.seek(place, offset)

        await self._asked(seek_all())

    async def beginning_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """See Intake."""
        return self._named(await self._asked(self._consumer().beginning_offsets(self._tps(places))))

    async def end_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """See Intake."""
        return self._named(await self._asked(self._consumer().end_offsets(self._tps(places))))

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """See Intake."""
        named = {
            TopicPartition(self._prefix + topic, partition): OffsetAndMetadata(offset, "")
            for (topic, partition), offset in offsets.items()
        }
        try:
            await self._asked(self._consumer().commit(named))
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            log.info("the group's offsets were not committed: %s", type(error).__name__)

    def stop(self, error: Exception) -> None:
        """See Intake."""
        self.error = self.error or error
        self._app.set_shutdown()
        self._app._stopped.set()  # noqa: SLF001 - under the guard test

    # What Faust calls

    async def fetched(
        self, fetch: Callable[[set[TP]], Coroutine[Any, Any, Any]], others: Collection[TP]
    ) -> dict[TP, list[Any]]:
        """One fetch; the engine's records go to the engine, the others are returned."""
        wanted = {tp for tp in others if tp.topic not in self._topics}
        if self._thread.consumer.flow_active:
            wanted |= self._wanted & {TP(*tp) for tp in self._consumer().assignment()}
        if not wanted:  # aiokafka takes an empty set for "from everywhere"
            await asyncio.sleep(NOTHING_TO_FETCH_SECONDS)
            return {}
        cold: dict[TP, list[Any]] = {}
        for tp, records in (await fetch(wanted)).items():
            topic = self._topics.get(tp.topic)
            if topic is None:
                cold[tp] = records
            else:
                await self._hand_over(topic, tp.partition, records)
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

    async def _assigned(self, *_: object, **__: object) -> None:
        if self.engine is not None:
            mine = {tp.partition for tp in self._app.consumer.assignment()}
            self.engine.on_assigned(mine)

    async def _revoked(self, *_: object, **__: object) -> None:
        if self.engine is not None:
            await self.engine.on_revoked()

    # Small things

    @property
    def _thread(self) -> Any:  # noqa: ANN401 - Faust's interface does not name it
        consumer: Any = self._app.consumer
        return consumer._thread  # noqa: SLF001 - under the guard test

    def _consumer(self) -> Any:  # noqa: ANN401 - aiokafka has no types
        return self._thread._ensure_consumer()  # noqa: SLF001 - under the guard test

    def _tps(self, places: Collection[Place]) -> list[TopicPartition]:
        return [TopicPartition(self._prefix + topic, partition) for topic, partition in places]

    def _named(self, offsets: Mapping[TopicPartition, int]) -> dict[Place, int]:
        return {(tp.topic.removeprefix(self._prefix), tp.partition): n for tp, n in offsets.items()}

    async def _asked(self, question: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - as above
        """Run something on the consumer's own thread, beside whatever it waits for."""
        answer = asyncio.run_coroutine_threadsafe(question, self._thread.thread_loop)
        return await asyncio.wait_for(asyncio.wrap_future(answer), ASK_SECONDS)


def _transport(
    intake: FaustIntake, make_consumer: Callable[[], AIOKafkaConsumer]
) -> type[driver.Transport]:
    """Faust's Kafka transport with a consumer that fetches for the engine."""

    class Thread(driver.AIOKafkaConsumerThread):
        def _create_worker_consumer(self, _transport: object) -> AIOKafkaConsumer:
            return make_consumer()

    class Consumer(driver.Consumer):
        def _new_consumer_thread(self) -> Thread:
            return Thread(self, loop=self.loop, beacon=self.beacon)

        async def _getmany(
            self,
            active_partitions: Collection[TP] | None,
            timeout: float,  # noqa: ASYNC109 - Faust's signature
        ) -> dict[TP, list[Any]]:
            fetch = partial(super()._getmany, timeout=timeout)
            return await intake.fetched(fetch, active_partitions or ())

        async def perform_seek(self) -> None:
            """The engine seeks to its own offsets; what the group has committed is a hint."""

    class Transport(driver.Transport):
        pass

    Transport.Consumer = Consumer
    return Transport

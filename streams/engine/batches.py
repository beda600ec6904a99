"""Faust's consumer, made to hand over whole batches and to leave offsets to the engine.

Faust keeps the group, its rebalances, the consumer's thread and the fetching loop.  Records of the
engine's topics leave it right where they come out of aiokafka, so that no message, event, queue
and task is made for each; records of any other topic go on through Faust as ever.  Whatever of
Faust is overridden or relied on here is watched by `tests/streams/engine/test_faust_guard.py`.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import ServiceThread, WorkerThread

from streams.engine import clients
from streams.engine.member import FETCH_SECONDS, Member
from transport.kafka_closing import cut, ending

log = logging.getLogger(__name__)

STOP_SECONDS = 8.0
"""Less than the worker gives Faust as a whole."""


class FaustIntake(Member):
    """`Intake` by Faust's own consumer."""

    def __init__(
        self,
        app: faust.App,
        prefix: str,
        topics: Collection[str],
        make_consumer: Callable[[], AIOKafkaConsumer],
    ) -> None:
        """`make_consumer` is called in the consumer's thread and gives a member of the group."""
        super().__init__(prefix, topics)
        app.boot_strategy = _NoProducer(app, enable_web=False)
        app.transport = _transport(self, make_consumer)(app.conf.broker_consumer, app)
        app.on_partitions_assigned.connect(self._on_assigned, weak=False)
        app.on_partitions_revoked.connect(self._on_revoked, weak=False)
        for name in self.topics:
            topic = app.topic(
                name, key_type=bytes, value_type=bytes, key_serializer="raw",
                value_serializer="raw", acks=False,
            )  # fmt: skip
            app.agent(topic, name=name)(_subscribed)

    async def _on_assigned(self, *args: Any, **_: object) -> None:  # noqa: ANN401 - a signal's
        _app, tps = args
        self.assigned(tps)

    async def _on_revoked(self, *_: object, **__: object) -> None:
        await self.revoked()


class _NoProducer(BootStrategy):
    """Faust starts its consumer; what is written goes through the outbox."""

    enable_kafka_producer = False


class _DaemonThread(WorkerThread):
    """A consumer that hangs in a rebalance does not keep a process that wants to end."""

    def __init__(self, service: ServiceThread, **options: Any) -> None:  # noqa: ANN401 - mode's own
        super().__init__(service, **options)
        self.daemon = True

    def run(self) -> None:
        """What ends the thread has crashed the app already; Python would only print it again."""
        with suppress(Exception):
            super().run()


async def _subscribed(stream: Any) -> None:  # noqa: ANN401 - as Faust types agents
    """Keeps a topic in Faust's subscription; its records go to the engine in whole batches."""
    async for _ in stream:
        log.error("a record went through Faust's agent and not to the engine")


def _nothing() -> None:
    """Wakes the loop that it is sent to."""


class _Thread(driver.AIOKafkaConsumerThread):
    """The thread of Faust's consumer, quiet about itself and leaving nothing open behind it."""

    logger = clients.FAUST_LOG

    Worker = _DaemonThread

    async def _wakeup_timer_in_thread(self) -> None:
        """Wake the app's loop: mode's coroutine for it is never started where the loop ends."""
        self.last_wakeup_at = monotonic()
        await self.sleep(0)
        self.parent_loop.call_soon_threadsafe(_nothing)

    def on_crash(self, msg: str, *fmt: object) -> None:
        """Mode would print it; the app's crash is logged, and the worker raises it."""

    async def on_thread_stop(self) -> None:
        """What Faust's end of the consumer leaves open when it fails is closed with it."""
        try:
            async with ending(STOP_SECONDS):
                await super().on_thread_stop()
        finally:
            if self._consumer is not None:
                await cut(self._consumer._client)  # noqa: SLF001 - under the guard test

    def close(self) -> None:
        """Faust would close it from another thread's loop; it ends with its own thread."""


def _thread(
    intake: FaustIntake, make_consumer: Callable[[], AIOKafkaConsumer]
) -> type[driver.AIOKafkaConsumerThread]:
    """The thread of Faust's consumer, with a consumer of the engine's making."""

    class Thread(_Thread):
        def _create_worker_consumer(self, _transport: object) -> AIOKafkaConsumer:
            consumer = make_consumer()
            intake.joins_with(consumer)
            return consumer

        async def seek_to_committed(self) -> Mapping[TP, int]:
            """Cold topics only: the engine seeks to its own offsets, the group's are a hint."""
            consumer = self._ensure_consumer()
            cold = [tp for tp in consumer.assignment() if tp.topic not in intake.topics]
            if not cold:  # aiokafka takes none for all
                return {}
            offsets: Mapping[TP, int] = await self.call_thread(consumer.seek_to_committed, *cold)
            return offsets

        def verify_event_path(self, now: float, tp: TP) -> None:
            """Faust would miss the streams and commits that the engine's topics do not have."""
            if tp.topic not in intake.topics:
                super().verify_event_path(now, tp)

    return Thread


def _transport(
    intake: FaustIntake, make_consumer: Callable[[], AIOKafkaConsumer]
) -> type[driver.Transport]:
    """Faust's Kafka transport with a consumer that fetches for the engine."""
    make_thread = _thread(intake, make_consumer)

    class Consumer(driver.Consumer):
        logger = clients.FAUST_LOG

        def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
            return make_thread(self, loop=self.loop, beacon=self.beacon)

        async def _getmany(
            self,
            active_partitions: Collection[TP] | None,
            timeout: float,  # noqa: ASYNC109 - Faust's signature
        ) -> dict[TopicPartition, list[Any]]:
            cold = [tp for tp in active_partitions or () if tp.topic not in intake.topics]
            fetch = partial(super()._getmany, timeout=min(timeout, FETCH_SECONDS))
            return await intake.fetched(fetch, cold)

    class Transport(driver.Transport):
        pass

    Transport.Consumer = Consumer
    return Transport

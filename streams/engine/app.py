"""A worker: the Faust app, the engine and its clockwork, put together and taken apart."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import faust
from faust.app.base import BootStrategy

from schemas.parameters import DetectorParameters
from streams.engine import clients
from streams.engine.batches import FaustIntake
from streams.engine.engine import Engine
from streams.engine.operators import BY_NODE, STAGES, Operator, Stage
from streams.engine.outbox import Outbox
from streams.engine.state_topic import StateTopic
from streams.engine.timers import Timers
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from transport.connection import Connection

log = logging.getLogger(__name__)

GROUP = "gpuvigil"
STOP_SECONDS = 2.0
SOURCE_TOPICS = [topic for stage in STAGES for topic in stage.topics]


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker runs."""

    connection: Connection
    partitions: int
    """Of the source topics, as the broker has them."""
    parameters: DetectorParameters
    session_seconds: float = 10.0
    checkpoint_seconds: float = 10.0
    instance_id: str | None = None
    """Kafka's group.instance.id: a member that comes back within the session keeps its partitions,
    and one that stops does not hand them over before the session's end."""
    web_host: str = "127.0.0.1"
    web_port: int | None = None


class _NoProducer(BootStrategy):
    """Faust starts its consumer and its web view; what is written goes through the outbox."""

    enable_kafka_producer = False


class Worker:
    """Everything of one worker process."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        connection = options.connection
        self.app = self._faust_app()
        self.intake = FaustIntake(
            self.app, connection.prefix, SOURCE_TOPICS,
            partial(
                clients.group_consumer, connection, group=GROUP,
                instance_id=options.instance_id, session_seconds=options.session_seconds,
            ),
        )  # fmt: skip
        self.outbox = Outbox(partial(clients.output_producer, connection), connection.prefix)
        self.engine = Engine(
            self.intake,
            {stage.name: self._state_topic(stage) for stage in STAGES},
            self.outbox,
            self._operator,
            partitions=options.partitions,
            session_seconds=options.session_seconds,
        )
        self.intake.engine = self.engine
        self.timers = Timers(
            self.engine,
            self.intake,
            options.checkpoint_seconds,
            round(options.parameters.time.max_ahead * 1000),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set or the worker can't go on; raises what it could not survive."""
        self.outbox.start()
        clockwork = asyncio.create_task(self.timers.run(), name="timers")
        waiting = asyncio.create_task(stop.wait(), name="stop")
        try:
            await self.app.start()
            ended = asyncio.create_task(self.app.wait_until_stopped(), name="app")
            await asyncio.wait({ended, waiting, clockwork}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        finally:
            waiting.cancel()
            await self._leave(clockwork)
        self._raise_failure(clockwork)

    async def _leave(self, clockwork: "asyncio.Task[None]") -> None:
        """Save, say goodbye to the group, stop."""
        clockwork.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await clockwork
        await self.engine.stop()
        await self.app.stop()
        await self.outbox.stop()

    def _raise_failure(self, clockwork: "asyncio.Task[None]") -> None:
        if self.intake.error is not None:
            raise self.intake.error
        if self.app.crash_reason is not None:
            raise self.app.crash_reason
        if not clockwork.cancelled() and (error := clockwork.exception()) is not None:
            raise error

    def _faust_app(self) -> faust.App:
        options = self._options
        app = faust.App(
            options.connection.prefix + GROUP,
            broker=[f"kafka://{one}" for one in options.connection.bootstrap.split(",")],
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            broker_session_timeout=options.session_seconds,
            broker_heartbeat_interval=options.session_seconds / 4,
            web_enabled=False,
            autodiscover=False,
        )
        app.boot_strategy = _NoProducer(app, enable_web=False)
        for name in SOURCE_TOPICS:
            topic = app.topic(
                options.connection.topic(name),
                key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw",
                acks=False,
            )  # fmt: skip
            app.agent(topic, name=name)(_subscribed)
        return app

    def _state_topic(self, stage: Stage) -> StateTopic:
        connection = self._options.connection
        return StateTopic(
            connection.topic(stage.state_topic),
            self._options.partitions,
            make_producer=partial(clients.state_producer, connection, stage.name),
            make_consumer=partial(clients.state_consumer, connection),
        )

    def _operator(self, stage: Stage, partition: int) -> Operator:
        made = StageOne if stage is BY_NODE else StageTwo
        return made(partition, self._options.partitions, self._options.parameters)


async def _subscribed(stream: Any) -> None:  # noqa: ANN401 - as Faust types agents
    """Keeps a topic in Faust's subscription; its records go to the engine in whole batches."""
    async for _ in stream:
        log.error("a record went through Faust's agent and not to the engine")

"""A worker: the Faust app, the engine and its clockwork, put together and taken apart."""

import asyncio
import gc
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import faust

from schemas.parameters import DetectorParameters
from streams.engine import clients
from streams.engine.batches import FaustIntake
from streams.engine.direct import DirectIntake
from streams.engine.engine import Engine
from streams.engine.operators import BY_NODE, STAGES, Operator, Stage
from streams.engine.outbox import Outbox
from streams.engine.state_topic import StateTopic
from streams.engine.timers import Timers
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from transport.cancelling import cancelled
from transport.connection import Connection

log = logging.getLogger(__name__)

GROUP = "gpuvigil"
STOP_SECONDS = 10.0
"""A worker that ends waits for each of its parts no longer: leaving the group may have to wait for
a rebalance."""

SOURCE_TOPICS: Final = [topic for stage in STAGES for topic in stage.topics]
INTAKES: Final = {"faust": FaustIntake, "direct": DirectIntake}


def collect_rarely() -> None:
    """Let Python's collector look for cycles seldom: it visits every state each time.

    Messages and states hold no cycles.  For a process that is a worker and nothing else.
    """
    gc.set_threshold(200_000, 20, 20)


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
    intake: Literal["faust", "direct"] = "faust"
    """Who runs the consumer: Faust, or this program's own service in a Faust app."""


class _App(faust.App):
    """Faust without what only its own tables and consumer need."""

    logger = clients.FAUST_LOG

    async def on_first_start(self) -> None:
        """Make no directories: they would hold tables, and there are none."""

    async def on_start(self) -> None:
        """Where Faust touches no Kafka, don't make its consumer: it begins with a thread's loop."""
        if self.boot_strategy.enable_kafka:
            await super().on_start()
        else:
            self.finalize()


class Worker:
    """Everything of one worker process."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        connection = options.connection
        self.app = self._faust_app()
        self.intake = INTAKES[options.intake](
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
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in {
                "app": self._run_app(),
                "timers": self.timers.run(),
                "ended": self.intake.ended.wait(),
                "membership": self.intake.watch(),
                "stop": stop.wait(),
            }.items()
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failures = [task.exception() for task in tasks if task.done() and not task.cancelled()]
            await self._leave(tasks)
        for error in (self.intake.error, *failures, self.app.crash_reason):
            if error is not None:
                raise error

    async def _run_app(self) -> None:
        """Join the group, then stay; ends when the app crashes."""
        await self.app.start()
        waiting = asyncio.create_task(self.app.wait_until_stopped(), name="app stopped")
        await asyncio.shield(waiting)  # cancelled, it would leave a task behind; a stop ends it

    async def _leave(self, tasks: Iterable["asyncio.Task[Any]"]) -> None:
        """Save, say goodbye to the group, stop; a fault in one keeps nobody from the next."""
        await self._bounded("engine", self.engine.stop())
        await cancelled(tasks)
        await self._bounded("app", self.app.stop())
        await self._bounded("outbox", self.outbox.stop())

    async def _bounded(self, name: str, stop: Coroutine[Any, Any, None]) -> None:
        stopping = asyncio.create_task(stop, name=f"stop {name}")
        await asyncio.wait({stopping}, timeout=STOP_SECONDS)
        if not stopping.done():
            log.warning("the %s has not stopped within %.0f s", name, STOP_SECONDS)
            stopping.cancel()
        elif (error := stopping.exception()) is not None:
            log.error("the %s did not stop in order", name, exc_info=error)

    def _faust_app(self) -> faust.App:
        options = self._options
        return _App(
            options.connection.prefix + GROUP,
            broker=[f"kafka://{one.strip()}" for one in options.connection.bootstrap.split(",")],
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            broker_session_timeout=options.session_seconds,
            broker_heartbeat_interval=options.session_seconds / 4,
            web_enabled=False,
            autodiscover=False,
        )

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

"""A worker without its consumer: the engine, its states and outputs over a scripted intake."""

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from aiokafka import AIOKafkaProducer

from schemas.parameters import DetectorParameters
from schemas.topics import PODS, TELEMETRY, node_key, partition_of
from streams.engine import clients
from streams.engine.engine import Engine
from streams.engine.operators import BY_NODE, STAGES, Operator, Stage
from streams.engine.outbox import Outbox
from streams.engine.state_topic import StateTopic
from streams.engine.timers import Timers
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from tests.streams.engine.scripted_intake import ScriptedIntake, Topics
from tests.streams.harness import Sent, pods, sample
from transport.connection import Connection

PARTITIONS = 2
PATIENCE_SECONDS = 30.0

States = dict[bytes, object]

NODES = [
    next(f"n{i}" for i in range(99) if partition_of(node_key("c", f"n{i}"), PARTITIONS) == p)
    for p in range(PARTITIONS)
]
"""A node in each partition."""


class Held:
    """Lets state producers start and commit, or makes them wait, or fail."""

    def __init__(self) -> None:
        self.start_gate: asyncio.Event | None = None
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.waiting = 0

    def put_on(self, producer: AIOKafkaProducer) -> AIOKafkaProducer:
        """A producer whose start and commits pass here first."""
        start, commit = producer.start, producer.commit_transaction

        async def started() -> None:
            if self.start_gate is not None:
                self.waiting += 1
                await self.start_gate.wait()
            await start()

        async def held() -> None:
            if self.gate is not None:
                self.waiting += 1
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            await commit()

        producer.start, producer.commit_transaction = started, held
        return producer


class Rig:
    """A worker without its consumer."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self.connection = connection
        self.topics = topics
        self.intake = ScriptedIntake(topics)
        self.outbox = Outbox(partial(clients.output_producer, connection), connection.prefix)
        self.commits = Held()
        self.states = {stage.name: self._states(stage) for stage in STAGES}
        self.engine = Engine(
            self.intake,
            self.states,
            self.outbox,
            self._operator,
            partitions=PARTITIONS,
            session_seconds=0.5,
        )
        self.intake.engine = self.engine
        self.timers = Timers(self.engine, self.intake, 10.0, 600_000)

    def _states(self, stage: Stage) -> StateTopic:
        def make_producer(partition: int) -> AIOKafkaProducer:
            return self.commits.put_on(
                clients.state_producer(self.connection, stage.name, partition)
            )

        return StateTopic(
            self.connection.topic(stage.state_topic),
            PARTITIONS,
            make_producer=make_producer,
            make_consumer=partial(clients.state_consumer, self.connection),
        )

    @staticmethod
    def _operator(stage: Stage, partition: int) -> Operator:
        made = StageOne if stage is BY_NODE else StageTwo
        return made(partition, PARTITIONS, DetectorParameters())

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.01)

    def serves(self, *partitions: int) -> bool:
        """Whether exactly these are taken, by both stages."""
        live = {key for key, seat in self.engine.seats.items() if seat.live}
        return live == {(stage.name, p) for stage in STAGES for p in partitions}

    async def took_over(self, *partitions: int) -> None:
        """A rebalance from its beginning to its end."""
        await self.intake.revoked()
        self.intake.assigned(*partitions)
        await self.until(lambda: self.serves(*partitions))

    async def saved(self, partition: int = 0) -> States:
        """The states as the topic holds them."""
        loaded = (await self.states["node"].load([partition]))[partition]
        return {key: json.loads(value) for key, value in loaded.states.items()}

    async def __aenter__(self) -> Self:
        self.outbox.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.commits.gate = self.commits.error = None
        await self.engine.stop()
        await self.outbox.stop()


def plain(topics: Topics, partition: int = 0) -> States:
    """The states after every record once and in order."""
    operator = StageOne(partition, PARTITIONS, DetectorParameters())
    for topic in (PODS, TELEMETRY):
        operator.process(topics.logs[topic, partition])
    return {key: json.loads(value or b"null") for key, value in operator.dump().items()}


def scrapes(numbers: Iterable[int], partition: int = 0) -> Iterable[Sent]:
    return (sample(NODES[partition], number, 50.0) for number in numbers)


def with_pods() -> Topics:
    """Topics that hold the first word of each node."""
    topics = Topics(PARTITIONS)
    topics.publish(*(pods(node, "work") for node in NODES))
    return topics

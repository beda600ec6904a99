"""Workers in the test's own process, against a real broker, and what they have to read."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from aiokafka import AIOKafkaProducer

from producers.simulated import SimulatedCluster
from schemas.codec import encode
from schemas.parameters import DetectorParameters
from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry
from schemas.topics import PODS, TELEMETRY, WINDOWS, node_key, partition_of
from streams.engine.app import Worker, WorkerOptions
from streams.runner import InProcess
from tests.kafka_topics import records
from transport.broker import Broker
from transport.connection import Connection
from transport.contract import Headers
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

PARTITIONS = 4
SESSION_SECONDS = 6.0
"""The shortest that Kafka's defaults allow."""

PATIENCE_SECONDS = 30.0

Kind = Literal["faust", "direct"]
Message = NodeTelemetry | PodEvent

_numbers = itertools.count()


def fresh(kafka: Broker, name: str) -> Connection:
    """A place on the broker that nobody else has."""
    return Connection(bootstrap=kafka.bootstrap, prefix=f"{name}-{next(_numbers)}.")


async def make_topics(connection: Connection, partitions: int = PARTITIONS) -> None:
    """Every topic, as `gpuvigil topics create` makes them."""
    async with KafkaAdmin(connection) as admin:
        await admin.create(wanted_layouts(connection.prefix, partitions, 1))


def simulated(seconds: float, seed: int = 0) -> list[Message]:
    """The demonstration's cluster for some seconds."""
    return list(SimulatedCluster(seed, duration_seconds=seconds).messages())


async def publish(
    connection: Connection, messages: Iterable[Message], partitions: int = PARTITIONS
) -> None:
    """Put messages where an agent would, in their order."""
    async with producer_of(connection) as producer:
        answers = []
        for message in messages:
            key = node_key(message.cluster, message.node)
            topic = TELEMETRY if message.type == "node_telemetry" else PODS
            answers.append(
                await producer.send(
                    connection.topic(topic),
                    encode(message),
                    key=key,
                    partition=partition_of(key, partitions),
                )
            )
        await asyncio.gather(*answers)


@asynccontextmanager
async def producer_of(connection: Connection) -> AsyncIterator[AIOKafkaProducer]:
    """A plain producer."""
    producer = AIOKafkaProducer(**connection.client_options(), enable_idempotence=True)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def options(
    connection: Connection, intake: Kind, *, checkpoint_seconds: float = 600.0
) -> WorkerOptions:
    """Quick sessions, and as a rule no checkpoints but the last one and those of rebalances."""
    return WorkerOptions(
        connection,
        PARTITIONS,
        DetectorParameters(),
        intake=intake,
        session_seconds=SESSION_SECONDS,
        checkpoint_seconds=checkpoint_seconds,
    )


class Running:
    """A worker that runs as a task."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(worker.run(self.stop))

    @property
    def next(self) -> dict[tuple[str, int], int]:
        """The next offset of every place that is read."""
        seats = self.worker.engine.seats.values()
        return {p: n for seat in seats if seat.live for p, n in seat.places.items()}

    @property
    def live(self) -> set[tuple[str, int]]:
        """Stage and partition of the seats that take records."""
        return {key for key, seat in self.worker.engine.seats.items() if seat.live}

    async def until(self, true: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds; a worker that ends meanwhile raises what it ended with."""
        async with asyncio.timeout(seconds):
            while not true():
                if self.task.done():
                    await self.task
                    raise AssertionError("the worker ended")
                await asyncio.sleep(0.02)

    async def ended(self) -> None:
        """Ask it to stop, and wait."""
        self.stop.set()
        await asyncio.wait_for(self.task, PATIENCE_SECONDS)


@asynccontextmanager
async def running(options_: WorkerOptions) -> AsyncIterator[Running]:
    """A worker that is stopped at the end of the block, if it still runs."""
    one = Running(Worker(options_))
    try:
        yield one
    finally:
        one.stop.set()
        await asyncio.wait({one.task}, timeout=PATIENCE_SECONDS)


Said = dict[bytes, list[bytes]]
"""Values by key, each key's in their order."""


async def until_same(connection: Connection, topic: str, wanted: Said, worker: Running) -> None:
    """Wait until a topic holds what is wanted, each value as often; fails with what differs.

    The order of a key's values counts, but for windows: those of several sources meet there.  Marks
    of progress without a workload are passed over: how many there are is the clock's choice.
    """
    count = 0
    wanted = substance(wanted)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while count < sum(map(len, wanted.values())):
                await worker.until(lambda: True)
                await asyncio.sleep(0.25)
                count = sum(map(len, substance(await said(connection, topic)).values()))
    await asyncio.sleep(0.5)  # what is there twice may come late
    found = substance(await said(connection, topic))
    for key in wanted.keys() | found.keys():
        got, right = found.get(key, []), wanted.get(key, [])
        if topic == WINDOWS:
            got, right = sorted(got), sorted(right)
        assert got == right


def substance(said: Said) -> Said:
    """What is said without windows that hold nothing."""
    kept = {
        key: [one for one in values if b'"workloads":[]' not in one] for key, values in said.items()
    }
    return {key: values for key, values in kept.items() if values}


async def said(connection: Connection, topic: str) -> Said:
    """What a topic holds."""
    got: Said = {}
    for held in (await of(connection, topic)).values():
        for record in held:
            got.setdefault(record.key, []).append(record.value)
    return got


def decided(messages: Iterable[Message], topic: str) -> Said:
    """What the runner in the process says while it does not know that its input has ended."""
    runner = InProcess(DetectorParameters(), partitions=PARTITIONS)
    got: Said = {}
    append = runner.transport.append

    def heard(
        name: str, place: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        if name == topic and key is not None and value is not None:
            got.setdefault(key, []).append(value)
        return append(name, place, key, value, headers)

    runner.transport.append = heard  # type: ignore[method-assign, assignment]
    runner._take_all(iter(messages))
    runner._step()
    return got


async def ends(
    connection: Connection, topics: Iterable[str], partitions: int = PARTITIONS
) -> dict[tuple[str, int], int]:
    """Where topics end, counting transactions' marks."""
    return {
        (topic, partition): held[-1].offset + 1 if held else 0
        for topic in topics
        for partition, held in (await of(connection, topic, partitions)).items()
    }


async def of(
    connection: Connection, topic: str, partitions: int = PARTITIONS
) -> Mapping[int, list[Any]]:
    """All records of a topic, by partition."""
    return await records(connection.bootstrap, connection.topic(topic), partitions)

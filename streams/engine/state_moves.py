"""States between topics and this process, while no worker is at work on them.

What is written is fenced: whoever had a partition before can't write behind it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ProducerFenced

from schemas.topics import STATE_PREFIX
from streams.engine import clients
from streams.engine.operators import STAGES, Stage
from streams.engine.state_files import (
    SeatKey,
    StateFileError,
    StateReader,
    States,
    Stored,
    offsets_of,
)
from streams.engine.state_topic import Saving, StateTopic
from streams.engine.workers_group import refuse_workers
from streams.stage_one import PARTITION_KEY
from transport.cancelling import whole
from transport.connection import Connection
from transport.kafka import KafkaTransport
from transport.kafka_closing import closed
from transport.kafka_errors import FAILURES, translated

READ_MILLISECONDS = 200

Keys = dict[SeatKey, dict[bytes, bytes]]
"""Live records by key."""

Say = Callable[[str], None]


async def partitions_of_states(connection: Connection) -> int:
    """How many partitions the state topics have.  Raises StateFileError where they differ."""
    async with KafkaTransport(connection) as transport:
        counts = {
            name: await transport.partitions(name)
            for name in (connection.topic(stage.state_topic) for stage in STAGES)
        }
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise StateFileError(f"the state topics differ in their partitions: {told}")
    return counts.popitem()[1]


async def read_states(connection: Connection, partitions: int, say: Say) -> States:
    """The live states of every seat, of each partition as its last finished save left it."""
    reader = StateReader(partitions)
    states: States = {}
    for seat, records in (await _live(connection, partitions, say)).items():
        for key, record in records.items():
            place = f"the record of {key!r:.200} in {connection.topic(STATE_PREFIX + seat[0])}"
            try:
                said, said_key, stored = reader.read(record)
            except StateFileError as error:
                raise StateFileError(f"{place} {error}") from None
            if (said, said_key) != (seat, key):
                raise StateFileError(f"{place} says that it is {said_key!r:.200} of {said}")
            if stored is not None:
                states.setdefault(seat, {})[key] = stored
    return states


class StateWriter:
    """Makes states what the topics of an installation hold, whoever had them before."""

    def __init__(self, connection: Connection, partitions: int, say: Say) -> None:
        self._connection = connection
        self._partitions = partitions
        self._say = say
        self._topics = {stage.name: self._topic(stage) for stage in STAGES}
        self._seats = [(stage.name, p) for stage in STAGES for p in range(partitions)]

    async def write(self, states: States, *, replace: bool) -> None:
        """Each partition in one fenced transaction; with `replace`, all other keys end.

        Raises StateFileError where the topics hold anything and `replace` does not say that it may
        go, and where workers are at work.
        """
        await refuse_workers(self._connection)
        await self._fence()
        held = await _live(self._connection, self._partitions, self._say)
        if (found := sum(map(len, held.values()))) and not replace:
            raise StateFileError(
                f"the state topics of the prefix {self._connection.prefix!r} hold {found} states; "
                "with --replace they end"
            )
        await refuse_workers(self._connection)
        for seat in self._seats:
            await self._save(seat, states.get(seat, {}), held[seat])
        self._say(f"wrote {sum(map(len, states.values()))} states")

    async def _fence(self) -> None:
        """What a worker wrote that is out of the group and not yet gone was its last."""
        async with _words(self._connection, "fence the states' former owners"):
            for stage, number in self._seats:
                await self._topics[stage].claim(number)
                await self._topics[stage].release(number)

    async def _save(
        self, seat: SeatKey, states: Mapping[bytes, Stored], held: Mapping[bytes, bytes]
    ) -> None:
        stage, number = seat
        offsets = offsets_of(states, PARTITION_KEY)
        saved: dict[bytes, tuple[int, bytes | None]] = dict.fromkeys(held, (1, None))
        saved |= {key: (stored.version, stored.state) for key, stored in states.items()}
        if not saved:
            return
        topic = self._topics[stage]
        try:
            async with _words(self._connection, f"write the states of {stage} {number}"):
                await topic.claim(number)
                await topic.save(Saving(stage, number, self._partitions, offsets), saved)
        finally:
            await topic.release(number)

    def _topic(self, stage: Stage) -> StateTopic:
        return StateTopic(
            self._connection.topic(stage.state_topic),
            self._partitions,
            make_producer=partial(clients.state_producer, self._connection, stage.name),
            make_consumer=partial(clients.state_consumer, self._connection),
        )


async def _live(connection: Connection, partitions: int, say: Say) -> Keys:
    """The last record of each key that has not ended; nothing of an open transaction."""
    live: Keys = {}
    for stage in STAGES:
        name = connection.topic(stage.state_topic)
        places = [TopicPartition(name, number) for number in range(partitions)]
        async with _words(connection, f"read {name}", name), _consumer(connection) as consumer:
            logs = await _read(consumer, places)
        live |= {(stage.name, place.partition): held for place, held in logs.items()}
        count = sum(map(len, logs.values()))
        size = sum(len(value) for held in logs.values() for value in held.values())
        say(f"read {name}: {count} states, {size:,} bytes")
    return live


async def _read(
    consumer: AIOKafkaConsumer, places: list[TopicPartition]
) -> dict[TopicPartition, dict[bytes, bytes]]:
    consumer.assign(places)
    ends = await consumer.end_offsets(places)
    begins = await consumer.beginning_offsets(places)
    for place in places:
        consumer.seek(place, begins[place])
    held: dict[TopicPartition, dict[bytes, bytes]] = {place: {} for place in places}
    left = {place for place in places if begins[place] < ends[place]}
    while left:
        got = await consumer.getmany(*left, timeout_ms=READ_MILLISECONDS)
        for place, records in got.items():
            _keep(held[place], records)
        left = {place for place in left if await consumer.position(place) < ends[place]}
    return held


def _keep(held: dict[bytes, bytes], records: list[Any]) -> None:
    for record in records:
        if record.value is None:
            held.pop(record.key, None)
        else:
            held[record.key] = record.value


@asynccontextmanager
async def _consumer(connection: Connection) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = clients.state_consumer(connection)
    try:
        await whole(consumer.start())
        yield consumer
    finally:
        await closed(consumer)


@asynccontextmanager
async def _words(connection: Connection, doing: str, topic: str = "") -> AsyncIterator[None]:
    """Say in our words what went wrong."""
    try:
        yield
    except ProducerFenced as error:
        raise StateFileError(
            f"could not {doing}: a worker took the partition over; stop the workers first"
        ) from error
    except FAILURES as error:
        raise await translated(error, connection.client_options(), doing, topic) from error

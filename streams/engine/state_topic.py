"""Checkpoints of one stage in a compacted topic: one fenced transaction for each save.

A partition's states are written only by the producer with that partition's transactional id.  Who
takes a partition over starts that producer first, which fences the former owner and ends what it
left open; only then are the states read.  So a load gives exactly what the last finished save
wrote, and nobody can write behind it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder
from msgspec import Struct

from streams.engine.faults import StateTopicError
from streams.stage_one import PARTITION_KEY
from transport.cancelling import whole
from transport.kafka_closing import closed
from transport.kafka_producer import abandon, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

CLAIM_SECONDS = 10.0
"""A transactional producer starts within this or the broker is away."""

SAVE_SECONDS = 30.0
STOP_SECONDS = 2.0
READ_MILLISECONDS = 200


class Claim(NamedTuple):
    """A partition that this worker has fenced."""

    producer: AIOKafkaProducer
    end: int | None
    """Where the partition ends if nobody wrote since our last save; None before the first."""


class Loaded(NamedTuple):
    """What a partition of the topic holds."""

    states: dict[bytes, bytes]
    """Dumped state by key."""
    bytes_read: int


class _Stored(Struct, kw_only=True):
    """`schemas.state.StateRecord` with its state as it was dumped; a test holds them equal."""

    type: str = "state_record"
    version: int = 1
    stage: str
    source_partition: int
    partitions: int | None = None
    next_offsets: dict[str, int]
    key: Annotated[str, msgspec.Meta(max_length=4096)]
    operator: str
    operator_version: int
    tombstone: bool = False
    state: msgspec.Raw


class Saving(NamedTuple):
    """What a save says about all its records."""

    stage: str
    partition: int
    partitions: int
    next_offsets: dict[str, int]


class StateTopic:
    """The checkpoints of one stage: claim a partition, load, save, release."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        *,
        make_producer: Callable[[int], AIOKafkaProducer],
        make_consumer: Callable[[], AIOKafkaConsumer],
    ) -> None:
        """`make_producer` gets the partition and gives a producer with its transactional id."""
        self._topic = topic
        self._partitions = partitions
        self._make_producer = make_producer
        self._make_consumer = make_consumer
        self._claims: dict[int, Claim] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._saves: dict[int, asyncio.Timeout] = {}

    @property
    def claimed(self) -> set[int]:
        """Partitions that this worker has fenced and not released."""
        return set(self._claims)

    async def claim(self, partition: int) -> None:
        """Fence whoever had the partition; its open transaction is aborted."""
        async with self._locks.setdefault(partition, asyncio.Lock()):
            await self.release(partition)
            producer = await started(self._make_producer(partition), CLAIM_SECONDS)
            self._claims[partition] = Claim(producer, None)

    async def release(self, partition: int) -> None:
        """End the partition's producer at once; the next claim aborts what it left open.

        A save that is under way fails now: its answers would never come.
        """
        claim = self._claims.pop(partition, None)
        save = self._saves.get(partition)
        if save is not None and not save.expired():
            save.reschedule(0.0)
        if claim is not None:
            await whole(abandon(claim.producer, STOP_SECONDS))

    async def unchanged(self, partitions: Collection[int]) -> set[int]:
        """Those of the partitions that nobody has written since our last save."""
        known = {p: self._claims[p] for p in partitions if p in self._claims}
        places = [TopicPartition(self._topic, p) for p, claim in known.items() if claim.end]
        if not places:
            return set()
        async with self._reader() as consumer:
            ends = await consumer.end_offsets(places)
        same = {tp.partition for tp, end in ends.items() if end == known[tp.partition].end}
        return {p for p in same if self._claims.get(p) is known[p]}

    async def load(self, partitions: Collection[int]) -> dict[int, Loaded]:
        """The states of partitions that were claimed before.

        Raises StateTopicError for states of another number of partitions.
        """
        if not partitions:
            return {}
        async with self._reader() as consumer:
            places = [TopicPartition(self._topic, p) for p in partitions]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            begins = await consumer.beginning_offsets(places)
            for place in places:
                consumer.seek(place, begins[place])
            loaded = {p: Loaded({}, 0) for p in partitions}
            left = {place for place in places if begins[place] < ends[place]}
            while left:
                got = await consumer.getmany(*left, timeout_ms=READ_MILLISECONDS)
                for place, records in got.items():
                    loaded[place.partition] = self._take(loaded[place.partition], records)
                left = {p for p in left if await consumer.position(p) < ends[p]}
        return loaded

    async def save(self, saving: Saving, states: Mapping[bytes, tuple[int, bytes | None]]) -> int:
        """Write states (version, dump) in one transaction; the broker's time of it, ms.

        After any error the partition has to be claimed again: whether the transaction counts is
        not known.
        """
        claim = self._claims.get(saving.partition)
        if claim is None:
            raise ConnectionError(f"{self._topic}/{saving.partition} was released meanwhile")
        records = [(key, _encoded(saving, key, *state)) for key, state in sorted(states.items())]
        async with self._save(saving.partition):
            await claim.producer.begin_transaction()
            batches = _batches(claim.producer, records)
            answers: list[asyncio.Future[Any]] = []
            try:
                for one in batches:
                    answers.append(  # noqa: PERF401 - those that there are have to be let go
                        await claim.producer.send_batch(
                            one, self._topic, partition=saving.partition
                        )
                    )
            except BaseException:
                for answer in answers:
                    answer.cancel()
                raise
            metadata = await asyncio.gather(*answers)
            await claim.producer.commit_transaction()
        last = metadata[-1]
        if self._claims.get(saving.partition) is claim:
            # One offset more than the last record is taken by the mark of the commit.
            end = last.offset + batches[-1].record_count() + 1
            self._claims[saving.partition] = claim._replace(end=end)
        return int(last.timestamp or 0)

    @asynccontextmanager
    async def _save(self, partition: int) -> "AsyncIterator[None]":
        async with asyncio.timeout(SAVE_SECONDS) as limit:
            self._saves[partition] = limit
            try:
                yield
            finally:
                self._saves.pop(partition, None)

    @asynccontextmanager
    async def _reader(self) -> "AsyncIterator[AIOKafkaConsumer]":
        consumer = self._make_consumer()
        try:
            await whole(consumer.start())
            yield consumer
        finally:
            await closed(consumer, STOP_SECONDS)

    def _take(self, loaded: Loaded, records: Iterable[Any]) -> Loaded:
        size = loaded.bytes_read
        for record in records:
            size += len(record.value or b"")
            if record.value is None:
                loaded.states.pop(record.key, None)
            else:
                loaded.states[record.key] = self._decoded(record)
        return Loaded(loaded.states, size)

    def _decoded(self, record: Any) -> bytes:  # noqa: ANN401 - aiokafka has no types
        place = f"{record.topic}/{record.partition} at {record.offset}"
        try:
            stored = msgspec.json.decode(record.value, type=_Stored)
        except msgspec.MsgspecError as error:
            raise StateTopicError(
                f"{place} is no state that this release can read: {error}; run the release that "
                "wrote it, or `gpuvigil state export` with it"
            ) from error
        if stored.partitions is not None and stored.partitions != self._partitions:
            raise StateTopicError(
                f"{place} was written with {stored.partitions} partitions and the source topics "
                f"have {self._partitions}; `gpuvigil topics repartition` moves states"
            )
        return bytes(stored.state)


def _encoded(saving: Saving, key: bytes, version: int, state: bytes | None) -> bytes | None:
    if state is None:
        return None
    return msgspec.json.encode(
        _Stored(
            stage=saving.stage,
            source_partition=saving.partition,
            partitions=saving.partitions,
            next_offsets=saving.next_offsets,
            key=key.decode(),
            operator="partition" if key == PARTITION_KEY else saving.stage,
            operator_version=version,
            state=msgspec.Raw(state),
        )
    )


def _batches(
    producer: AIOKafkaProducer, records: Iterable[tuple[bytes, bytes | None]]
) -> list[BatchBuilder]:
    """Records in full batches: one by one the producer takes ten times as long."""
    batches = [producer.create_batch()]
    for key, value in records:
        if batches[-1].append(timestamp=None, key=key, value=value) is None:
            batches.append(producer.create_batch())
            batches[-1].append(timestamp=None, key=key, value=value)  # the first one always fits
    for batch in batches:
        batch.close()
    return batches

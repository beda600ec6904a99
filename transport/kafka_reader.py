"""Reads one topic of Kafka from any offset: a consumer without a group, all partitions paused.

Only the partition that is read is resumed, and no longer than for the reading: nothing is fetched
that nobody asked for, and no request of an earlier read stands in the way of the next one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError as KafkaOffsetOutOfRange

from transport.cancelling import whole
from transport.contract import OffsetOutOfRangeError, Record
from transport.kafka_closing import closed

POLL_MS = 200
FETCH_BYTES = 8 * 2**20
"""Of a partition in one answer.  A larger record comes nevertheless, alone."""


class TopicReader:
    """A topic with its number of partitions.  Sees what is committed, as `read_committed` does."""

    def __init__(self, options: Mapping[str, Any], topic: str, partitions: int) -> None:
        self.partitions = partitions
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer = AIOKafkaConsumer(
            **options,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        self._ends: dict[TopicPartition, int] = {}
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Connect.  Call `stop` also after a failure."""
        await whole(self._consumer.start())
        self._consumer.assign(self._places)
        for place in self._places:
            self._consumer.seek(place, 0)
        self._consumer.pause(*self._places)

    async def stop(self) -> None:
        """Close the connections; raises nothing."""
        await closed(self._consumer)

    async def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset held and the end of what is committed."""
        place = self._places[partition]
        begin = await self._consumer.beginning_offsets([place])
        end = await self._consumer.end_offsets([place])
        self._ends[place] = end[place]
        return begin[place], end[place]

    async def read(self, partition: int, offset: int, max_records: int) -> Sequence[Record]:
        """See Transport.read.  Waits only for what is known to be there."""
        async with self._one_at_a_time:
            place = self._places[partition]
            if not 0 <= offset < self._ends.get(place, 0):
                begin, end = await self.bounds(partition)
                if not begin <= offset <= end:
                    raise self._out_of_range(place, offset, begin, end)
                if offset == end:
                    return []
            try:
                return await self._fetch(place, offset, max_records)
            except KafkaOffsetOutOfRange as error:
                begin, end = await self.bounds(partition)
                raise self._out_of_range(place, offset, begin, end) from error

    async def _fetch(
        self, place: TopicPartition, offset: int, max_records: int
    ) -> Sequence[Record]:
        """The records from `offset` on, which lies before the end.

        None come where only marks of transactions, or gaps that compaction left, are before it.
        """
        if max_records < 1:
            return []
        consumer, end = self._consumer, self._ends[place]
        if await consumer.position(place) != offset:
            consumer.seek(place, offset)
        consumer.resume(place)
        try:
            while True:
                found = await consumer.getmany(place, timeout_ms=POLL_MS, max_records=max_records)
                if place in found:
                    return [_record(one) for one in found[place]]
                if await consumer.position(place) >= end:
                    return []
        finally:
            consumer.pause(place)

    @staticmethod
    def _out_of_range(
        place: TopicPartition, offset: int, begin: int, end: int
    ) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} of {place.topic}/{place.partition} is not held; "
            f"read from {begin} to {end}"
        )


def _record(one: Any) -> Record:  # noqa: ANN401 - aiokafka has no types
    return Record(
        one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers)
    )

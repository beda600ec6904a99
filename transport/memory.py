"""Topics in the memory of this process: ordered partitions, publish, read from an offset.

Nothing else: no groups, no compaction, no file.  The in-process runner and most tests use it.  One
thread uses an instance at a time.  `append` and `slice` are the synchronous twins of `publish` and
`read`, for a caller that has no event loop or can't pay for one.
"""

from collections.abc import Callable, Mapping, Sequence

from transport.contract import (
    Headers,
    OffsetOutOfRangeError,
    Record,
    TransportError,
    UnknownPartitionError,
)

COMPACT_AFTER = 1024
"""Dropped records that stay in front of a partition's list before the list is cut."""


class _Partition:
    """Records in order; those before `_first` in the list are dropped and wait to be cut."""

    def __init__(self) -> None:
        self.base = 0
        self.append_time_ms: int | None = None
        self._records: list[Record | None] = []
        self._first = 0

    @property
    def end(self) -> int:
        return self.base + len(self._records) - self._first

    def append(self, record: Record) -> None:
        self._records.append(record)
        self.append_time_ms = record.append_time_ms

    def slice(self, offset: int, max_records: int) -> list[Record]:
        start = offset - self.base + self._first
        held = self._records[start : start + max(max_records, 0)]
        return [record for record in held if record is not None]

    def trim(self, before: int) -> None:
        drop = min(before, self.end) - self.base
        if drop <= 0:
            return
        first = self._first
        self._records[first : first + drop] = [None] * drop
        self._first += drop
        self.base += drop
        if self._first >= COMPACT_AFTER and self._first * 2 >= len(self._records):
            del self._records[: self._first]
            self._first = 0

    def restore(self, base: int, records: Sequence[Record]) -> None:
        self.base, self._first, self._records = base, 0, list(records)
        self.append_time_ms = records[-1].append_time_ms if records else None


class MemoryTransport:
    """Partitions of the given topics, all empty at first.

    `topics` gives each topic its number of partitions and `clock` the append time in milliseconds
    since the epoch.  With `retain` a partition holds at most that many records and drops the
    oldest; whoever reads below the beginning is told so.
    """

    def __init__(
        self, topics: Mapping[str, int], clock: Callable[[], int], retain: int | None = None
    ) -> None:
        if retain is not None and retain < 1:
            msg = f"retain is {retain}; a partition must be able to hold at least 1 record"
            raise TransportError(msg)
        self._topics = {name: [_Partition() for _ in range(n)] for name, n in topics.items()}
        self._clock = clock
        self._retain = retain

    async def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        """See Transport.publish; the record is acknowledged at once."""
        return self.append(topic, partition, key, value, headers)

    async def read(
        self, topic: str, partition: int, offset: int, max_records: int
    ) -> Sequence[Record]:
        """See Transport.read; never waits for a record."""
        return self.slice(topic, partition, offset, max_records)

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """See Transport.offsets."""
        return self.bounds(topic, partition)

    async def partitions(self, topic: str) -> int:
        """See Transport.partitions."""
        return len(self._all(topic))

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        """Append a record and return its offset.  A clock that goes back is held at its newest."""
        held = self._one(topic, partition)
        now = self._clock()
        if held.append_time_ms is not None:
            now = max(now, held.append_time_ms)
        offset = held.end
        held.append(Record(topic, partition, offset, now, key, value, headers))
        if self._retain is not None:
            held.trim(held.end - self._retain)
        return offset

    def slice(self, topic: str, partition: int, offset: int, max_records: int) -> Sequence[Record]:
        """Up to `max_records` from `offset` on.  Raises OffsetOutOfRangeError as `read` does."""
        held = self._one(topic, partition)
        if not held.base <= offset <= held.end:
            msg = (
                f"offset {offset} of {topic}/{partition} is not held; "
                f"read from {held.base} to {held.end}"
            )
            raise OffsetOutOfRangeError(msg)
        return held.slice(offset, max_records)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset held and the one that the next record will get."""
        held = self._one(topic, partition)
        return held.base, held.end

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Drop the records below the offset `before`: nobody will read them again."""
        self._one(topic, partition).trim(before)

    def restore(
        self, topic: str, partition: int, base_offset: int, records: Sequence[Record] = ()
    ) -> None:
        """Replace what a partition holds by what a checkpoint says, from `base_offset` on.

        Raises TransportError where the records do not follow each other from there.
        """
        held = self._one(topic, partition)
        for expected, record in enumerate(records, start=base_offset):
            if (record.topic, record.partition, record.offset) != (topic, partition, expected):
                msg = (
                    f"cannot restore {topic}/{partition}: found {record.topic}/{record.partition} "
                    f"at {record.offset} where offset {expected} belongs"
                )
                raise TransportError(msg)
        held.restore(base_offset, records)

    def _all(self, topic: str) -> list[_Partition]:
        try:
            return self._topics[topic]
        except KeyError:
            known = ", ".join(sorted(self._topics)) or "none"
            msg = f"there is no topic {topic!r}; known: {known}"
            raise UnknownPartitionError(msg) from None

    def _one(self, topic: str, partition: int) -> _Partition:
        partitions = self._all(topic)
        if not 0 <= partition < len(partitions):
            msg = f"{topic} has no partition {partition}; it has {len(partitions)} from 0 on"
            raise UnknownPartitionError(msg)
        return partitions[partition]

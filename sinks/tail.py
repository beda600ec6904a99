"""Follows the alert topic without a group: from a place, through outages and new partitions."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from schemas.alerts import AlertEvent
from schemas.codec import DecodeError, Decoder
from schemas.topics import ALERTS
from sinks.alerts import AlertReader
from transport.contract import UnknownPartitionError

Start = Literal["beginning", "end"] | int
"""Where to begin; a number is the broker's time, milliseconds since the epoch."""

POLL_MS = 500
LOOK_SECONDS = 5.0
"""How often it looks for new partitions and, while nothing comes, whether Kafka answers."""
METADATA_MS = 10_000
RETRY_SECONDS = 1.0

TROUBLE = (KafkaError, OSError, TimeoutError)


def alert_consumer(options: Mapping[str, Any]) -> AIOKafkaConsumer:
    """A consumer without a group, which nobody else notices."""
    return AIOKafkaConsumer(
        **options,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=METADATA_MS,
    )


def now_ms() -> int:
    """This machine's clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class AlertTail:
    """Reads all partitions of the alert topic and shows what is new.

    The broker's time is this machine's clock, put right by each record that comes while nothing
    else was left to read: such a record was appended just now.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        show: Callable[[AlertEvent], None],
        say: Callable[[str], None],
        *,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.reader = AlertReader()
        self.unreadable = 0
        """Records that could not be decoded."""
        self._consumer = consumer
        self._topic = topic
        self._show = show
        self._say = say
        self._clock_ms = clock_ms
        self._decoder = Decoder(AlertEvent, ALERTS)
        self._places: list[TopicPartition] = []
        self._ends: dict[TopicPartition, int] = {}
        self._appended_ms = self._skew_ms = 0
        self._at_end = self._finished = False
        self._looked_at = time.monotonic()
        self._in_trouble = False

    async def open(self, start: Start) -> None:
        """Find the place to begin.  Takes a consumer that was started and leaves it to the caller.

        Raises UnknownPartitionError if there is no such topic (it is never created by asking), and
        KafkaError, OSError or TimeoutError where Kafka is away.
        """
        if self._topic not in await self._consumer.topics():
            raise UnknownPartitionError(
                f"there is no topic {self._topic}; run `gpuvigil topics create`"
            )
        first = TopicPartition(self._topic, 0)
        self._consumer.assign([first])
        await self._consumer.beginning_offsets([first])  # waits for the topic's metadata
        self._places = self._found()
        self._ends = dict(await self._consumer.end_offsets(self._places))
        self._assign(await self._offsets(start))

    async def run(self, stop: asyncio.Event, *, once: bool = False) -> None:
        """Show events until `stop` is set; with `once`, up to the ends that `open` has found."""
        while not stop.is_set():
            was_at_end = self._at_end
            batch = await self._fetched()
            for records in batch.values():
                for record in records:
                    self._take(record, live=was_at_end)
            if self._at_end:
                self._show_stale()
            if once and self._finished:
                return

    def _found(self) -> list[TopicPartition]:
        numbers = self._consumer.partitions_for_topic(self._topic) or ()
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]

    async def _offsets(self, start: Start) -> dict[TopicPartition, int]:
        if start == "beginning":
            return dict(await self._consumer.beginning_offsets(self._places))
        ends = dict(await self._consumer.end_offsets(self._places))
        if start == "end":
            return ends
        found = await self._consumer.offsets_for_times(dict.fromkeys(self._places, start))
        return {place: ends[place] if at is None else at.offset for place, at in found.items()}

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Follow these, with no await in between: nothing may be fetched from another place."""
        self._places = sorted(offsets)
        self._consumer.assign(self._places)
        for place, offset in offsets.items():
            self._consumer.seek(place, offset)

    async def _fetched(self) -> dict[TopicPartition, list[Any]]:
        """The next records, if there are any.  Kafka's troubles end here, told once."""
        batch: dict[TopicPartition, list[Any]] = {}
        try:
            batch = await self._consumer.getmany(timeout_ms=POLL_MS)
            self._at_end = await self._reached(dict.fromkeys(self._places))
            self._finished = self._at_end or await self._reached(self._ends)
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                await self._look(quiet=not batch)
        except TROUBLE as error:
            if not self._in_trouble:
                reason = " ".join(str(error).split()) or type(error).__name__
                self._say(f"cannot read from Kafka ({reason}); following on when it is back")
            self._in_trouble = True
            await asyncio.sleep(RETRY_SECONDS)
        return batch

    def _take(self, record: Any, *, live: bool) -> None:  # noqa: ANN401 - aiokafka has no types
        self._appended_ms = max(self._appended_ms, record.timestamp)
        if live:
            self._skew_ms = self._clock_ms() - record.timestamp
        try:
            event = self._decoder.decode(
                record.value, partition=record.partition, offset=record.offset, key=record.key
            )
        except DecodeError as error:
            self.unreadable += 1
            self._say(f"left out: {error}")
            return
        if self.reader.take(event, record.timestamp):
            self._show(event)

    async def _reached(self, ends: Mapping[TopicPartition, int | None]) -> bool:
        """Whether these offsets are read; None stands for the end as the last answer told it."""
        for place, asked in ends.items():
            end = self._consumer.highwater(place) if asked is None else asked
            if end is None:
                return False
            async with asyncio.timeout(POLL_MS / 1000):
                if await self._consumer.position(place) < end:
                    return False
        return True

    def _show_stale(self) -> None:
        for event in self.reader.stale(max(self._appended_ms, self._clock_ms() - self._skew_ms)):
            self._show(event)

    async def _look(self, *, quiet: bool) -> None:
        """Follow new partitions; ask Kafka for an answer if it gave nothing of itself."""
        self._looked_at = time.monotonic()
        async with asyncio.timeout(LOOK_SECONDS):
            if quiet or self._in_trouble:
                await self._consumer.end_offsets(self._places)
            if self._in_trouble:
                self._in_trouble = False
                self._say("Kafka answers again")
            new = [place for place in self._found() if place not in self._places]
            if new:
                await self._follow(new)

    async def _follow(self, new: list[TopicPartition]) -> None:
        offsets = {place: await self._consumer.position(place) for place in self._places}
        offsets |= dict(await self._consumer.beginning_offsets(new))
        self._assign(offsets)
        self._say(f"{self._topic} has {len(self._places)} partitions now; all are followed")

"""Brings messages to Kafka in their order, through outages, without ever making a producer wait."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

from producers.buffer import Buffer, Outgoing
from producers.flight import Flight
from transport.cancelling import cancelled, whole
from transport.kafka_closing import TROUBLE
from transport.kafka_producer import abandon, started, stopped

FLIGHT_BYTES = 4 * 2**20
"""The most that is on its way at a time; the rest waits where the oldest can be dropped."""

RETRY_SECONDS = 1.0
STALL_SECONDS = 60.0
"""Without any acknowledgement for this long, the producer is replaced."""
SAID_EVERY_SECONDS = 10.0
LOOK_SECONDS = 1.0

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class Publisher:
    """Sends what a buffer holds, in order, until `close`.  Made within a running loop.

    After a failure a fresh producer sends the unacknowledged again, in order; readers know a
    repetition by its sequence.  A message that Kafka refuses for its size is given up and counted.
    `say` gets one line for people, of each kind at most one in ten seconds.
    """

    def __init__(
        self,
        buffer: Buffer,
        make_producer: Callable[[], AIOKafkaProducer],
        say: Callable[[str], None],
        *,
        flight_bytes: int = FLIGHT_BYTES,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.counters: Counter[str] = Counter()
        """`sent` and `too_large` messages, and how often a producer was `replaced`."""
        self.buffer = buffer
        self._make = make_producer
        self._say = say
        self._stall_seconds = stall_seconds
        self._flight = Flight(min(flight_bytes, buffer.max_bytes // 2))
        self._producer: AIOKafkaProducer | None = None
        self._generation = 0
        self._broken: BaseException | None = None
        self._in_trouble = False
        self._wake, self._settled = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard_at = time.monotonic()
        self._said_at: dict[str, float] = {}
        self._told_dropped = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send; Kafka may be away."""
        self._task = asyncio.create_task(self._run(), name="publisher")

    def put(self, message: Outgoing) -> None:
        """Hand over a message, from any thread.  Never waits."""
        self.buffer.put(message)
        self._loop.call_soon_threadsafe(self._wake.set)

    async def close(self, flush_seconds: float) -> int:
        """Send on for at most so long, then stop.  Returns how many were not delivered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(flush_seconds):
                await self._flushed()
        if self._task is not None:
            await cancelled([self._task])
        await self._leave_producer()
        return len(self.buffer)

    async def _flushed(self) -> None:
        while len(self.buffer):
            self._settled.clear()
            await self._settled.wait()

    async def _run(self) -> None:
        while True:
            try:
                if self._producer is None:
                    self._producer = await started(self._make())
                await self._send_all(self._producer)
            except TROUBLE as error:
                await self._again(error)

    async def _send_all(self, producer: AIOKafkaProducer) -> None:
        """Send for as long as the producer lives.  Raises what it died of."""
        while True:
            self._raise_if_broken()
            message = self.buffer.first()
            if message is None or not self._flight.takes(message):
                await self._wait()
            elif self.buffer.take(message):
                await self._send(producer, message)

    async def _send(self, producer: AIOKafkaProducer, message: Outgoing) -> None:
        if not self._flight:
            self._heard_at = time.monotonic()
        self._flight.add(message)
        try:
            answer = await self._handed_over(producer, message)
        except MessageSizeTooLargeError:
            self._refuse(message)
            return
        generation = self._generation
        answer.add_done_callback(lambda future: self._answered(message, generation, future))

    async def _handed_over(
        self, producer: AIOKafkaProducer, message: Outgoing
    ) -> "asyncio.Future[object]":
        """The producer's promise.  It takes nothing while its batch is full, so look meanwhile."""
        await producer.partitions_for(message.topic)  # raises if there is no such topic
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    answer: asyncio.Future[object] = await producer.send(
                        message.topic, message.value, key=message.key, partition=message.partition
                    )
                    return answer
            self._look()

    def _answered(
        self, message: Outgoing, generation: int, answer: "asyncio.Future[object]"
    ) -> None:
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or generation != self._generation:
            return
        self._wake.set()
        if error is None:
            self._settle(message, "sent")
            self._hear()
            return
        if isinstance(error, TOO_LARGE):
            if self._flight.is_alone(message):
                self._refuse(message)
            else:
                self._flight.keep_alone(message)
        self._broken = self._broken or error

    def _settle(self, message: Outgoing, outcome: str) -> None:
        self._flight.remove(message)
        self.buffer.settle(message)
        self.counters[outcome] += 1
        self._settled.set()

    def _refuse(self, message: Outgoing) -> None:
        self._settle(message, "too_large")
        self._seldom(
            "too_large",
            f"a message of {len(message.value)} bytes is above what {message.topic} takes and is "
            "lost; raise max.message.bytes of the topic",
        )

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        if self._in_trouble:
            self._in_trouble = False
            self._said_at.pop("trouble", None)
            self._say(f"Kafka takes messages again; {len(self.buffer)} wait")

    async def _wait(self) -> None:
        """Wait for a message, an answer or a while."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._wake.wait()
        self._look()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _look(self) -> None:
        """Tell what is lost or late.  Raises TimeoutError if Kafka is silent for too long."""
        self._raise_if_broken()
        self._tell_drops()
        silent = time.monotonic() - self._heard_at if self._flight else 0.0
        if silent > SAID_EVERY_SECONDS:
            self._trouble(f"no answer from Kafka for {silent:.0f} s")
        if silent > self._stall_seconds:
            raise TimeoutError(f"no answer from Kafka for {silent:.0f} s")

    async def _again(self, error: BaseException) -> None:
        """Replace the producer and begin again with what is unacknowledged."""
        if not isinstance(error, TOO_LARGE):
            reason = " ".join(str(error).split()) or type(error).__name__
            self._trouble(f"cannot send to Kafka ({reason})")
        self.counters["replaced"] += 1
        await self._leave_producer()
        self._tell_drops()
        if not isinstance(error, TOO_LARGE):
            await asyncio.sleep(RETRY_SECONDS)

    async def _leave_producer(self) -> None:
        """Let go of the producer; what it did not get acknowledged returns to the buffer."""
        producer, self._producer = self._producer, None
        if producer is not None and self._flight:
            await whole(abandon(producer))
        elif producer is not None:
            await stopped(producer)
        self._generation += 1
        self._broken = None
        self.buffer.put_back(self._flight.clear())

    def _trouble(self, what: str) -> None:
        self._in_trouble = True
        self._seldom("trouble", f"{what}; trying again, {len(self.buffer)} messages wait")

    def _tell_drops(self) -> None:
        dropped = self.buffer.dropped
        if dropped > self._told_dropped:
            full = f"the buffer of {self.buffer.max_bytes} bytes is full"
            if self._seldom("drops", f"{full}: {dropped} messages dropped, the oldest first"):
                self._told_dropped = dropped

    def _seldom(self, kind: str, text: str) -> bool:
        now = time.monotonic()
        if now - self._said_at.get(kind, -SAID_EVERY_SECONDS) < SAID_EVERY_SECONDS:
            return False
        self._said_at[kind] = now
        self._say(text)
        return True

"""Outputs on their way to Kafka: kept, in order, until they are acknowledged."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from schemas.deadletter import dead_letter
from schemas.topics import DEADLETTER
from streams.engine.faults import NOT_ALLOWED
from streams.outputs import Output
from transport.cancelling import cancelled, whole
from transport.kafka_producer import abandon, started

log = logging.getLogger(__name__)

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
RETRY_SECONDS = 1.0
STOP_SECONDS = 2.0
"""A producer's connections are closed within this."""

SAID_EVERY_SECONDS = 10.0


class _Letter:
    """An output with the promise that whoever put it may wait for."""

    __slots__ = ("acknowledged", "alone", "attempt", "output")

    def __init__(self, output: Output, acknowledged: "asyncio.Future[None]") -> None:
        self.output = output
        self.acknowledged = acknowledged
        self.attempt = 0
        self.alone = False
        """Goes without company: Kafka refused a batch for its size, and this was in it."""


class Outbox:
    """Sends outputs in the order in which they were put, and again until they are acknowledged.

    A producer that fails is replaced, and everything unacknowledged goes again: readers know a
    repetition by its revision or its place.  An output that Kafka refuses for its size becomes a
    dead letter; nothing else is ever given up.
    """

    def __init__(self, make_producer: Callable[[], AIOKafkaProducer], prefix: str) -> None:
        self.counters: Counter[str] = Counter()
        self.on_final: Callable[[Exception], None] = log.error
        """Called with the fault when outputs may not be written at all."""
        self._make = make_producer
        self._prefix = prefix
        self._producer: AIOKafkaProducer | None = None
        self._unsent: deque[_Letter] = deque()
        self._flying: dict[int, _Letter] = {}
        self._owners: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None
        self._said_at = -SAID_EVERY_SECONDS
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send; needs a running loop."""
        self._task = asyncio.create_task(self._run(), name="outbox")

    async def stop(self) -> None:
        """Stop sending; what is not acknowledged will be said again by a successor."""
        if self._task is not None:
            await cancelled([self._task])
        await self._leave_producer()

    def put(self, owner: Hashable, outputs: Iterable[Output]) -> None:
        """Send these after everything that was put before."""
        loop = asyncio.get_running_loop()
        promises = self._owners.setdefault(owner, deque())
        while promises and promises[0].done():
            promises.popleft()
        for output in outputs:
            letter = _Letter(output, loop.create_future())
            promises.append(letter.acknowledged)
            self._unsent.append(letter)
        self._wake.set()

    def waiting(self, owner: Hashable) -> int:
        """How many outputs of an owner are not acknowledged."""
        return sum(not promise.done() for promise in self._owners.get(owner, ()))

    async def acknowledged(self, owner: Hashable) -> None:
        """Return when everything that an owner has put until now is acknowledged."""
        for promise in list(self._owners.get(owner, ())):
            await asyncio.shield(promise)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_all()
            except NOT_ALLOWED as error:
                self.on_final(error)
                return
            except (KafkaError, OSError, TimeoutError) as error:
                await self._again(error)

    async def _send_all(self) -> None:
        if self._producer is None:
            self._producer = await started(self._make())
        while self._unsent and self._broken is None:
            letter = self._unsent[0]
            if letter.alone:
                await self._producer.flush()
            answer = await self._send(letter)
            self._unsent.popleft()
            self._flying[id(letter)] = letter
            if letter.alone:
                await asyncio.wait([answer])
                await asyncio.sleep(0)  # until it is answered
        if self._broken is not None:
            raise self._broken

    async def _send(self, letter: _Letter) -> "asyncio.Future[Any]":
        """Hand one to the producer; the answer comes to `_answered`."""
        out = letter.output
        try:
            answer = await self._sending(out)
        except TOO_LARGE:
            letter.output = self._too_large(out)
            answer = await self._sending(letter.output)
        letter.attempt += 1
        attempt = letter.attempt
        answer.add_done_callback(lambda future: self._answered(letter, attempt, future))
        return answer

    async def _sending(self, out: Output) -> "asyncio.Future[Any]":
        if self._producer is None:
            raise TimeoutError("the producer was stopped")
        answer: asyncio.Future[Any] = await self._producer.send(
            self._prefix + out.topic,
            out.value,
            key=out.key,
            partition=out.partition,
            headers=list(out.headers),
        )
        return answer

    def _answered(self, letter: _Letter, attempt: int, answer: "asyncio.Future[Any]") -> None:
        if answer.cancelled() or attempt != letter.attempt or letter.acknowledged.done():
            return
        error = answer.exception()
        if error is None:
            self._flying.pop(id(letter), None)
            self.counters["acknowledged"] += 1
            letter.acknowledged.set_result(None)
        else:
            if isinstance(error, TOO_LARGE):
                self._refused(letter)
            self._broken = error
            self._wake.set()

    def _refused(self, letter: _Letter) -> None:
        """A batch was above the limit: who is at fault shows when each goes alone."""
        if letter.alone:
            letter.output = self._too_large(letter.output)
        letter.alone = not letter.alone

    def _too_large(self, out: Output) -> Output:
        self.counters["too_large"] += 1
        log.error(
            "an output of %d bytes for %s/%d is above what the topic takes; it is a dead letter "
            "now, raise max.message.bytes of the topic",
            len(out.value or b""), out.topic, out.partition,
        )  # fmt: skip
        letter = dead_letter(
            out.value, topic=out.topic, partition=out.partition, offset=0,
            reason="above the topic's max.message.bytes",
        )  # fmt: skip
        return Output(DEADLETTER, out.partition, out.key, letter.value, letter.headers)

    async def _again(self, error: BaseException) -> None:
        """Replace the producer and send everything unacknowledged again, in order."""
        is_size = isinstance(error, TOO_LARGE)
        now = asyncio.get_running_loop().time()
        if not is_size and now - self._said_at >= SAID_EVERY_SECONDS:
            self._said_at = now
            log.warning("cannot send to Kafka: %s: %s; trying again", type(error).__name__, error)
        self.counters["retries"] += 1
        self._broken = None
        await self._leave_producer()
        for letter in self._flying.values():
            letter.attempt += 1
        self._unsent.extendleft(reversed(self._flying.values()))
        self._flying.clear()
        if not is_size:
            await asyncio.sleep(RETRY_SECONDS)
        self._wake.set()

    async def _leave_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await whole(abandon(producer, STOP_SECONDS))

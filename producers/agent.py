"""Takes messages as they come, in a thread, and hands them to Kafka without ever waiting for it."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from producers.buffer import Outgoing
from producers.pacing import Message, Stop
from producers.publisher import Publisher
from producers.source_topics import SourceTopics
from schemas.codec import encode
from schemas.topics import node_key, partition_of

FLUSH_SECONDS = 10.0
"""How long an end waits for what is not yet delivered; Kubernetes gives a pod 30 s."""

ROOM_SECONDS = 0.01


class Agent:
    """Reads its messages in a thread of its own: a scrape may block, Kafka may be away.

    `patient` is for sources that can wait, such as a simulation at unbounded speed: they go on when
    the buffer is at most half full.  All others are never held up; the buffer drops.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        publisher: Publisher,
        topics: SourceTopics,
        stop: Stop,
        *,
        patient: bool = False,
    ) -> None:
        self.event_time_ms: int | None = None
        """`observed_at` of the newest message that was taken."""
        self._messages = messages
        self._publisher = publisher
        self._topics = topics
        self._stop = stop
        self._patient = patient

    async def run(self, flush_seconds: float = FLUSH_SECONDS) -> int:
        """Publish all messages, or until an end is asked for.

        Returns how many were not delivered when the time to flush was over.  Messages dropped
        before are counted by the buffer, those refused by the publisher.
        """
        self._publisher.start()
        try:
            await asyncio.to_thread(self._take_all)
        finally:
            self._stop.asked = True
            undelivered = await self._publisher.close(flush_seconds)
        return undelivered

    def _take_all(self) -> None:
        try:
            for message in self._messages:
                self._wait_for_room()
                self._publisher.put(self._outgoing(message))
                self.event_time_ms = message.observed_at_ms
        except KeyboardInterrupt:  # Stop's way to say that an end was asked for
            return

    def _wait_for_room(self) -> None:
        self._stop.check()
        buffer = self._publisher.buffer
        while self._patient and buffer.size_bytes > buffer.max_bytes // 2:
            time.sleep(ROOM_SECONDS)
            self._stop.check()

    def _outgoing(self, message: Message) -> Outgoing:
        topics = self._topics
        topic = topics.pods if message.type == "pod_event" else topics.telemetry
        key = node_key(message.cluster, message.node)
        return Outgoing(topic, partition_of(key, topics.partitions), key, encode(message))


def with_boot(messages: Iterable[Message], boot: str) -> Iterator[Message]:
    """Simulated messages with `boot` in their boot ids.

    A simulation counts from 0 each time: without another boot id its second run would be taken for
    a repetition of the first.
    """
    for message in messages:
        if message.type == "node_telemetry":
            struct = cast("msgspec.Struct", message)
            boot_id = f"{message.boot_id}-{boot}"
            yield cast("Message", msgspec.structs.replace(struct, boot_id=boot_id))
        else:
            yield message

"""Topics on Apache Kafka: publish to a named partition, read from an offset.

For what needs no group and no transaction: the command line, agents that look where they were,
tails and exports.  The workers' engine has clients of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from transport.connection import Connection
from transport.contract import (
    Headers,
    MessageTooLargeError,
    Record,
    TransportError,
    UnknownPartitionError,
)
from transport.kafka_closing import closed
from transport.kafka_errors import FAILURES, bootstrapped, translated
from transport.kafka_producer import started, stopped
from transport.kafka_reader import TopicReader

LONE_MESSAGES: Final = "lz4"
"""The codec for batches that hold one message, as an agent's do: the cheapest to write and read."""
FULL_BATCHES: Final = "zstd"
"""The codec for batches that are full, as a worker's outputs and checkpoints are: smaller, and
cheaper than aiokafka's lz4, which always compresses at its highest level."""

REQUEST_BYTES: Final = 64 * 2**20
"""Our own limit of one uncompressed message; a topic's is lower and compares compressed bytes."""

TIMEOUT_SECONDS = 30.0
METADATA_SECONDS = 0.1
"""Between two looks whether a producer has heard of a new partition."""


class KafkaTransport:
    """Passes `tests/transport/contract_suite.py`.  Made and used within one running loop.

    Clients are started at their first use.  No call takes longer than `timeout_seconds` and the
    few seconds in which the cause of a failure is looked for.  `topic` in every call is the whole
    name: whoever calls puts the prefix in front (`Connection.topic`).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        compression: str | None = LONE_MESSAGES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._compression = compression
        self._options = connection.client_options()
        self._timed = {**self._options, "request_timeout_ms": round(timeout_seconds * 1000)}
        self._client: AIOKafkaClient | None = None
        self._producer: AIOKafkaProducer | None = None
        self._readers: dict[str, TopicReader] = {}
        self._counts: dict[str, int] = {}
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Make the first connection.  Not needed, but tells at once whether Kafka can be used.

        Raises UnreachableError, CredentialsError or ConnectionSettingsError.
        """
        async with self._words("connect"):
            await self._asking()

    async def stop(self) -> None:
        """Close every connection; what is not acknowledged by then may be lost."""
        readers, self._readers = self._readers, {}
        producer, self._producer = self._producer, None
        client, self._client = self._client, None
        for reader in readers.values():
            await reader.stop()
        if producer is not None:
            await stopped(producer)
        if client is not None:
            await closed(client)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        """See Transport.publish.  A record may be there twice if an acknowledgement was lost.

        Records are in order for a caller that awaits each; calls at the same time have none.

        Raises UnknownPartitionError, MessageTooLargeError, NotAuthorizedError, CredentialsError or
        UnreachableError; after the last one the record may still have been written.
        """
        if key is None and value is None:
            raise TransportError(f"a record of {topic} needs a key or a value")
        async with self._words(f"write {topic}", topic):
            await self._must_exist(topic, partition)
            producer = await self._writing()
            while partition not in await producer.partitions_for(topic):
                await producer.client.force_metadata_update()
                await asyncio.sleep(METADATA_SECONDS)
            try:
                sent = await producer.send_and_wait(
                    topic, value, key=key, partition=partition, headers=list(headers)
                )
            except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
                raise MessageTooLargeError(topic, _size(key, value, headers)) from error
            return int(sent.offset)

    async def read(
        self, topic: str, partition: int, offset: int, max_records: int
    ) -> Sequence[Record]:
        """See Transport.read.  Records of transactions that are open or aborted are not seen."""
        async with self._words(f"read {topic}", topic):
            reader = await self._reading(topic, partition)
            return await reader.read(partition, offset, max_records)

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """See Transport.offsets; an open transaction holds the end where it began."""
        async with self._words(f"read {topic}", topic):
            reader = await self._reading(topic, partition)
            return await reader.bounds(partition)

    async def partitions(self, topic: str) -> int:
        """See Transport.partitions; asks the broker each time, and creates nothing by asking."""
        async with self._words(f"describe {topic}", topic):
            return await self._count(topic)

    @asynccontextmanager
    async def _words(self, doing: str, topic: str = "") -> AsyncIterator[None]:
        """Bound the time of what happens inside, and say in our words what went wrong."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except TransportError:
            raise
        except FAILURES as error:
            self._counts.pop(topic, None)
            raise await translated(error, self._options, doing, topic) from error

    async def _must_exist(self, topic: str, partition: int) -> int:
        count = self._counts.get(topic, 0)
        if not 0 <= partition < count:
            count = await self._count(topic)
        if not 0 <= partition < count:
            raise UnknownPartitionError(
                f"{topic} has no partition {partition}; it has {count} from 0 on"
            )
        return count

    async def _count(self, topic: str) -> int:
        client = await self._asking()
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        answer = await client.send(client.get_random_node(), request)
        (found,) = answer.to_object()["topics"]
        if found["error_code"]:
            raise _error(found["error_code"], topic)
        self._counts[topic] = len(found["partitions"])
        return self._counts[topic]

    async def _asking(self) -> AIOKafkaClient:
        async with self._starting:
            if self._client is None:
                client = AIOKafkaClient(**self._timed)
                try:
                    await bootstrapped(client)
                except BaseException:
                    await closed(client)
                    raise
                self._client = client
        return self._client

    async def _writing(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._timed,
                    acks="all",
                    compression_type=self._compression,
                    max_request_size=REQUEST_BYTES,
                )
                self._producer = await started(producer, self._timeout_seconds)
        return self._producer

    async def _reading(self, topic: str, partition: int) -> TopicReader:
        count = await self._must_exist(topic, partition)
        async with self._starting:
            reader = self._readers.get(topic)
            if reader is not None and reader.partitions < count:
                del self._readers[topic]
                await reader.stop()
                reader = None
            if reader is None:
                reader = TopicReader(self._timed, topic, count)
                try:
                    await reader.start()
                except BaseException:
                    await reader.stop()
                    raise
                self._readers[topic] = reader
        return reader


def _error(code: int, topic: str) -> KafkaError:
    kind: type[KafkaError] = for_code(code)
    if kind in {TopicAuthorizationFailedError, UnknownTopicOrPartitionError}:
        return kind(topic)
    return kind()


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    of_headers = sum(len(name.encode()) + len(text) for name, text in headers)
    return len(key or b"") + len(value or b"") + of_headers

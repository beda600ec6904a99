"""What an agent has to know of its topics before it begins: partitions, and the newest time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.codec import DecodeError, Decoder
from schemas.hot import NodeTelemetry
from schemas.topics import TELEMETRY
from transport.cancelling import whole
from transport.contract import TransportError, UnknownPartitionError
from transport.kafka_closing import closed

LAST_RECORDS = 50
"""Of each partition: enough that the newest scrape of several nodes is among them."""
POLL_MS = 500
QUIET_POLLS = 10
"""A partition that gives nothing for so long is left out."""


class SourceTopics(NamedTuple):
    """Where a node's messages go: names as Kafka knows them, and the partitions of each."""

    telemetry: str
    pods: str
    partitions: int


async def source_topics(options: Mapping[str, Any], telemetry: str, pods: str) -> SourceTopics:
    """The topics with their number of partitions, which is the same for both.

    Raises UnknownPartitionError for a topic that is missing (it is never created by asking) and
    TransportError where they differ; KafkaError, OSError or TimeoutError where Kafka is away.
    """
    admin = AIOKafkaAdminClient(**options)
    try:
        await whole(admin.start())
        described = await admin.describe_topics()
    finally:
        await closed(admin)
    found = {one["topic"]: len(one["partitions"]) for one in described if not one["error_code"]}
    if missing := [topic for topic in (telemetry, pods) if topic not in found]:
        msg = f"there is no topic {', '.join(missing)}; run `gpuvigil topics create`"
        raise UnknownPartitionError(msg)
    if found[telemetry] != found[pods]:
        msg = (
            f"the source topics need the same number of partitions: {telemetry} has "
            f"{found[telemetry]}, {pods} has {found[pods]}; see `gpuvigil topics check`"
        )
        raise TransportError(msg)
    return SourceTopics(telemetry, pods, found[telemetry])


async def newest_observed_ms(options: Mapping[str, Any], topics: SourceTopics) -> int | None:
    """The newest `observed_at` among the last records of the telemetry topic; None if it is empty.

    What can't be read is left out: it only serves to begin after it.
    """
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False)
    try:
        await whole(consumer.start())
        places = [TopicPartition(topics.telemetry, n) for n in range(topics.partitions)]
        consumer.assign(places)
        return await _newest(consumer, places)
    finally:
        await closed(consumer)


async def _newest(consumer: AIOKafkaConsumer, places: list[TopicPartition]) -> int | None:
    begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    for place in places:
        consumer.seek(place, max(begins[place], ends[place] - LAST_RECORDS))
    left = {place for place in places if begins[place] < ends[place]}
    decoder, newest, quiet = Decoder(NodeTelemetry, TELEMETRY), None, 0
    while left and quiet < QUIET_POLLS:
        batch = await consumer.getmany(*left, timeout_ms=POLL_MS)
        quiet = 0 if batch else quiet + 1
        for place, records in batch.items():
            for record in records:
                observed = _observed_ms(decoder, record)
                newest = observed if newest is None else max(newest, observed or newest)
            if records[-1].offset + 1 >= ends[place]:
                left.discard(place)
    return newest


def _observed_ms(decoder: Decoder[NodeTelemetry], record: Any) -> int | None:  # noqa: ANN401 - aiokafka has no types
    try:
        message = decoder.decode(
            record.value, partition=record.partition, offset=record.offset, key=record.key
        )
    except DecodeError:
        return None
    return message.observed_at_ms

"""Topics of a real broker as tests make and read them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from transport.kafka_closing import closed


async def create(
    bootstrap: str, *names: str, partitions: int = 4, config: Mapping[str, str] | None = None
) -> None:
    """Make topics of one replica."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    topics = [NewTopic(name, partitions, 1, topic_configs=dict(config or {})) for name in names]
    answer = await admin.create_topics(topics)
    await _until_known(admin, dict.fromkeys(names, partitions))
    await admin.close()
    assert [error[1] for error in answer.topic_errors] == [0] * len(names)


async def widen(bootstrap: str, name: str, partitions: int) -> None:
    """Give a topic more partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_partitions({name: NewPartitions(total_count=partitions)})
    await _until_known(admin, {name: partitions})
    await admin.close()


async def _until_known(admin: AIOKafkaAdminClient, wanted: Mapping[str, int]) -> None:
    """The broker hears of a change from the controller, a moment after that has answered."""
    async with asyncio.timeout(10):
        while True:
            known = {
                one["topic"]: len(one["partitions"])
                for one in await admin.describe_topics()
                if not one["error_code"]
            }
            if all(known.get(name) == count for name, count in wanted.items()):
                return
            await asyncio.sleep(0.05)


async def records(bootstrap: str, name: str, partitions: int = 4) -> dict[int, list[Any]]:
    """Everything that a topic holds, by partition in order."""
    places = [TopicPartition(name, number) for number in range(partitions)]
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    consumer.assign(places)
    await consumer.seek_to_beginning(*places)
    ends = await consumer.end_offsets(places)
    found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
    for place in places:
        while await consumer.position(place) < ends[place]:
            for batch in (await consumer.getmany(place, timeout_ms=500)).values():
                found[place.partition] += batch
    await closed(consumer)
    return found

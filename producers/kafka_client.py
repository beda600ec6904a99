"""The Kafka client of a node: how it is set."""

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer

from schemas.codec import MAX_MESSAGE_BYTES

BATCH_BYTES = 128 * 2**10
LINGER_MS = 5
REQUEST_TIMEOUT_MS = 20_000


def kafka_producer(options: Mapping[str, Any]) -> AIOKafkaProducer:
    """A producer for scrapes, idempotent.  lz4 is the cheapest codec where a batch holds one."""
    return AIOKafkaProducer(
        **options,
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=MAX_MESSAGE_BYTES,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )

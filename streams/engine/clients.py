"""How the engine's Kafka clients are set up, and why."""

import logging

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from transport.connection import Connection

FULL_BATCHES = "zstd"
"""For batches of many records the smaller codec, and 3.8 times cheaper than aiokafka's lz4."""

BATCH_BYTES = 1 << 18
MESSAGE_BYTES = 8 << 20
"""As `max.message.bytes` of the topics that hold states and windows."""

FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 500
LINGER_MS = 5
FAUST_LOG = logging.getLogger("faust.gpuvigil")
"""What Faust and mode say of classes that are derived from theirs."""

TRANSACTION_MS = 60_000
REBALANCE_MS = 30_000


def output_producer(connection: Connection) -> AIOKafkaProducer:
    """For outputs: in order, each once for as long as the producer lives."""
    return AIOKafkaProducer(
        **connection.client_options(),
        acks="all",
        enable_idempotence=True,
        compression_type=FULL_BATCHES,
        max_batch_size=BATCH_BYTES,
        max_request_size=MESSAGE_BYTES,
        linger_ms=LINGER_MS,
    )


def state_producer(connection: Connection, stage: str, partition: int) -> AIOKafkaProducer:
    """For the checkpoints of one seat: starting it fences whoever had its id before."""
    return AIOKafkaProducer(
        **connection.client_options(),
        acks="all",
        transactional_id=f"{connection.prefix}gpuvigil-{stage}-{partition}",
        transaction_timeout_ms=TRANSACTION_MS,
        compression_type=FULL_BATCHES,
        max_batch_size=BATCH_BYTES,
        max_request_size=MESSAGE_BYTES,
        linger_ms=LINGER_MS,
    )


def state_consumer(connection: Connection) -> AIOKafkaConsumer:
    """For loading checkpoints: what was committed and nothing else, without a group."""
    return AIOKafkaConsumer(
        **connection.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=MESSAGE_BYTES,
    )


def group_consumer(
    connection: Connection, *, group: str, instance_id: str | None, session_seconds: float
) -> AIOKafkaConsumer:
    """A member of the workers' group.

    The range assignor gives partition n of every source topic to the same member, which the
    engine needs: one worker sees all of a node.
    """
    return AIOKafkaConsumer(
        **connection.client_options(),
        group_id=connection.prefix + group,
        group_instance_id=instance_id,
        partition_assignment_strategy=[RangePartitionAssignor],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=round(session_seconds * 1000),
        heartbeat_interval_ms=round(session_seconds * 250),
        rebalance_timeout_ms=REBALANCE_MS,
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_poll_interval_ms=600_000,
        request_timeout_ms=round(max(40.0, session_seconds * 2) * 1000),
    )


async def raise_pending(consumer: AIOKafkaConsumer) -> None:
    """Raise what went wrong with the membership, which aiokafka else tells only to who fetches."""
    coordinator = consumer._coordinator  # noqa: SLF001 - under the guard test
    if coordinator is not None:
        coordinator.check_errors()

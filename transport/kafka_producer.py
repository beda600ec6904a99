"""How a producer of aiokafka is started, ended, and given up, each within seconds.

`AIOKafkaProducer.stop` waits for what is not acknowledged, without end where the broker is away.
"""

import asyncio

from aiokafka import AIOKafkaProducer

from transport.cancelling import whole
from transport.kafka_closing import cut, ending

START_SECONDS = 20.0
STOP_SECONDS = 5.0


async def started(producer: AIOKafkaProducer, within: float = START_SECONDS) -> AIOKafkaProducer:
    """The producer, ready.  Raises one of TROUBLE, and then nothing of it is left."""
    try:
        async with asyncio.timeout(within):
            await whole(producer.start())
    except BaseException:
        await whole(abandon(producer))
        raise
    return producer


async def stopped(producer: AIOKafkaProducer, within: float = STOP_SECONDS) -> None:
    """End a producer; what it can't deliver in time is given up with it."""
    try:
        async with ending(within):
            await producer.stop()
    finally:
        await whole(abandon(producer, within))


async def abandon(producer: AIOKafkaProducer, within: float = STOP_SECONDS) -> None:
    """End a producer at once, with whatever it still holds.

    Nothing of it may live on, or it would send its messages after those of its successor.
    """
    task = producer._sender.sender_task  # noqa: SLF001 - aiokafka has no public way to give up
    if task is not None:
        task.cancel()
        await asyncio.wait([task], timeout=within)
    _settle(producer)
    try:
        async with ending(within):
            await producer.client.close()
    finally:
        await cut(producer.client)
        producer._closed = True  # noqa: SLF001 - so that it is not taken for a forgotten one


def _settle(producer: AIOKafkaProducer) -> None:
    """Take note of failures that nobody waits for: Python would report each with a traceback.

    Where the sender has failed, aiokafka fails the wait for room behind each batch as well, and the
    wait for the end of the transaction.
    """
    batches = producer._message_accumulator._batches.values()  # noqa: SLF001 - as above
    waits = [batch._drain_waiter for queue in batches for batch in queue]  # noqa: SLF001
    if producer._txn_manager is not None:  # noqa: SLF001
        waits.append(producer._txn_manager._transaction_waiter)  # noqa: SLF001
    for wait in waits:
        if wait is not None and wait.done() and not wait.cancelled():
            wait.exception()

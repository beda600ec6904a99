"""How a client of aiokafka ends: in order where there is time for it, and never half.

aiokafka forgets its connections where an end in order fails or is given up, and where a task was
still opening one.  A forgotten connection stays open for as long as the broker likes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

CLOSE_SECONDS = 5.0
CUT_SECONDS = 1.0
"""A socket closes in the loop's next turn; no peer is asked."""

TROUBLE = (KafkaError, OSError, TimeoutError, AssertionError)
"""What a client that lost its broker may raise.  AssertionError is aiokafka's answer to a partition
that the topic no longer has."""


@asynccontextmanager
async def ending(within: float) -> AsyncIterator[None]:
    """Within it a client ends, in that many seconds; what goes wrong meanwhile is its own.

    So is the cancellation of its tasks: aiokafka awaits those that it has cancelled, and a
    CancelledError comes out of them although nobody wanted to interrupt the end.
    """
    task = asyncio.current_task()
    asked = 0 if task is None else task.cancelling()
    try:
        async with asyncio.timeout(within):
            yield
    except TROUBLE:
        pass
    except asyncio.CancelledError:
        if task is None or task.cancelling() > asked:
            raise


class _Cut(dict[Any, Any]):
    """The connections of a client that has ended: what is opened from now on is closed at once."""

    def __setitem__(self, place: object, connection: Any) -> None:  # noqa: ANN401 - aiokafka has no types
        connection.close()
        super().__setitem__(place, connection)


async def closed(
    one: AIOKafkaConsumer | AIOKafkaAdminClient | AIOKafkaClient, within: float = CLOSE_SECONDS
) -> None:
    """End a consumer, an admin client or a bare client; what goes wrong meanwhile is its own."""
    bare = isinstance(one, AIOKafkaClient)
    try:
        async with ending(within):
            await (one.stop() if isinstance(one, AIOKafkaConsumer) else one.close())
    finally:
        await cut(one if bare else one._client)  # noqa: SLF001 - aiokafka has no public way


async def cut(client: AIOKafkaClient) -> None:
    """Close whatever connections a client still has, or is about to have."""
    held = client._conns  # noqa: SLF001 - aiokafka has no public way
    client._conns = _Cut(held)  # noqa: SLF001
    gone = []
    for connection in held.values():
        writer = connection._writer  # noqa: SLF001
        gone.append(connection.close())
        if writer is not None:
            writer.transport.abort()  # what a silent broker does not take would keep it open
    if gone:
        await asyncio.wait(gone, timeout=CUT_SECONDS)

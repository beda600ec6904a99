"""Ending tasks that wait for Kafka."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

AGAIN_SECONDS = 2.0
"""Long enough for whatever a task has to close: a second cancellation would interrupt that."""

Result = TypeVar("Result")


async def cancelled(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """End tasks, asking again where one goes on; what they raise is theirs.

    Until Python 3.12 `asyncio.wait_for`, which aiokafka uses, loses a cancellation that comes
    together with its result.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)


async def whole(work: Coroutine[Any, Any, Result]) -> Result:
    """Await what should not be interrupted; a cancellation takes effect at its end.

    For the start of a client of aiokafka, which forgets the connection over which it was asking for
    the cluster's brokers when it is cancelled.  Work that goes on for AGAIN_SECONDS is interrupted
    after all: then it waits for a broker that does not answer.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=AGAIN_SECONDS)
            await cancelled({task})

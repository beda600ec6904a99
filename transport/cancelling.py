"""Ending tasks that wait for Kafka."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 2.0
"""Long enough for whatever a task has to close: a second cancellation would interrupt that."""


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

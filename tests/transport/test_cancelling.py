"""Tasks end, also one that misses the first time."""

import asyncio

from transport.cancelling import cancelled


async def test_a_task_that_misses_a_cancellation_ends_too() -> None:
    missed = 0

    async def misses_one() -> None:
        nonlocal missed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if missed:
                    raise
                missed += 1

    tasks = [asyncio.create_task(misses_one()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await cancelled(tasks)
    assert missed == 1
    assert all(task.done() for task in tasks)


async def test_what_a_task_has_raised_is_left_to_it() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await cancelled([task])
    assert isinstance(task.exception(), ZeroDivisionError)

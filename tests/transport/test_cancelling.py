"""What is done before a cancellation takes effect."""

import asyncio

import pytest

from transport import cancelling
from transport.cancelling import whole


async def test_a_cancellation_waits_for_the_end_of_what_it_interrupts() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.05)
        ended.set()

    task = asyncio.create_task(whole(work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_work_without_an_end_is_interrupted_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancelling, "AGAIN_SECONDS", 0.05)
    interrupted = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    task = asyncio.create_task(whole(work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert interrupted.is_set()


async def test_the_result_and_the_error_are_those_of_the_work() -> None:
    async def gives() -> int:
        return 7

    async def raises() -> None:
        raise OSError("no route")

    assert await whole(gives()) == 7
    with pytest.raises(OSError, match="no route"):
        await whole(raises())

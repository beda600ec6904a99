"""The first contact with Kafka: tried again for a while, with a word for whoever waits."""

import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from transport.contract import TransportError, UnreachableError
from transport.kafka_errors import one_line, why_unreachable

T = TypeVar("T")

GIVE_UP_SECONDS = 60.0
RETRY_SECONDS = 5.0


async def contacted(
    attempt: Callable[[], Awaitable[T]], options: Mapping[str, Any], say: Callable[[str], None]
) -> T:
    """What the attempt returns, made again while Kafka is away.

    Raises UnreachableError when the time is over, and any other TransportError at once: waiting
    mends no password.
    """
    end = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return await attempt()
        except (UnreachableError, KafkaError, OSError, TimeoutError) as error:
            reason = await _reason(error, options)
            if not isinstance(reason, UnreachableError) or time.monotonic() + RETRY_SECONDS > end:
                raise reason from error
            say(f"{reason}; trying again")
        await sleep(RETRY_SECONDS)


async def _reason(error: Exception, options: Mapping[str, Any]) -> TransportError:
    if isinstance(error, TransportError):
        return error
    return await why_unreachable(options, one_line(error))

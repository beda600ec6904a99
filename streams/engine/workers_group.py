"""Whether workers are at work on an installation: what moves states needs them to be stopped."""

import asyncio
from contextlib import suppress

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorError,
    for_code,
)

from streams.engine.app import GROUP
from streams.engine.state_files import StateFileError
from transport.cancelling import whole
from transport.connection import Connection
from transport.kafka_closing import closed
from transport.kafka_errors import FAILURES, translated

ASK_SECONDS = 30.0
RETRY_SECONDS = 0.3
AT_REST = frozenset({"Empty", "Dead"})
"""States of a group without members."""

NOT_YET = (CoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorError)
"""A broker that has just begun needs time to find its groups."""


async def refuse_workers(connection: Connection) -> None:
    """Raises StateFileError while the workers' group has members, TransportError if not told."""
    group = connection.prefix + GROUP
    options = connection.client_options()
    admin = AIOKafkaAdminClient(**options)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await whole(admin.start())
            code, state, members = await _described(admin, group)
    except FAILURES as error:
        raise await translated(error, options, f"describe the group {group}", group) from error
    finally:
        await closed(admin)
    if code:
        kind = for_code(code)
        raise await translated(kind(), options, f"describe the group {group}", group)
    if state not in AT_REST:
        raise StateFileError(
            f"the group {group} is {state} with {members} members: stop the workers and try again "
            "(one that has an instance id stays a member until its session ends)"
        )


async def _described(admin: AIOKafkaAdminClient, group: str) -> tuple[int, str, int]:
    """The group's error code, its state and the number of its members."""
    while True:
        with suppress(*NOT_YET):
            (answer,) = await admin.describe_consumer_groups([group])
            code, _, state, _, _, members = answer.groups[0][:6]
            if for_code(code) not in NOT_YET:
                return code, state, len(members)
        await asyncio.sleep(RETRY_SECONDS)

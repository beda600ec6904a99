"""Makes topics and tells how they are; changes nothing that exists."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from transport.cancelling import whole
from transport.connection import Connection
from transport.contract import TransportError
from transport.kafka_closing import closed
from transport.kafka_errors import FAILURES, not_authorized, translated
from transport.layout import TopicLayout

TIMEOUT_SECONDS = 30.0
LOOK_SECONDS = 0.2
NO_ACCESS = (ClusterAuthorizationFailedError, TopicAuthorizationFailedError)


class KafkaAdmin:
    """A connection for topics; an asynchronous context manager.

    Every call raises TransportError, of the kind that `transport.kafka_errors` finds, after at most
    `timeout_seconds` and the few seconds in which it looks for the cause.
    """

    def __init__(self, connection: Connection, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._options = connection.client_options()
        self._timeout_seconds = timeout_seconds
        self._client = AIOKafkaAdminClient(
            **self._options, request_timeout_ms=round(timeout_seconds * 1000)
        )

    async def __aenter__(self) -> Self:
        try:
            async with self._words("connect"):
                await whole(self._client.start())
                await self._count_brokers()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def brokers(self) -> int:
        """How many brokers there are."""
        async with self._words("describe the cluster"):
            return await self._count_brokers()

    async def layouts(self, names: Iterable[str]) -> dict[str, TopicLayout]:
        """Those of the named topics that exist and that this client may see, as they are."""
        wanted = set(names)
        async with self._words("describe topics"):
            described = await self._client.describe_topics()  # of all, so that none is created
            there = {
                one["topic"]: one["partitions"]
                for one in described
                if one["topic"] in wanted and not one["error_code"]
            }
            configs = await self._configs(there)
        return {
            name: TopicLayout(name, len(parts), len(parts[0]["replicas"]), configs[name])
            for name, parts in there.items()
        }

    async def create(self, layouts: Iterable[TopicLayout]) -> list[str]:
        """Make topics; one that exists is left as it is.  Returns the names of the new ones."""
        topics = [_new(layout) for layout in layouts]
        if not topics:
            return []
        async with self._words("create topics"):
            answer = await self._client.create_topics(topics)
            made = [name for name, *error in answer.topic_errors if self._is_new(name, *error)]
            await self._seen(made)
        return made

    def _is_new(self, name: str, code: int, message: str | None = None) -> bool:
        if not code:
            return True
        kind = for_code(code)
        if kind is TopicAlreadyExistsError:
            return False
        if kind in NO_ACCESS:
            raise not_authorized(self._options, f"create {name}", f"topic {name}")
        raise TransportError(f"could not create {name}: {message or kind.__name__}")

    async def _count_brokers(self) -> int:
        described = await self._client.describe_cluster()
        return len(described["brokers"])

    async def _seen(self, names: list[str]) -> None:
        """Wait until the broker that answers has heard of new topics from the controller."""
        while names:
            described = await self._client.describe_topics()
            ready = {one["topic"] for one in described if not one["error_code"]}
            names = [name for name in names if name not in ready]
            if names:
                await asyncio.sleep(LOOK_SECONDS)

    async def _configs(self, names: Iterable[str]) -> Mapping[str, dict[str, str]]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        answers = await self._client.describe_configs(asked) if asked else []
        found: dict[str, dict[str, str]] = {}
        for code, message, _, name, entries in (one for a in answers for one in a.resources):
            kind = for_code(code)
            if kind in NO_ACCESS:
                what = f"read the settings of {name}"
                raise not_authorized(self._options, what, f"topic {name} (DescribeConfigs)")
            if code:
                raise TransportError(f"no settings of {name}: {message or kind.__name__}")
            found[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        return found

    @asynccontextmanager
    async def _words(self, doing: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except TransportError:
            raise
        except FAILURES as error:
            raise await translated(error, self._options, doing) from error

    async def _close(self) -> None:
        await closed(self._client)


def _new(layout: TopicLayout) -> Any:  # noqa: ANN401 - aiokafka has no types
    replication = 1 if layout.replication is None else layout.replication
    config = dict(layout.config)
    return NewTopic(layout.name, layout.partitions, replication, topic_configs=config)

"""What every transport does: publish to a partition, read from an offset, and nothing else."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """A message as a topic holds it."""

    topic: str
    partition: int
    offset: int
    append_time_ms: int
    """The broker's clock when it took the record, milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class TransportError(Exception):
    """A fault of a transport; its text says what to do."""


class UnknownPartitionError(TransportError):
    """The topic or partition does not exist."""


class OffsetOutOfRangeError(TransportError):
    """The offset lies outside what the partition holds."""


class ConnectionSettingsError(TransportError):
    """A setting or a file of the connection is wrong: nothing was sent."""


class UnreachableError(TransportError):
    """No broker answered in time; it may later."""


class CredentialsError(TransportError):
    """The broker refused who we are, or we refused the broker: trying again changes nothing."""


class NotAuthorizedError(TransportError):
    """The broker knows us and does not let us do this: an ACL is missing."""


class MessageTooLargeError(TransportError):
    """The message is larger than the topic takes."""

    def __init__(self, topic: str, size_bytes: int) -> None:
        super().__init__(
            f"a message of {size_bytes} bytes is too large for {topic}; raise the topic's "
            "max.message.bytes, or send less in one message"
        )
        self.topic = topic
        self.size_bytes = size_bytes


class Transport(Protocol):
    """Ordered partitions.  All implementations pass `tests/transport/contract_suite.py`."""

    async def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        """Append a record and return its offset once it is acknowledged."""
        ...

    async def read(
        self, topic: str, partition: int, offset: int, max_records: int
    ) -> Sequence[Record]:
        """Up to `max_records` from `offset` on, in order; empty at the end of the partition.

        Raises OffsetOutOfRangeError below the beginning or above the end.
        """
        ...

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset held and the one that the next record will get."""
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has.  Raises UnknownPartitionError if there is none."""
        ...

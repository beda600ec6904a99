"""What operators give back, and the counters and the brake that they share."""

from typing import NamedTuple

from schemas.deadletter import dead_letter
from schemas.topics import DEADLETTER
from transport.contract import Headers, Record

QUARANTINE_PER_MINUTE = 10
MINUTE_MS = 60_000


class Output(NamedTuple):
    """A message to publish."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def buried(record: Record, reason: str) -> Output:
    """The dead letter of a record, in the partition of the same number."""
    letter = dead_letter(
        record.value,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=reason,
    )
    return Output(DEADLETTER, record.partition, record.key, letter.value, letter.headers)


class WrongPartitionError(Exception):
    """A record lies in a partition that its key does not belong to."""


class TooManyFaultsError(Exception):
    """More keys failed within a minute than can be bad luck: the worker has to stop."""


class Quarantine:
    """Counts keys whose operator raised; above ten in a minute of append time it gives up."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        """When each key failed last, milliseconds."""

    def note(self, key: str, now_ms: int, error: Exception) -> str:
        """The reason for the dead letter.  Raises TooManyFaultsError above the limit."""
        recent = {k: at for k, at in self._keys.items() if now_ms - at < MINUTE_MS}
        self._keys = recent | {key: now_ms}
        if len(self._keys) > QUARANTINE_PER_MINUTE:
            raise TooManyFaultsError(
                f"more than {QUARANTINE_PER_MINUTE} keys failed within a minute, the last with "
                f"{type(error).__name__}: {error}; this is a fault of gpuvigil, not of the data"
            ) from error
        return f"operator raised {type(error).__name__}: {error}"

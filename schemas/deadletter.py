"""A message that could not be used, kept with the reason for the people who look after it."""

import hashlib
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import Field

from schemas.wire import Count, Text, Wire

MAX_ORIGINAL_BYTES = 256 * 2**10
"""What a dead letter holds of the original at most."""

MAX_REASON_CHARACTERS = 1000

Headers = tuple[tuple[str, bytes], ...]


class DeadLetterHeaders(Wire):
    """Where a dead letter comes from and why it is one; on Kafka each field is a header in text."""

    topic: Text
    partition: Count
    offset: Count
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]
    truncated: bool
    """True: the value is only the beginning of the original."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Of the whole original, in hexadecimal; None where the original had no value."""

    def to_headers(self) -> Headers:
        """Give the fields as Kafka headers; one that is None is left out."""
        return tuple((name, _text(value).encode()) for name, value in self if value is not None)

    @classmethod
    def from_headers(cls, headers: Iterable[tuple[str, bytes]]) -> "DeadLetterHeaders":
        """Read what `to_headers` gave; other headers are ignored, the last of a name counts.

        Raises pydantic's ValidationError where one is missing or wrong.
        """
        known = {name: raw.decode("utf-8", "replace") for name, raw in headers}
        return cls.model_validate_strings(known)


class DeadLetter(NamedTuple):
    """What is published to `gpu.deadletter` under the original's key."""

    value: bytes | None
    headers: Headers


def dead_letter(
    original: bytes | None, *, topic: str, partition: int, offset: int, reason: str
) -> DeadLetter:
    """Cut a message to what the topic takes and say where it was and why it is here."""
    cut = None if original is None else original[:MAX_ORIGINAL_BYTES]
    headers = DeadLetterHeaders(
        topic=topic,
        partition=partition,
        offset=offset,
        reason=_clean(reason)[:MAX_REASON_CHARACTERS],
        truncated=cut != original,
        sha256=None if original is None else hashlib.sha256(original).hexdigest(),
    )
    return DeadLetter(cut, headers.to_headers())


def _clean(text: str) -> str:
    """Replace half surrogates, which a traceback may hold and UTF-8 can't."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.deadletter import MAX_ORIGINAL_BYTES, DeadLetterHeaders, dead_letter


@pytest.mark.parametrize(
    ("size", "truncated"), [(0, False), (MAX_ORIGINAL_BYTES, False), (MAX_ORIGINAL_BYTES + 1, True)]
)
def test_the_original_is_cut(size: int, truncated: bool) -> None:  # noqa: FBT001
    original = b"x" * size
    letter = dead_letter(original, topic="gpu.telemetry", partition=3, offset=42, reason="odd")
    assert letter.value == original[:MAX_ORIGINAL_BYTES]
    assert dict(letter.headers) == {
        "topic": b"gpu.telemetry",
        "partition": b"3",
        "offset": b"42",
        "reason": b"odd",
        "truncated": b"true" if truncated else b"false",
        "sha256": hashlib.sha256(original).hexdigest().encode(),
    }


def test_an_original_without_value_has_no_hash() -> None:
    letter = dead_letter(None, topic="t", partition=0, offset=0, reason="tombstone")
    assert letter.value is None
    assert "sha256" not in dict(letter.headers)


@given(st.text(st.characters()), st.integers(0, 2**63 - 1), st.none() | st.binary())
def test_headers_are_read_again(reason: str, offset: int, original: bytes | None) -> None:
    letter = dead_letter(original, topic="t", partition=1, offset=offset, reason=reason)
    headers = DeadLetterHeaders.from_headers((("traceparent", b"\xff"), *letter.headers))
    assert headers.to_headers() == letter.headers
    assert headers.offset == offset


@pytest.mark.parametrize("reason", ["x" * 5000, "\ud800" * 5000])
def test_a_reason_is_bounded_and_can_be_written(reason: str) -> None:
    letter = dead_letter(b"", topic="t", partition=0, offset=0, reason=reason)
    assert len(dict(letter.headers)["reason"]) == 1000


@pytest.mark.parametrize("missing", ["topic", "partition", "offset", "reason", "truncated"])
def test_headers_that_are_no_dead_letters_are_refused(missing: str) -> None:
    letter = dead_letter(b"x", topic="t", partition=0, offset=0, reason="r")
    with pytest.raises(ValidationError, match=missing):
        DeadLetterHeaders.from_headers(h for h in letter.headers if h[0] != missing)

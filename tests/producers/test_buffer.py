"""The buffer keeps order, drops the oldest, and loses count of nothing."""

from hypothesis import given
from hypothesis import strategies as st

from producers.buffer import OVERHEAD_BYTES, Buffer, Outgoing

ROOM = OVERHEAD_BYTES + 10
"""What a message of `outgoing` takes."""


def outgoing(number: int) -> Outgoing:
    return Outgoing("topic", 0, b"key", b"%07d" % number)


def drained(buffer: Buffer) -> list[Outgoing]:
    found = []
    while (message := buffer.first()) is not None:
        assert buffer.take(message)
        buffer.settle(message)
        found.append(message)
    return found


def test_the_oldest_are_dropped_first_and_counted() -> None:
    buffer = Buffer(3 * ROOM)
    messages = [outgoing(number) for number in range(5)]
    for message in messages:
        buffer.put(message)
    assert buffer.dropped == 2
    assert buffer.size_bytes == 3 * ROOM
    assert drained(buffer) == messages[2:]
    assert (len(buffer), buffer.size_bytes) == (0, 0)


def test_what_comes_back_is_the_oldest_again() -> None:
    buffer = Buffer(3 * ROOM)
    messages = [outgoing(number) for number in range(4)]
    for message in messages[:3]:
        buffer.put(message)
    assert buffer.take(messages[0])
    assert buffer.take(messages[1])
    buffer.put_back(messages[:2])
    buffer.put(messages[3])
    assert buffer.dropped == 1
    assert drained(buffer) == messages[1:]


def test_a_message_above_the_whole_buffer_is_dropped_not_kept() -> None:
    buffer = Buffer(ROOM)
    buffer.put(Outgoing("topic", 0, b"", bytes(ROOM)))
    assert (buffer.dropped, len(buffer), buffer.size_bytes) == (1, 0, 0)


def test_a_message_that_was_dropped_meanwhile_is_not_taken() -> None:
    buffer = Buffer(ROOM)
    buffer.put(outgoing(0))
    first = buffer.first()
    buffer.put(outgoing(1))
    assert first is not None
    assert not buffer.take(first)


@given(st.lists(st.sampled_from(["put", "take", "settle", "back"]), max_size=80))
def test_every_message_is_waiting_taken_settled_or_dropped(steps: list[str]) -> None:
    buffer = Buffer(5 * ROOM)
    put, settled = 0, 0
    taken: list[Outgoing] = []
    seen: list[int] = []
    for step in steps:
        if step == "put":
            buffer.put(outgoing(put))
            put += 1
        elif step == "take" and (first := buffer.first()) is not None:
            assert buffer.take(first)
            taken.append(first)
        elif step == "settle" and taken:
            settled += 1
            seen.append(int(taken[0].value))
            buffer.settle(taken.pop(0))
        elif step == "back":
            buffer.put_back(taken)
            taken.clear()
        assert put == len(buffer) + settled + buffer.dropped
        assert buffer.size_bytes == len(buffer) * ROOM
        assert buffer.size_bytes <= max(5, len(taken)) * ROOM
    rest = [int(message.value) for message in drained(buffer)]
    assert seen + rest == sorted(set(seen + rest))

"""The transport in memory: the contract, and what only it can do."""

from collections.abc import Callable

import pytest

from tests.transport.contract_suite import OTHER, PARTITIONS, TOPIC, TransportContract
from transport.contract import OffsetOutOfRangeError, TransportError
from transport.memory import MemoryTransport


def made(clock: Callable[[], int] = lambda: 1, retain: int | None = None) -> MemoryTransport:
    return MemoryTransport({TOPIC: PARTITIONS, OTHER: PARTITIONS}, clock, retain)


class TestMemoryTransport(TransportContract):
    @pytest.fixture
    def transport(self) -> MemoryTransport:
        return made()


def test_append_times_never_go_back() -> None:
    times = iter([5, 3, 9])
    transport = made(lambda: next(times))
    for _ in range(3):
        transport.append(TOPIC, 0, None, b"")
    assert [record.append_time_ms for record in transport.slice(TOPIC, 0, 0, 9)] == [5, 5, 9]


def test_the_oldest_records_are_dropped_and_said_to_be() -> None:
    transport = made(retain=2)
    for number in range(5):
        transport.append(TOPIC, 0, None, b"%d" % number)
    assert transport.bounds(TOPIC, 0) == (3, 5)
    with pytest.raises(OffsetOutOfRangeError, match="read from 3 to 5"):
        transport.slice(TOPIC, 0, 2, 9)


def test_trimming_keeps_the_offsets() -> None:
    transport = made()
    for number in range(5000):
        transport.append(TOPIC, 0, None, b"%d" % number)
    transport.trim(TOPIC, 0, 4000)
    assert [record.value for record in transport.slice(TOPIC, 0, 4998, 9)] == [b"4998", b"4999"]


def test_restored_records_have_to_follow_each_other() -> None:
    transport = made()
    for number in range(3):
        transport.append(TOPIC, 0, None, b"%d" % number)
    tail = list(transport.slice(TOPIC, 0, 1, 9))
    other = made()
    other.restore(TOPIC, 0, 1, tail)
    assert other.append(TOPIC, 0, None, b"next") == 3
    with pytest.raises(TransportError, match="offset 2 belongs"):
        other.restore(TOPIC, 0, 2, tail)

"""A seat gives its operator each record once and in order, whatever the consumer hands over."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from schemas.topics import WINDOWS
from streams.engine.operators import BY_WORKLOAD
from streams.engine.seat import Seat
from streams.outputs import Output
from transport.contract import Record


class Recorder:
    """An operator that notes what it was given."""

    progress_ms = 0

    def __init__(self, begin: int = 0) -> None:
        self.partition = 0
        self.counters: Counter[str] = Counter()
        self.given: list[int] = []
        self._begin = begin

    def process(self, records: Iterable[Record]) -> list[Output]:
        self.given += [record.offset for record in records]
        return []

    def forget(self) -> None: ...

    def dump(self) -> dict[bytes, bytes | None]:
        return {}

    def load(self, states: Mapping[bytes, bytes | None]) -> None: ...

    def state_version(self, _key: bytes) -> int:
        return 1

    def resume_offsets(self) -> dict[str, int]:
        return {WINDOWS: self._begin}

    def reposition(self, topic: str, offset: int) -> None: ...


def seat(begin: int = 0) -> tuple[Seat, Recorder]:
    operator = Recorder(begin)
    made = Seat(BY_WORKLOAD, operator)
    made.live = True
    return made, operator


def batch(offsets: Iterable[int]) -> list[Record]:
    return [Record(WINDOWS, 0, offset, 1000 + offset, None, b"") for offset in offsets]


def test_what_was_taken_before_is_passed_over() -> None:
    one, operator = seat(begin=3)
    one.take(WINDOWS, batch(range(5)))
    one.take(WINDOWS, batch(range(2, 7)))
    assert operator.given == [3, 4, 5, 6]
    assert one.counters["replayed"] == 3 + 3


def test_records_that_are_missing_are_asked_for_once() -> None:
    one, operator = seat()
    one.take(WINDOWS, batch([0, 1]))
    assert one.take(WINDOWS, batch([5, 6])).seek_to == 2
    assert operator.given == [0, 1]
    one.take(WINDOWS, batch([2, 3, 4, 5, 6]))
    assert operator.given == [0, 1, 2, 3, 4, 5, 6]
    assert (one.counters["seeks_back"], one.counters["missing_offsets"]) == (1, 0)


def test_a_hole_that_stays_is_counted_and_passed() -> None:
    one, operator = seat()
    assert one.take(WINDOWS, batch([4, 5])).seek_to == 0
    assert one.take(WINDOWS, batch([4, 5])).seek_to is None
    one.take(WINDOWS, batch([6, 9]))
    assert operator.given == [4, 5, 6, 9]
    assert one.counters["missing_offsets"] == 4 + 2
    assert one.next[WINDOWS] == 10


def test_a_seat_that_is_not_live_takes_nothing() -> None:
    one, operator = seat()
    one.live = False
    assert one.take(WINDOWS, batch([7])).seek_to is None
    assert operator.given == []
    assert one.next[WINDOWS] == 0


def test_the_brokers_clock_is_read_from_the_newest_record() -> None:
    one, _ = seat()
    one.take(WINDOWS, batch([0, 1, 2]))
    assert one.newest_append_ms == 1002


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=40))
def test_any_cutting_into_batches_gives_each_record_once(cuts: list[tuple[int, int]]) -> None:
    """Batches begin anywhere; a consumer does as it is told when it is to go back."""
    one, operator = seat()
    for begin, length in [*cuts, (0, 43)]:
        offsets = range(begin, begin + length)
        seek_to = one.take(WINDOWS, batch(offsets)).seek_to
        if seek_to is not None:
            one.take(WINDOWS, batch(range(seek_to, begin + length)))
    assert operator.given == list(range(43))
    assert one.counters["missing_offsets"] == 0

"""Nobody runs far ahead of the slowest."""

import pytest

from streams.engine.pressure import is_too_far, newest_marks

HOUR, MINUTE = 3_600_000, 60_000
AHEAD = 10 * MINUTE
BEGAN = 100 * HOUR


def test_the_newest_of_what_several_readers_know() -> None:
    assert newest_marks([{0: 5, 1: 9}, {0: 7}, {}]) == {0: 7, 1: 9}
    assert newest_marks([]) == {}


@pytest.mark.parametrize(
    ("own", "marks", "sources", "held"),
    [
        (BEGAN + HOUR, {0: BEGAN + HOUR, 1: BEGAN + HOUR}, 2, False),
        (BEGAN + HOUR, {0: BEGAN + HOUR, 1: BEGAN}, 2, True),  # one held back for an hour
        (BEGAN + 9 * MINUTE, {0: BEGAN + 9 * MINUTE, 1: BEGAN}, 2, False),
        (BEGAN + AHEAD, {1: BEGAN}, 2, False),
        (BEGAN + AHEAD + 1, {0: BEGAN + AHEAD, 1: BEGAN}, 2, True),
        (BEGAN + HOUR, {0: BEGAN + HOUR}, 2, True),  # the other has said nothing yet
        (BEGAN + MINUTE, {0: BEGAN + MINUTE}, 2, False),
        (BEGAN, {0: BEGAN, 1: BEGAN + HOUR}, 2, False),  # the slowest itself is never held back
        (BEGAN + HOUR, {}, 1, True),
    ],
)
def test_who_has_to_wait(*, own: int, marks: dict[int, int], sources: int, held: bool) -> None:
    assert is_too_far(own, BEGAN, marks, sources, AHEAD) is held

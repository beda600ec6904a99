"""Back-pressure at the source: nobody runs far ahead of the slowest."""

from collections.abc import Iterable, Mapping


def newest_marks(views: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The progress of each source partition, milliseconds, from what several readers know."""
    marks: dict[int, int] = {}
    for view in views:
        for source, mark in view.items():
            marks[source] = max(mark, marks.get(source, 0))
    return marks


def is_too_far(
    own_ms: int, since_ms: int, marks: Mapping[int, int], sources: int, max_ahead_ms: int
) -> bool:
    """Whether a source partition has to wait for the slowest one.

    A source that has said nothing yet counts from `since_ms`, where this one began: it may just
    not have an owner yet.
    """
    silent = sources - len(marks)
    slowest = min([*marks.values(), *([since_ms] if silent else [])], default=since_ms)
    return own_ms - slowest > max_ahead_ms

"""Finds places where records wait and none comes: a consumer that has lost its place."""

from collections.abc import Mapping

from streams.engine.operators import Place

PATIENT_LOOKS = 5
"""How often a place may be found with records in front of it and without a step forward."""


class Stalls:
    """Compares, again and again, our own next offsets with where topics end.

    A hole in what is fetched shows when the next record comes; this shows that none comes.
    """

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[int, int]] = {}
        """By place: our next offset, and how often in a row it was found there."""

    def found(self, nexts: Mapping[Place, int], ends: Mapping[Place, int]) -> list[Place]:
        """The places to seek to once more; each is told anew only after as many looks."""
        stalled = []
        seen: dict[Place, tuple[int, int]] = {}
        for place, offset in nexts.items():
            if offset >= ends.get(place, 0):
                continue
            before, times = self._seen.get(place, (offset, 0))
            times = times + 1 if before == offset else 1
            if times > PATIENT_LOOKS:
                stalled.append(place)
                times = 0
            seen[place] = offset, times
        self._seen = seen
        return stalled

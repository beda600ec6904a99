"""The floors of a series' memory: its least value in each bucket of four lengths.

Batches, garbage and caches swing above the floor; only what is never given back raises it.  A floor
is two bytes, in memory as in the dump: in steps of 8 MiB, which is a ten-thousandth of a card.
"""

from typing import ClassVar

from msgspec import Struct

STEP_BYTES = 8 * 2**20
BUCKET_SECONDS = (60, 300, 1200, 7200)
"""Lengths of the buckets.  Each is a multiple of the one before, and is filled from it."""
SLOW = len(BUCKET_SECONDS) - 1
"""The scale on which leaks show that take days."""
KEPT = 24
"""Buckets that are kept of each length."""
UNKNOWN = 0xFFFF
"""The floor of a bucket in which nothing was known."""

_DAY_SECONDS = 86_400
_FLOOR_BYTES = 2


class Scale(Struct, array_like=True):
    """The newest floors of one length, and the highest of those that are no longer kept."""

    floors: bytes = b""
    """Two bytes each, the newest last."""
    low: int = UNKNOWN
    """Of the bucket in progress."""
    day: int = 0
    """The day of `record`, in days since the epoch."""
    record: int = 0
    """Highest floor of that day that has left `floors`."""
    record_before: int = 0
    """The same of the day before."""

    def push(self, floor: int, day: int) -> None:
        """Keep the floor of a bucket that has ended."""
        self.floors += floor.to_bytes(_FLOOR_BYTES, "little")
        if len(self.floors) > KEPT * _FLOOR_BYTES:
            left = int.from_bytes(self.floors[:_FLOOR_BYTES], "little")
            self.floors = self.floors[_FLOOR_BYTES:]
            self._note(left, day)

    def values(self) -> list[int | None]:
        """The floors in steps; None where nothing was known."""
        raw = self.floors
        steps = (raw[at] | raw[at + 1] << 8 for at in range(0, len(raw), _FLOOR_BYTES))
        return [None if step == UNKNOWN else step for step in steps]

    @property
    def count(self) -> int:
        """How many floors are kept."""
        return len(self.floors) // _FLOOR_BYTES

    @property
    def highest_before(self) -> int:
        """Highest floor of today and yesterday that is no longer kept, in steps."""
        return max(self.record, self.record_before)

    @property
    def highest(self) -> int:
        """Highest floor of all that are kept or remembered, in steps."""
        return max([self.highest_before, *(one for one in self.values() if one is not None)])

    def _note(self, floor: int, day: int) -> None:
        if day != self.day:
            self.record_before = self.record if day == self.day + 1 else 0
            self.day, self.record = day, 0
        if floor != UNKNOWN:
            self.record = max(self.record, floor)


class Floors(Struct, array_like=True):
    """The floors of one series at all lengths."""

    VERSION: ClassVar[int] = 1

    bucket: int = -1
    """The shortest bucket in progress, counted since the epoch; -1 before the first."""
    scales: list[Scale] = []
    """One for each length; empty before the first window, as most of a cluster is after a start."""

    @property
    def newest(self) -> int | None:
        """The newest floor of the shortest buckets in steps; None before any, or if not known."""
        values = self.scales[0].floors[-_FLOOR_BYTES:] if self.scales else b""
        step = int.from_bytes(values, "little") if values else UNKNOWN
        return None if step == UNKNOWN else step

    @property
    def level_bytes(self) -> int | None:
        """The newest floor in bytes."""
        newest = self.newest
        return None if newest is None else newest * STEP_BYTES

    def emptied(self, start_ms: int) -> "Floors":
        """No floors, but the memory of how high they were."""
        day = start_ms // (_DAY_SECONDS * 1000)
        return Floors(scales=[Scale(day=day, record=one.highest) for one in self.scales])

    def add(self, start_ms: int, least_bytes: int) -> int:
        """Count a window's least memory.

        Returns how many lengths, from the shortest on, have a new floor: 0 in most windows.
        """
        bucket = start_ms // (BUCKET_SECONDS[0] * 1000)
        if not self.scales:
            self.scales = [Scale() for _ in BUCKET_SECONDS]
        ended = 0
        if bucket != self.bucket:
            ended = self._turn(bucket)
        shortest = self.scales[0]
        shortest.low = min(shortest.low, least_bytes // STEP_BYTES)
        return ended

    def _turn(self, bucket: int) -> int:
        """Close the buckets that have ended; those in between, in which nothing came, are unknown.

        Returns the number of lengths that have a new floor.
        """
        before, self.bucket = self.bucket, bucket
        if before < 0 or bucket < before:
            return 0
        ended = 0
        for number, (length, scale) in enumerate(zip(BUCKET_SECONDS, self.scales, strict=True)):
            factor = length // BUCKET_SECONDS[0]
            passed = bucket // factor - before // factor
            if not passed:
                break
            if length != BUCKET_SECONDS[-1]:
                longer = self.scales[number + 1]
                longer.low = min(longer.low, scale.low)
            day = bucket * BUCKET_SECONDS[0] // _DAY_SECONDS
            for floor in (scale.low, *[UNKNOWN] * min(passed - 1, KEPT)):
                scale.push(floor, day)
            scale.low = UNKNOWN
            ended = number + 1
        return ended

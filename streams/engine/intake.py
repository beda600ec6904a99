"""What the engine asks of whoever fetches records: Faust's consumer, or one of our own."""

from collections.abc import Collection, Mapping
from typing import Protocol

from streams.engine.operators import Place


class Intake(Protocol):
    """A member of the consumer group.

    It fetches from the places named by `fetch_from` and from no others, hands every record that
    it gets to `Engine.take`, and tells the engine of assignments.  Nothing it fetched is ever
    dropped by it: the engine alone knows which offset comes next.
    """

    @property
    def generation(self) -> int:
        """Grows with each rebalance that this member has taken part in."""
        ...

    def fetch_from(self, places: Collection[Place]) -> None:
        """From now on fetch from these places and from no others."""
        ...

    async def seek(self, positions: Mapping[Place, int]) -> None:
        """The next records from these places are to begin at these offsets."""
        ...

    async def beginning_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """The first offset that each place holds, asked from the broker."""
        ...

    async def end_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """The offset that the next record of each place will get, asked from the broker."""
        ...

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """The group's offsets, a hint for monitors.  A fault is logged and means nothing."""
        ...

    def stop(self, error: Exception) -> None:
        """The worker can't go on: end it with this error."""
        ...

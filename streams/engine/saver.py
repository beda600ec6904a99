"""Saves a seat: what it said is acknowledged first, then its changed states, in one transaction."""

import asyncio
from collections.abc import Mapping

from streams.engine.operators import Stage
from streams.engine.outbox import Outbox
from streams.engine.seat import Seat
from streams.engine.state_topic import Saving, StateTopic


class Saver:
    """The checkpoints of all seats, each under its own lock."""

    def __init__(
        self, states: Mapping[str, StateTopic], outbox: Outbox, *, partitions: int
    ) -> None:
        """`states` by name of the stage; `partitions` is what each checkpoint says of them."""
        self.saved_at: dict[tuple[str, int], float] = {}
        """When each seat was saved or loaded last, on the loop's clock."""
        self.state_bytes: dict[tuple[str, int], int] = {}
        self._states = states
        self._outbox = outbox
        self._partitions = partitions
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    def lock(self, seat: Seat) -> asyncio.Lock:
        """Whoever holds it is the only one to save or drop the seat."""
        return self._locks.setdefault(seat.key, asyncio.Lock())

    def is_saving(self, stage: Stage, partition: int) -> bool:
        """Whether a save is under way, of which nobody knows yet whether it will count."""
        lock = self._locks.get((stage.name, partition))
        return lock is not None and lock.locked()

    def note(self, seat: Seat, state_bytes: int | None = None) -> None:
        """The seat is now as the checkpoint topic has it."""
        self.saved_at[seat.key] = asyncio.get_running_loop().time()
        if state_bytes is not None:
            self.state_bytes[seat.key] = state_bytes

    def forget(self, seat: Seat) -> None:
        """The seat belongs to somebody else."""
        self.saved_at.pop(seat.key, None)
        self.state_bytes.pop(seat.key, None)

    async def save(self, seat: Seat) -> int | None:
        """The broker's time of the checkpoint, ms; None where nothing had to be written.

        After any error the partition has to be claimed and loaded again.
        """
        async with self.lock(seat):
            if not seat.live:
                return None
            seat.operator.forget()
            states = seat.operator.dump()  # a consistent cut: nothing is awaited until it is taken
            offsets = seat.operator.resume_offsets()
            hashes = {k: hash(v) for k, v in states.items() if v is not None}
            changed = {
                k: (seat.operator.state_version(k), v)
                for k, v in states.items()
                if v is None or seat.saved.get(k) != hashes[k]
            }
            await self._outbox.acknowledged(seat.key)
            if not seat.live:  # another one may have been loaded meanwhile, and writes the states
                return None  # type: ignore[unreachable] # mypy knows of nobody who runs meanwhile
            at_ms = None
            if changed:
                saving = Saving(seat.stage.name, seat.partition, self._partitions, offsets)
                at_ms = await self._states[seat.stage.name].save(saving, changed)
            seat.saved = hashes
            self.note(seat, sum(len(v) for v in states.values() if v is not None))
            return at_ms

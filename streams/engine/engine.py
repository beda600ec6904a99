"""The engine of a worker: takes seats as partitions are assigned, feeds them, saves them.

The order is the guarantee.  For each seat: (1) its outputs are acknowledged, (2) its states and
their offsets are, in one fenced transaction, (3) the group's offset is committed, as a hint only.
Nothing is awaited between applying a record and moving its offset.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiokafka.errors import ProducerFenced

from streams.engine.faults import FINAL, TRANSIENT
from streams.engine.fetching import Fetching
from streams.engine.intake import Intake
from streams.engine.operators import STAGE_OF, STAGES, MakeOperator, Place, Stage
from streams.engine.outbox import Outbox
from streams.engine.places import mend_place
from streams.engine.saver import Saver
from streams.engine.seat import Seat
from streams.engine.state_topic import StateTopic
from transport.cancelling import cancelled
from transport.contract import Record
from transport.kafka_errors import one_line

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
TELL_EVERY = 10
"""Of so many attempts one is told."""

REVOKE_SECONDS = 3.0
"""A rebalance waits for a last save this long; what is not saved is read again by the successor."""


class Engine:
    """All seats of one worker."""

    def __init__(  # noqa: PLR0913 - its parts, each made elsewhere
        self,
        intake: Intake,
        states: Mapping[str, StateTopic],
        outbox: Outbox,
        make_operator: MakeOperator,
        *,
        partitions: int,
        session_seconds: float,
    ) -> None:
        """`states` gives each stage's name its checkpoints; `partitions` is the sources' count.

        A partition taken from us by a fence is claimed again after `session_seconds`, if it is
        still ours then.
        """
        self.counters: Counter[str] = Counter()
        self.seats: dict[tuple[str, int], Seat] = {}
        self.partitions = partitions
        self.assigned: frozenset[int] = frozenset()
        self.broker_ms = 0
        """The newest append time of anything, as the broker told it."""
        self._heard_at = 0.0
        self.ends: dict[Place, int] = {}
        """Where the topics ended when the broker was asked."""
        self._intake = intake
        self._states = states
        self._outbox = outbox
        self._make_operator = make_operator
        self._session_seconds = session_seconds
        self.fetching = Fetching(intake, self.seats)
        self._saver = Saver(states, outbox, partitions=partitions)
        self._retired: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._takeovers: set[asyncio.Task[None]] = set()
        self._stopping = False
        outbox.on_final = self._end

    # What the intake tells

    def take(self, topic: str, partition: int, records: Sequence[Record]) -> int | None:
        """Records of one place as they were fetched; an offset to seek to if some are missing."""
        seat = self.seats.get((STAGE_OF[topic].name, partition))
        if seat is None or self._stopping:
            return None
        try:
            taken = seat.take(topic, records)
        except FINAL as error:
            self._end(error)
            return None
        self._hear(seat.newest_append_ms)
        self.send(seat, taken.outputs)
        return taken.seek_to

    def on_assigned(self, partitions: Collection[int]) -> None:
        """The group gives these partitions to this worker; returns at once.

        Each stage claims, loads and starts its seats in the background and gives up when the
        group has rebalanced meanwhile.
        """
        self.assigned = frozenset(partitions)
        generation = self._intake.generation
        gone = [seat for seat in self.seats.values() if seat.partition not in self.assigned]
        for stage in STAGES:
            self._spawn_takeover(self._take_over(stage, self.assigned, generation))
        for seat in gone:
            self._spawn(self._leave(seat))
        for stage in STAGES:  # what an overtaken takeover has claimed and made no seat of
            states = self._states[stage.name]
            for partition in states.claimed - self.assigned:
                if (stage.name, partition) not in self.seats:
                    self._spawn(states.release(partition))

    async def on_revoked(self) -> None:
        """A rebalance begins: save what there is, bounded, and take nothing more.

        A takeover that goes on would claim a partition that may be somebody else's by then.
        """
        overtaken = list(self._takeovers)
        for task in overtaken:
            task.cancel()
        seats = [seat for seat in self.seats.values() if seat.live]
        await self._save_within(seats, REVOKE_SECONDS)
        if overtaken:
            await asyncio.wait(overtaken, timeout=REVOKE_SECONDS)
        for seat in self.seats.values():
            seat.live = False
        self.fetching.update()

    async def stop(self) -> None:
        """Save everything, bounded, and let go."""
        self._stopping = True
        await self._save_within([s for s in self.seats.values() if s.live], REVOKE_SECONDS)
        for seat in self.seats.values():
            seat.live = False
        await cancelled(self._tasks)
        await asyncio.gather(
            *(states.release(p) for states in self._states.values() for p in states.claimed)
        )

    # What the engine's own timers ask

    def send(self, seat: Seat, outputs: Iterable[object]) -> None:
        """Put a seat's outputs on their way."""
        self._outbox.put(seat.key, outputs)  # type: ignore[arg-type]

    def live(self, stage: Stage) -> list[Seat]:
        """The seats of a stage that take records."""
        return [s for s in self.seats.values() if s.stage is stage and s.live]

    def totals(self) -> Counter[str]:
        """Everything that was counted in this process, over all seats that it has held."""
        total = self.counters + self._outbox.counters + self._retired
        for seat in self.seats.values():
            total.update(seat.counted())
        return total

    @property
    def saved_at(self) -> Mapping[tuple[str, int], float]:
        """When each seat was saved or loaded last, on the loop's clock."""
        return self._saver.saved_at

    @property
    def state_bytes(self) -> Mapping[tuple[str, int], int]:
        """Size of each seat's states, as dumped."""
        return self._saver.state_bytes

    def is_live(self, stage: Stage, partition: int) -> bool:
        """Whether the records of a stage and partition are taken."""
        seat = self.seats.get((stage.name, partition))
        return seat is not None and seat.live

    def lag(self, place: Place) -> int | None:
        """Records between our next offset and the end of a place when it was last asked for."""
        seat = self.seats.get((STAGE_OF[place[0]].name, place[1]))
        end = self.ends.get(place)
        return None if seat is None or end is None else max(0, end - seat.next[place[0]])

    async def save_all(self) -> None:
        """A checkpoint of every seat, then the group's offsets as a hint."""
        if self._stopping:
            return
        seats = [seat for seat in self.seats.values() if seat.live]
        await asyncio.gather(*(self._save_guarded(seat) for seat in seats))
        hints = {
            (topic, seat.partition): offset
            for seat in seats
            if seat.live
            for topic, offset in seat.operator.resume_offsets().items()
        }
        if hints:
            await self._intake.commit(hints)

    def broker_now_ms(self) -> int:
        """The broker's clock: the newest time that it told, and what passed here since then."""
        passed = asyncio.get_running_loop().time() - self._heard_at
        return self.broker_ms + round(passed * 1000) if self.broker_ms else 0

    def waiting(self, seat: Seat) -> int:
        """Outputs of a seat that Kafka has not acknowledged."""
        return self._outbox.waiting(seat.key)

    # Taking over

    async def _take_over(self, stage: Stage, partitions: Collection[int], generation: int) -> None:
        states = self._states[stage.name]
        for attempt in itertools.count():
            if not self._is_mine(generation):
                return
            try:
                seats = await self._seats_of(stage, states, partitions, generation)
                await self._begin(seats, generation)
            except FINAL as error:
                self._end(error)
                return
            except TRANSIENT as error:
                self.counters["takeover_retries"] += 1
                if attempt % TELL_EVERY == 0:
                    log.warning("cannot take over %s yet: %s", stage.name, one_line(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _seats_of(
        self, stage: Stage, states: StateTopic, partitions: Collection[int], generation: int
    ) -> list[Seat]:
        """The seats with their states; none when the group has rebalanced meanwhile."""
        held = {s.partition for s in self.seats.values() if s.stage is stage}
        settled = {p for p in held.intersection(partitions) if not self._saver.is_saving(stage, p)}
        kept = await states.unchanged(settled)
        fresh = set(partitions) - kept
        await asyncio.gather(*(states.claim(p) for p in fresh))
        loaded = await states.load(fresh)
        if not self._is_mine(generation):
            return []
        for partition in fresh:
            operator = self._make_operator(stage, partition)
            operator.load(loaded[partition].states)
            seat = Seat(stage, operator)
            seat.saved = {key: hash(value) for key, value in loaded[partition].states.items()}
            self._retire(self.seats.get(seat.key))
            self.seats[seat.key] = seat
            self._saver.note(seat, loaded[partition].bytes_read)
        self.counters["seats_loaded"] += len(fresh)
        self.counters["seats_kept"] += len(kept)
        return [self.seats[stage.name, p] for p in partitions if (stage.name, p) in self.seats]

    async def _begin(self, seats: Sequence[Seat], generation: int) -> None:
        """Find every seat's place in its topics and let it take records."""
        places = [place for seat in seats for place in seat.places]
        if not places:
            return
        begins = await self._intake.beginning_offsets(places)
        ends = await self._intake.end_offsets(places)
        if not self._is_mine(generation):
            return
        for seat in seats:
            for topic in seat.stage.topics:
                self.check_place(seat, topic, begins, ends)
        await self._intake.seek({p: offset for seat in seats for p, offset in seat.places.items()})
        if not self._is_mine(generation):
            return
        for seat in seats:
            seat.live = True
            self._saver.note(seat)
        self.fetching.update()
        log.info(
            "took over %s %s", seats[0].stage.name,
            ",".join(str(seat.partition) for seat in seats),
        )  # fmt: skip

    def check_place(
        self, seat: Seat, topic: str, begins: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> bool:
        """Whether a topic was made again or cut; then the seat goes on where it begins now."""
        return mend_place(seat, topic, begins, ends, self.counters)

    async def _leave(self, seat: Seat) -> None:
        """The partition belongs to somebody else now."""
        async with self._saver.lock(seat):
            if seat.partition in self.assigned or self.seats.get(seat.key) is not seat:
                return
            self._drop(seat)
        await self._states[seat.stage.name].release(seat.partition)

    # Saving

    async def _save_within(self, seats: Iterable[Seat], limit_seconds: float) -> None:
        saves = [asyncio.ensure_future(self._save_guarded(seat)) for seat in seats]
        if saves:
            _, late = await asyncio.wait(saves, timeout=limit_seconds)
            for task in late:
                task.cancel()
            self.counters["late_saves"] += len(late)

    async def _save_guarded(self, seat: Seat) -> None:
        """Save a seat; what a fault means depends on whether somebody else has the partition."""
        generation = self._intake.generation
        try:
            await self._save(seat)
        except ProducerFenced:
            self.counters["fenced"] += 1
            log.warning("%s %d was taken over by another worker", seat.stage.name, seat.partition)
            self._retake(seat, generation, self._session_seconds)
        except asyncio.CancelledError:
            await self._states[seat.stage.name].release(seat.partition)
            seat.live = False
            raise
        except FINAL as error:
            self._end(error)
        except TRANSIENT as error:
            self.counters["failed_saves"] += 1
            log.warning(
                "cannot save %s %d: %s; trying again",
                seat.stage.name, seat.partition, one_line(error),
            )  # fmt: skip
            self._retake(seat, generation, RETRY_SECONDS)

    async def _save(self, seat: Seat) -> None:
        at_ms = await self._saver.save(seat)
        self._hear(at_ms or 0)
        self.counters["saves"] += seat.live

    def _retake(self, seat: Seat, generation: int, after_seconds: float) -> None:
        """Whether a save counts is not known: claim and load again, while the partition is ours.

        After a rebalance that is done by its own takeover.
        """
        seat.live = False
        if self.seats.get(seat.key) is not seat or self._stopping:
            return
        self._drop(seat)
        self.fetching.update()
        self._spawn_takeover(self._retake_later(seat, generation, after_seconds))

    async def _retake_later(self, seat: Seat, generation: int, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        if seat.partition in self.assigned:
            await self._take_over(seat.stage, [seat.partition], generation)
        else:
            await self._states[seat.stage.name].release(seat.partition)

    # Small things

    def _hear(self, append_ms: int) -> None:
        if append_ms > self.broker_ms:
            self.broker_ms = append_ms
            self._heard_at = asyncio.get_running_loop().time()

    def _drop(self, seat: Seat) -> None:
        del self.seats[seat.key]
        self._saver.forget(seat)
        self._retire(seat)

    def _retire(self, seat: Seat | None) -> None:
        """What a seat has counted outlives it: totals never go back."""
        if seat is not None:
            seat.live = False
            self._retired.update(seat.counted())

    def _is_mine(self, generation: int) -> bool:
        return generation == self._intake.generation and not self._stopping

    def _end(self, error: Exception) -> None:
        self._stopping = True
        self._intake.stop(error)

    def _spawn_takeover(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(work)
        self._takeovers.add(task)
        task.add_done_callback(self._takeovers.discard)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the engine failed", exc_info=error)
            with suppress(Exception):
                self._end(RuntimeError(f"{type(error).__name__}: {error}"))

"""What the engine does by the clock: checkpoints, ticks for silent partitions, back-pressure."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.topics import PODS, TELEMETRY
from streams.engine.engine import Engine
from streams.engine.faults import TRANSIENT
from streams.engine.intake import Intake
from streams.engine.operators import BY_NODE, BY_WORKLOAD, Place
from streams.engine.pressure import is_too_far, newest_marks
from streams.engine.seat import Seat
from streams.engine.stalls import Stalls
from streams.stage_one import StageOne
from streams.stage_two import StageTwo

log = logging.getLogger(__name__)

TICK_SECONDS = 2.0
"""How often the broker is asked where the source topics end."""

LOOK_SECONDS = 0.25
"""How often progress is compared: an event-time second may pass in a fraction of one."""

QUIET_ASKS = 5
"""A partition whose streams have no real clock goes with the others once its end was found where it
was for so many times: a producer at any speed may just not have sent its part yet.  Only answers
count, so an outage of the broker is no silence."""

MOST_UNACKNOWLEDGED = 5000
FEW_UNACKNOWLEDGED = 500
"""Outputs of a seat on their way at which it is held back, and let go."""

AHEAD, OUTPUTS = "ahead", "outputs"


class _Asked(NamedTuple):
    """Where a seat's topics ended when the broker was asked, and what it had taken then."""

    seat: Seat
    broker_ms: int
    ends: dict[Place, int]
    telemetry: int


@dataclass(slots=True)
class Timers:
    """The engine's clockwork.  `run` goes on until it is cancelled."""

    engine: Engine
    intake: Intake
    checkpoint_seconds: float
    max_ahead_ms: int
    _asked: dict[int, _Asked] = field(default_factory=dict)
    _since_ms: dict[int, int] = field(default_factory=dict)
    _quiet: dict[int, tuple[dict[Place, int], int]] = field(default_factory=dict)
    """By partition: the ends that were found last, and how often in a row."""
    _stalls: Stalls = field(default_factory=Stalls)

    async def run(self) -> None:
        """Everything at its own pace."""
        await asyncio.gather(
            _every(self.checkpoint_seconds, self.engine.save_all),
            _every(TICK_SECONDS, self.ask),
            _every(LOOK_SECONDS, self.look),
        )

    async def ask(self) -> None:
        """Where do the source topics end?  The broker's clock was read before that."""
        broker_ms = self.engine.broker_now_ms()
        seats = self.engine.live(BY_NODE)
        taken = {seat.partition: seat.next[TELEMETRY] for seat in seats}
        nexts = {place: offset for s in self._live() for place, offset in s.places.items()}
        if not nexts:
            return
        try:
            ends = await self.intake.end_offsets(nexts)
        except TRANSIENT:
            self._quiet.clear()
            raise
        self.engine.ends.update(ends)
        for seat in seats:
            mine = {place: ends[place] for place in seat.places}
            before, times = self._quiet.get(seat.partition, (mine, 0))
            self._quiet[seat.partition] = mine, times + 1 if before == mine else 1
            asked = _Asked(seat, broker_ms, mine, taken[seat.partition])
            self._asked.setdefault(seat.partition, asked)
        await self._mend_recreated(nexts, ends)
        await self._go_on_where_stalled(ends)

    async def look(self) -> None:
        """Tick the partitions that are read to their ends; hold back and let go."""
        marks = newest_marks(_two(s).state.marks for s in self.engine.live(BY_WORKLOAD))
        others_ms = max(marks.values(), default=0)
        for partition, asked in list(self._asked.items()):
            if not asked.seat.live:
                del self._asked[partition]
            elif all(asked.seat.next[topic] >= end for (topic, _), end in asked.ends.items()):
                del self._asked[partition]
                self._tick(asked, others_ms)
            elif asked.seat.next[PODS] >= asked.ends[PODS, partition]:
                self._give_up_pods(asked)
        for seat in self.engine.live(BY_NODE):
            await self._press(seat, marks)
        for seat in list(self.engine.seats.values()):
            await self._wait_for_outputs(seat)

    def _tick(self, asked: _Asked, others_ms: int) -> None:
        self._give_up_pods(asked)
        _, times = self._quiet.get(asked.seat.partition, (asked.ends, 0))
        is_quiet = times >= QUIET_ASKS or not any(asked.ends.values())
        operator = _one(asked.seat)
        outputs = asked.seat.step(
            lambda: operator.tick(asked.broker_ms, others_ms if is_quiet else 0)
        )
        self.engine.send(asked.seat, outputs)

    def _give_up_pods(self, asked: _Asked) -> None:
        """Pod events below an end that was asked for after their samples came are lost."""
        operator = _one(asked.seat)
        if operator.waits_for_pods:
            outputs = asked.seat.step(lambda: operator.give_up_pods(before=asked.telemetry))
            self.engine.send(asked.seat, outputs)

    async def _press(self, seat: Seat, marks: dict[int, int]) -> None:
        own_ms = _one(seat).state.marked_ms
        since_ms = self._since_ms.setdefault(seat.partition, own_ms)
        if not since_ms:
            self._since_ms[seat.partition] = own_ms
        far = is_too_far(own_ms, since_ms, marks, self.engine.partitions, self.max_ahead_ms)
        await self._held(far, (TELEMETRY, seat.partition), AHEAD)

    async def _wait_for_outputs(self, seat: Seat) -> None:
        waiting = self.engine.waiting(seat)
        for place in seat.places:
            if waiting > MOST_UNACKNOWLEDGED:
                self.engine.fetching.hold_back(place, OUTPUTS)
            elif waiting < FEW_UNACKNOWLEDGED:
                await self.engine.fetching.let_go(place, OUTPUTS)

    async def _held(self, held: bool, place: Place, reason: str) -> None:  # noqa: FBT001 - a state
        if held:
            self.engine.fetching.hold_back(place, reason)
        else:
            await self.engine.fetching.let_go(place, reason)

    async def _mend_recreated(self, nexts: dict[Place, int], ends: dict[Place, int]) -> None:
        """A topic that was made again ends before what was our next offset when it was asked for.

        Our next offset of now proves nothing: records come while the answer is on its way.
        """
        behind = [place for place, offset in nexts.items() if offset > ends[place]]
        if not behind:
            return
        begins = await self.intake.beginning_offsets(behind)
        ends = await self.intake.end_offsets(behind)
        sure = {place for place in behind if nexts[place] > ends[place]}
        for seat, place in [(s, place) for s in self._live() for place in s.places]:
            if place in sure and self.engine.check_place(seat, place[0], begins, ends):
                await self.intake.seek({place: seat.next[place[0]]})

    async def _go_on_where_stalled(self, ends: dict[Place, int]) -> None:
        """Seek to our own next offset where records wait and none has come for a while."""
        nexts = {
            place: offset
            for seat in self._live()
            for place, offset in seat.places.items()
            if not self.engine.fetching.is_held_back(place)
        }
        for place in self._stalls.found(nexts, ends):
            log.warning("nothing comes from %s/%d though there is more; seeking to it", *place)
            self.engine.counters["seeks_back"] += 1
            await self.intake.seek({place: nexts[place]})

    def _live(self) -> list[Seat]:
        return [*self.engine.live(BY_NODE), *self.engine.live(BY_WORKLOAD)]


def _one(seat: Seat) -> StageOne:
    """The operator of a seat by node."""
    return seat.operator  # type: ignore[return-value]


def _two(seat: Seat) -> StageTwo:
    """The operator of a seat by workload."""
    return seat.operator  # type: ignore[return-value]


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Again and again; a broker that is away is waited for."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except TRANSIENT as error:
            log.info("%s: %s: %s", getattr(work, "__name__", work), type(error).__name__, error)

"""Which places are fetched from: those of live seats that nothing holds back."""

import logging
from collections.abc import Mapping

from streams.engine.faults import TRANSIENT
from streams.engine.intake import Intake
from streams.engine.operators import STAGE_OF, Place
from streams.engine.seat import Seat

log = logging.getLogger(__name__)


class Fetching:
    """The only way to pause a place: pausing alone would lose what is on its way.

    So whoever lets a place go seeks to our own next offset, whatever came meanwhile.
    """

    def __init__(self, intake: Intake, seats: Mapping[tuple[str, int], Seat]) -> None:
        """`seats` is read anew each time."""
        self._intake = intake
        self._seats = seats
        self._reasons: dict[Place, set[str]] = {}

    def update(self) -> None:
        """Tell the intake what is wanted now."""
        self._intake.fetch_from(
            {
                place
                for seat in self._seats.values()
                if seat.live
                for place in seat.places
                if not self.is_held_back(place)
            }
        )

    def is_held_back(self, place: Place) -> bool:
        """Whether nothing is fetched from a place at the moment."""
        return bool(self._reasons.get(place))

    def hold_back(self, place: Place, reason: str) -> None:
        """Fetch nothing from a place while the reason lasts."""
        self._reasons.setdefault(place, set()).add(reason)
        self.update()

    async def let_go(self, place: Place, reason: str) -> None:
        """The reason is over."""
        reasons = self._reasons.get(place, set())
        if reason not in reasons:
            return
        reasons.discard(reason)
        seat = self._seats.get((STAGE_OF[place[0]].name, place[1]))
        if seat is not None and seat.live and not reasons:
            try:
                await self._intake.seek({place: seat.next[place[0]]})
            except TRANSIENT as error:
                log.warning("cannot seek %s/%d: %s", *place, error)
                reasons.add(reason)
        self.update()

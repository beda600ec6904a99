"""Whether a topic is still the one whose offsets a seat knows."""

import logging
from collections import Counter
from collections.abc import Mapping

from streams.engine.operators import Place
from streams.engine.seat import Seat

log = logging.getLogger(__name__)


def mend_place(
    seat: Seat,
    topic: str,
    begins: Mapping[Place, int],
    ends: Mapping[Place, int],
    counters: Counter[str],
) -> bool:
    """Whether a topic was made again or cut; then the seat goes on where it begins now."""
    place = topic, seat.partition
    wanted, begin, end = seat.next[topic], begins[place], ends[place]
    if begin <= wanted <= end:
        return False
    if wanted > end:
        counters["topics_recreated"] += 1
        log.error(
            "%s/%d ends at %d and its states have read up to %d: it was made again; reading from "
            "its beginning, the states are kept", *place, end, wanted,
        )  # fmt: skip
    elif wanted:
        counters["cut_by_retention"] += begin - wanted
        log.error(
            "retention cut %d messages of %s/%d before they were read; give the topic a longer "
            "retention.ms or the workers more room", begin - wanted, *place,
        )  # fmt: skip
    seat.reposition(topic, begin)
    return True

"""When messages go on: at a pace, and not after somebody asked for an end.

The end comes between two messages.  A signal that cuts a step of the pipeline in two would leave
records that count as read and whose outcome was never sent.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry

Message = NodeTelemetry | PodEvent

LONGEST_SLEEP_SECONDS = 0.2
"""How long a request to stop may go unnoticed while nothing is due."""


class Stop:
    """A request to end, made by a signal handler and heard by whoever hands messages on."""

    def __init__(self) -> None:
        self.asked = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if an end was asked for."""
        if self.asked:
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Sleep, but for no longer than until an end is asked for.  Raises KeyboardInterrupt."""
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LONGEST_SLEEP_SECONDS))
            self.check()


def paced(
    messages: Iterable[Message],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Message]:
    """Messages at `speed` times the pace of their event time; 0 is as fast as possible."""
    first_ms, began = None, clock()
    for message in messages:
        first_ms = message.observed_at_ms if first_ms is None else first_ms
        if speed > 0:
            ahead = (message.observed_at_ms - first_ms) / 1000 / speed - (clock() - began)
            if ahead > 0:
                sleep(ahead)
        yield message

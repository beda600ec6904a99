"""A node's clock against the broker's: how far it is off, and what its times mean."""

from msgspec import Struct

SKEW_MEMORY = 100
"""Messages over which a node's skew is the least seen."""

STEADY_MS = 5_000
"""A shift stays as it is until the estimate moves by more than this, so that jitter in transport
does not move samples between windows."""


STEPPED = 5
"""Samples ahead in a row after which it is the clock that has moved, not a sample that is wrong."""


class AheadOfBrokerError(Exception):
    """A sample lies further ahead of its append time than the tolerance, even when shifted."""


class ClockState(Struct):
    """What is known of one node's clock."""

    skews_ms: list[int] = []
    least_ms: int | None = None
    """The least of those; None where it has to be found."""
    shift_ms: int = 0
    ahead: int = 0
    """Samples in a row that were refused."""
    observed_ms: int = 0
    append_ms: int = 0
    """Both times of the newest sample that was not refused."""


def effective_ms(state: ClockState, observed_ms: int, append_ms: int, tolerance_ms: int) -> int:
    """The time of a sample on the broker's clock, milliseconds; learns the node's skew.

    Raises AheadOfBrokerError for one that no shift of this node explains.  A refused sample is not
    learned from: as the least skew of a hundred it would move all of its node's times.
    """
    ahead_ms = observed_ms + state.shift_ms - append_ms
    if state.skews_ms and ahead_ms > tolerance_ms:
        state.ahead += 1
        if state.ahead < STEPPED:
            raise AheadOfBrokerError(
                f"observed {ahead_ms / 1000:.0f} s ahead of the broker's clock"
            )
        state.skews_ms.clear()
    state.ahead = 0
    if not state.skews_ms or _came_in_time(state, observed_ms, append_ms):
        _learn(state, append_ms - observed_ms)
    state.observed_ms, state.append_ms = observed_ms, append_ms
    skew = min(state.skews_ms) if state.least_ms is None else state.least_ms
    wanted = skew if abs(skew) > tolerance_ms else 0
    if abs(wanted - state.shift_ms) > STEADY_MS:
        state.shift_ms = wanted
    return observed_ms + state.shift_ms


def _learn(state: ClockState, skew_ms: int) -> None:
    """Remember a skew; the least is looked for only where it may have gone."""
    state.skews_ms.append(skew_ms)
    forgotten = state.skews_ms.pop(0) if len(state.skews_ms) > SKEW_MEMORY else None
    if state.least_ms is None or forgotten == state.least_ms or len(state.skews_ms) == 1:
        state.least_ms = min(state.skews_ms)
    else:
        state.least_ms = min(state.least_ms, skew_ms)


def _came_in_time(state: ClockState, observed_ms: int, append_ms: int) -> bool:
    """Whether a sample came at the pace of its node's clock.

    What an agent kept while Kafka was away comes all at once and says nothing about the clock.
    """
    return 2 * (append_ms - state.append_ms) >= observed_ms - state.observed_ms

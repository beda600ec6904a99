import pytest

from streams.clock import STEPPED, AheadOfBrokerError, ClockState, effective_ms

TOLERANCE_MS = 30_000
HOUR_MS = 3_600_000


def test_a_good_clock_is_left_alone() -> None:
    state = ClockState()
    assert effective_ms(state, 100_000, 100_400, TOLERANCE_MS) == 100_000
    assert effective_ms(state, 101_000, 130_900, TOLERANCE_MS) == 101_000


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_wrong_clock_is_shifted_from_the_first_message_on(off_ms: int) -> None:
    state = ClockState()
    for second in range(200):
        at = 10 * HOUR_MS + second * 1000
        delay = 200 + 37 * second % 500
        shifted = effective_ms(state, at + off_ms, at + delay, TOLERANCE_MS)
        assert abs(shifted - at) <= 700
    assert len(state.skews_ms) == 100


def test_one_sample_ahead_of_the_broker_is_refused_and_moves_nothing() -> None:
    state = ClockState()
    for second in range(100):
        effective_ms(state, second * 1000, second * 1000 + 100, TOLERANCE_MS)
    with pytest.raises(AheadOfBrokerError, match="observed 3600 s ahead of the broker"):
        effective_ms(state, 100_000 + HOUR_MS, 100_000, TOLERANCE_MS)
    assert effective_ms(state, 101_000, 101_100, TOLERANCE_MS) == 101_000


def test_a_clock_that_steps_ahead_is_followed_after_a_few_samples() -> None:
    state = ClockState()
    effective_ms(state, 0, 100, TOLERANCE_MS)
    refused = 0
    for second in range(1, 20):
        at = second * 1000
        try:
            assert abs(effective_ms(state, at + HOUR_MS, at, TOLERANCE_MS) - at) < 100
        except AheadOfBrokerError:
            refused += 1
    assert refused == STEPPED - 1


def test_what_an_agent_kept_through_an_outage_says_nothing_about_the_clock() -> None:
    state = ClockState()
    for second in range(50):
        effective_ms(state, second * 1000, second * 1000 + 100, TOLERANCE_MS)
    for second in range(50, 650):
        assert effective_ms(state, second * 1000, 650_000, TOLERANCE_MS) == second * 1000
    assert effective_ms(state, 651_000, 651_100, TOLERANCE_MS) == 651_000

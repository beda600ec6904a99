from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.parameters import UnderUseParameters
from streams.quiet_hours import HOUR_MS, HOURS_A_WEEK, QuietHours

PARAMETERS = UnderUseParameters()
MONDAY = 4 * 24
"""Hours since the epoch, which was a Thursday."""


def learn(quiet: QuietHours, first: int, hours: int, use: Callable[[int], float]) -> None:
    for hour in range(first, first + hours):
        quiet.add(hour * HOUR_MS, use(hour), 3600.0)
    quiet.add((first + hours) * HOUR_MS, use(first + hours), 1.0)


def by_day(hour: int) -> float:
    return 60.0 if 8 <= hour % 24 < 20 else 1.0


def by_weekday(hour: int) -> float:
    return by_day(hour) if (hour - MONDAY) % HOURS_A_WEEK < 5 * 24 else 1.0


def test_the_night_of_a_service_that_works_by_day_is_quiet_after_a_day() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 24, by_day)
    assert quiet.is_quiet(MONDAY + 24 + 3, PARAMETERS)
    assert not quiet.is_quiet(MONDAY + 24 + 12, PARAMETERS)


def test_nineteen_hours_are_too_few() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY + 4, 19, by_day)
    assert quiet.hours_learned == 19
    assert not quiet.is_quiet(MONDAY + 24 + 5, PARAMETERS)
    learn(quiet, MONDAY + 4 + 19, 1, by_day)
    assert quiet.is_quiet(MONDAY + 24 + 5, PARAMETERS)


def test_a_workload_that_never_works_has_no_quiet_hours() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 100, lambda _: 19.0 if _ % 24 == 12 else 0.0)
    assert not any(quiet.is_quiet(MONDAY + 100 + hour, PARAMETERS) for hour in range(24))


def test_weekends_are_quiet_once_two_weeks_are_known() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 2 * HOURS_A_WEEK, by_weekday)
    saturday_noon = MONDAY + 2 * HOURS_A_WEEK + 5 * 24 + 12
    assert quiet.is_quiet(saturday_noon, PARAMETERS)
    assert not quiet.is_quiet(saturday_noon + 2 * 24, PARAMETERS)
    assert quiet.learned_use_percent(saturday_noon) == 1.0


def test_before_two_weeks_are_known_the_hour_of_the_day_decides() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 2 * HOURS_A_WEEK - 1, by_weekday)
    assert not quiet.is_quiet(MONDAY + 2 * HOURS_A_WEEK + 5 * 24 + 12, PARAMETERS)


def test_an_hour_is_folded_slowly_and_its_first_value_is_set() -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 1, lambda _: 40.0)
    assert quiet.learned_use_percent(MONDAY) == 40.0
    learn(quiet, MONDAY + HOURS_A_WEEK, 1, lambda _: 0.0)
    assert quiet.learned_use_percent(MONDAY) == 28.0


def test_an_hour_of_which_little_is_known_is_not_learned() -> None:
    quiet = QuietHours()
    quiet.add(MONDAY * HOUR_MS, 50.0, 899.0)
    quiet.add((MONDAY + 1) * HOUR_MS, 50.0, 900.0)
    quiet.add((MONDAY + 2) * HOUR_MS, 50.0, 1.0)
    assert quiet.hours_learned == 1
    assert quiet.learned_use_percent(MONDAY + 2) is None


def test_the_profile_starts_unknown() -> None:
    assert QuietHours().busiest_percent() is None
    assert QuietHours().learned_use_percent(MONDAY) is None


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 100.5)), max_size=60), st.data())
def test_a_dump_anywhere_changes_nothing(
    windows: list[tuple[int, float]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(windows)))
    whole, restarted = QuietHours(), QuietHours()
    for number, (hour, use) in enumerate(windows):
        if number == cut:
            restarted = msgspec.json.decode(msgspec.json.encode(restarted), type=QuietHours)
        whole.add(hour * HOUR_MS, use, 1000.0)
        restarted.add(hour * HOUR_MS, use, 1000.0)
    assert restarted == whole


@pytest.mark.parametrize("use", [0.0, 100.0, 100.5])
def test_the_ends_of_the_scale_are_kept(use: float) -> None:
    quiet = QuietHours()
    learn(quiet, MONDAY, 1, lambda _: use)
    assert quiet.learned_use_percent(MONDAY) == min(use, 100.0)

"""Trends of short rows, against values worked out by hand."""

import random

import pytest

from streams.floor_trend import mann_kendall, theil_sen


def test_a_row_that_only_rises_has_the_highest_score() -> None:
    # S = 12 * 11 / 2 = 66, variance = 12 * 11 * 29 / 18
    assert mann_kendall(range(12)) == pytest.approx(65 / (12 * 11 * 29 / 18) ** 0.5)


def test_a_falling_row_has_the_same_score_below_zero() -> None:
    assert mann_kendall(range(12, 0, -1)) == -mann_kendall(range(12))


def test_ties_make_a_trend_less_sure() -> None:
    # 1 1 2 2: S = 4; variance = (4 * 3 * 13 - 2 * (2 * 1 * 9)) / 18
    assert mann_kendall([1, 1, 2, 2]) == pytest.approx(3 / ((156 - 36) / 18) ** 0.5)


@pytest.mark.parametrize("row", [[], [1.0], [5.0] * 24, [None] * 24])
def test_what_does_not_move_has_no_trend(row: list[float | None]) -> None:
    assert mann_kendall(row) == 0.0


def test_what_is_not_known_takes_its_place_in_time_and_no_more() -> None:
    assert theil_sen([0.0, None, None, 6.0]).median == 2.0
    assert mann_kendall([0, None, 1, None, 2]) == mann_kendall([0, 1, 2])


def test_a_few_odd_values_do_not_turn_the_slope() -> None:
    row: list[float] = [3.0 * at for at in range(24)]
    row[5] = row[17] = 900.0
    assert theil_sen(row).median == pytest.approx(3.0, abs=0.2)


def test_the_interval_holds_the_slope_and_is_wider_with_noise() -> None:
    chance = random.Random(7)  # noqa: S311 - noise
    quiet = theil_sen([2.0 * at + chance.gauss(0, 0.1) for at in range(24)])
    loud = theil_sen([2.0 * at + chance.gauss(0, 10.0) for at in range(24)])
    assert quiet.low <= 2.0 <= quiet.high
    assert loud.low <= 2.0 <= loud.high
    assert loud.high - loud.low > 10 * (quiet.high - quiet.low)


@pytest.mark.parametrize("row", [[], [1.0], [None, 1.0, None]])
def test_a_slope_needs_two_values(row: list[float | None]) -> None:
    with pytest.raises(ValueError, match="two floors"):
        theil_sen(row)

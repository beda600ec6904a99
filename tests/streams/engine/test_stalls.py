"""A place where records wait and none comes is found; one that goes on never is."""

from streams.engine.stalls import PATIENT_LOOKS, Stalls

PLACE = ("gpu.telemetry", 0)


def test_a_place_that_does_not_go_on_is_told_again_and_again() -> None:
    stalls = Stalls()
    told = [bool(stalls.found({PLACE: 3}, {PLACE: 9})) for _ in range(3 * (PATIENT_LOOKS + 1))]
    assert told == ([False] * PATIENT_LOOKS + [True]) * 3


def test_a_place_that_goes_on_or_is_at_its_end_is_not() -> None:
    stalls = Stalls()
    for offset in range(50):
        assert stalls.found({PLACE: offset}, {PLACE: 99}) == []
    for _ in range(50):
        assert stalls.found({PLACE: 99}, {PLACE: 99}) == []
    for _ in range(50):
        assert stalls.found({PLACE: 99}, {}) == []

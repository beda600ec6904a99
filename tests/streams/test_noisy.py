"""Who takes a shared device from whom, and what only looks like it."""

import random
from collections.abc import Callable

import msgspec
import pytest

from schemas.parameters import NoisyParameters
from streams.device_windows import DeviceWindow, PodUse
from streams.noisy import Blame, Contention, ContentionState

GIB = 2**30
MINUTE, HOUR = 60, 3600
T0 = 1_772_409_600
STARTS_AT = 40 * MINUTE
"""When the trouble of a signal begins."""
TOTAL = 80 * GIB

Pods = dict[str, float | None]
"""Percent of SM time by pod."""
Signal = Callable[[int], Pods]
Found = list[tuple[int, tuple[Blame, ...]]]


def device(pods: Pods, /, **fields: object) -> DeviceWindow:
    share = 1 / len(pods) if pods else 1.0
    uses = tuple(PodUse(uid, use, 10 * GIB, share) for uid, use in sorted(pods.items()))
    known: dict[str, object] = {
        "uuid": "GPU-1",
        "coverage_seconds": 10.0,
        "interval_seconds": 1.0,
        "measure": "gpu_util",
        "util_percent": min(100.0, sum(use or 0.0 for use in pods.values())),
        "memory_used_bytes": 20 * GIB,
        "memory_total_bytes": TOTAL,
        "pods": uses,
    }
    return DeviceWindow(**(known | fields))  # type: ignore[arg-type] # given by name


def one(contention: Contention, window: DeviceWindow, at: int) -> tuple[Blame, ...]:
    start = (T0 + at) * 1000
    return contention.update(window, start, start + 10_000)


def feed(
    contention: Contention, signal: Signal, begin: int, end: int, /, **fields: object
) -> Found:
    """Only the windows in which the blames changed, by their start."""
    found: Found = []
    last = contention._open()
    for at in range(begin, end, 10):
        blames = one(contention, device(signal(at), **fields), at)
        if blames != last:
            found.append((at, blames))
        last = blames
    return found


def detector(state: ContentionState | None = None, **parameters: object) -> Contention:
    return Contention(NoisyParameters.model_validate(parameters), state)


def swing(at: int, about: float) -> float:
    return about * (1 + 0.04 * random.Random(f"{at} {about}").uniform(-1, 1))  # noqa: S311 - a signal


def pushed(at: int) -> Pods:
    """A server that has 40 % gets 15 when its neighbour goes from 30 % to 85."""
    trouble = STARTS_AT <= at < STARTS_AT + HOUR
    return {
        "server": swing(at, 15.0 if trouble else 40.0),
        "trainer": swing(at, 85.0 if trouble else 30.0),
    }


def joined(at: int) -> Pods:
    """One that comes and takes the card from two."""
    before: Pods = {"a": swing(at, 35.0), "b": swing(at, 25.0)}
    if at < STARTS_AT:
        return before
    return {"a": swing(at, 16.0), "b": swing(at, 12.0), "hog": swing(at, 72.0)}


def test_a_neighbour_that_takes_what_another_loses_is_named() -> None:
    found = feed(detector(), pushed, 0, STARTS_AT + HOUR)
    assert len(found) == 1
    at, (blame,) = found[0]
    assert (blame.kind, blame.victim, blame.aggressors) == (
        "noisy_neighbour",
        "server",
        ("trainer",),
    )
    assert STARTS_AT <= at <= STARTS_AT + 270
    assert abs(blame.onset_ms / 1000 - T0 - STARTS_AT) <= MINUTE


def test_a_pod_that_joins_and_takes_the_card_is_named_to_each_victim() -> None:
    contention = detector()
    feed(contention, joined, 0, STARTS_AT + 10 * MINUTE)
    assert [(b.victim, b.aggressors) for b in contention._open()] == [
        ("a", ("hog",)),
        ("b", ("hog",)),
    ]


def test_a_neighbour_within_its_share_only_crowds() -> None:
    """The victim had more than its half while the other one did nothing."""

    def fair(at: int) -> Pods:
        early = at < STARTS_AT
        return {"a": swing(at, 80.0 if early else 50.0), "b": swing(at, 5.0 if early else 50.0)}

    contention = detector()
    feed(contention, fair, 0, STARTS_AT + 10 * MINUTE)
    assert [(b.kind, b.victim) for b in contention._open()] == [("crowded", "a")]


def test_what_was_given_nothing_is_over_at_any_share() -> None:
    def stranger(at: int) -> DeviceWindow:
        early = at < STARTS_AT
        pods = {"a": swing(at, 70.0 if early else 50.0), "b": swing(at, 5.0 if early else 49.0)}
        uses = (PodUse("a", pods["a"], GIB, 1.0), PodUse("b", pods["b"], GIB, 0.0))
        return device(dict(pods), pods=uses)

    contention = detector()
    blames: tuple[Blame, ...] = ()
    for at in range(0, STARTS_AT + 10 * MINUTE, 10):
        blames = one(contention, stranger(at), at)
    assert [(b.kind, b.aggressors) for b in blames] == [("noisy_neighbour", ("b",))]


def test_it_ends_ten_minutes_after_the_share_has_come_back() -> None:
    found = feed(detector(), pushed, 0, STARTS_AT + 2 * HOUR)
    assert [len(blames) for _, blames in found] == [1, 0]
    over = found[1][0] - STARTS_AT - HOUR
    assert 10 * MINUTE <= over <= 20 * MINUTE


def test_a_hog_of_memory_is_named() -> None:
    def full(at: int) -> DeviceWindow:
        hog = 20 * GIB if at < STARTS_AT else 68 * GIB
        uses = (PodUse("hog", 10.0, hog, 0.5), PodUse("victim", 20.0, 11 * GIB, 0.5))
        return device({"hog": 10.0, "victim": 20.0}, pods=uses, memory_used_bytes=hog + 11 * GIB)

    contention = detector()
    blames: tuple[Blame, ...] = ()
    for at in range(0, STARTS_AT + 5 * MINUTE, 10):
        blames = one(contention, full(at), at)
    assert [(b.kind, b.victim, b.aggressors) for b in blames] == [
        ("noisy_neighbour", "victim", ("hog",))
    ]


# What is nobody's doing.


def by_itself(at: int) -> Pods:
    """It has less to do; the device has room."""
    return {"server": swing(at, 40.0 if at < STARTS_AT else 12.0), "trainer": swing(at, 30.0)}


def stopped(at: int) -> Pods:
    """It stops, and the other one takes the room."""
    early = at < STARTS_AT
    return {"server": swing(at, 40.0) if early else 0.0, "trainer": swing(at, 55 if early else 99)}


def bursts(at: int) -> Pods:
    """Both swing, never for long."""
    high = (at // 40) % 2 == 0
    return {"a": swing(at, 60.0 if high else 35.0), "b": swing(at, 35.0 if high else 60.0)}


def always_full(at: int) -> Pods:
    return {"a": swing(at, 50.0), "b": swing(at, 50.0)}


def small(at: int) -> Pods:
    """A victim that never had 8 %."""
    early = at < STARTS_AT
    return {"a": swing(at, 6.0 if early else 2.0), "b": swing(at, 40.0 if early else 97.0)}


def unknown(at: int) -> Pods:
    return {"a": None, "b": swing(at, 90.0)}


@pytest.mark.parametrize("signal", [by_itself, stopped, bursts, always_full, small, unknown])
def test_nobody_is_blamed(signal: Signal) -> None:
    assert feed(detector(), signal, 0, 3 * HOUR) == []


def test_nobody_is_blamed_in_the_warm_up() -> None:
    def early(at: int) -> Pods:
        return pushed(at + STARTS_AT - 4 * MINUTE)

    assert feed(detector(), early, 0, 5 * MINUTE) == []


@pytest.mark.parametrize(
    "fields", [{"interval_seconds": 90.0}, {"coverage_seconds": 0.0}, {"util_percent": None}]
)
def test_what_can_not_be_judged_is_not(fields: dict[str, object]) -> None:
    assert feed(detector(), pushed, 0, STARTS_AT + HOUR, **fields) == []


def test_a_change_of_measure_begins_anew() -> None:
    contention = detector()
    feed(contention, pushed, 0, STARTS_AT - 10)
    found = feed(contention, pushed, STARTS_AT, STARTS_AT + 20 * MINUTE, measure="sm_active")
    assert found == []
    assert contention.state.measure == "sm_active"


def test_a_pod_that_leaves_takes_its_blame_along() -> None:
    contention = detector()
    feed(contention, joined, 0, STARTS_AT + 10 * MINUTE)
    assert len(contention._open()) == 2
    blames = one(contention, device({"b": 12.0, "hog": 72.0}), STARTS_AT + 10 * MINUTE)
    assert [blame.victim for blame in blames] == ["b"]


@pytest.mark.parametrize("restart_at", [0, 5 * MINUTE, STARTS_AT + 50, STARTS_AT + 20 * MINUTE])
def test_a_restart_changes_nothing(restart_at: int) -> None:
    straight, before = detector(), detector()
    whole = feed(straight, pushed, 0, STARTS_AT + 2 * HOUR)
    first = feed(before, pushed, 0, restart_at)
    after = detector(msgspec.json.decode(msgspec.json.encode(before.state), type=ContentionState))
    assert first + feed(after, pushed, restart_at, STARTS_AT + 2 * HOUR) == whole
    assert after.state == straight.state

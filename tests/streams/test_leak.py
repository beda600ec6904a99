"""Leaks are found in time, and what only looks like one is not."""

import math
import random
from collections.abc import Callable

import msgspec
import pytest

from schemas.parameters import LeakParameters
from schemas.windows import SeriesEnd, WorkloadWindow
from streams.leak import Leak, LeakState
from streams.verdicts import Detector, Verdict
from tests.streams.under_use_signals import GIB, HOUR, MINUTE, T0, series, workload

DAY = 24 * HOUR
Held = Callable[[int], float | None]
"""GiB at a number of seconds since T0; None: not known."""
Found = list[tuple[int, str | None]]
"""(second, kind) of each window in which what is open changed."""


def window(held: float | None, /, **fields: object) -> WorkloadWindow:
    size = None if held is None else round(held * GIB)
    known: dict[str, object] = {"memory_used_bytes": size, "memory_min_bytes": size}
    return workload(series(50.0, **(known | fields)))


def feed(leak: Leak, held: Held, begin: int, end: int, **fields: object) -> Found:
    found: Found = []
    last = "memory_leak" if any(one.open for one in leak.state.series.values()) else None
    for at in range(begin, end, 10):
        kind = one_window(leak, window(held(at), **fields), at)
        if kind != last:
            found.append((at, kind))
        last = kind
    return found


def one_window(leak: Leak, seen: WorkloadWindow, at: int) -> str | None:
    start = (T0 + at) * 1000
    return leak.update(seen, start, start + 10_000)


def detector(state: LeakState | None = None, **parameters: object) -> Leak:
    return Leak(LeakParameters.model_validate(parameters), state)


def steady(at: int) -> float:
    """Full after 8 h."""
    return 8.0 + 9.0 * at / HOUR


def swinging(at: int) -> float:
    """Batches of up to 6 GiB above a floor that rises."""
    return steady(at) * 0.9 + 6.0 * random.Random(at).random()  # noqa: S311 - a signal


def dripping(at: int) -> float:
    """64 MiB now and then, 3 GiB an hour."""
    return 40.0 + (at // 75) * 64 / 1024


def late(at: int) -> float:
    """Healthy for six hours."""
    return 20.0 + 10.0 * max(0, at - 6 * HOUR) / HOUR


def slow(at: int) -> float:
    """Full after six days."""
    return 8.0 + 0.5 * at / HOUR


def test_it_is_a_detector() -> None:
    seam: Detector = detector()
    assert seam.name == "leak"


@pytest.mark.parametrize(
    ("held", "begins", "full"),
    [(steady, 0, 8 * HOUR), (swinging, 0, 8 * HOUR), (dripping, 0, 13 * HOUR)],
)
def test_a_leak_is_found_long_before_the_memory_ends(held: Held, begins: int, full: int) -> None:
    found = feed(detector(), held, begins, full)
    assert [kind for _, kind in found] == ["memory_leak"]
    assert full - found[0][0] >= 100 * MINUTE


def test_a_leak_that_begins_late_is_dated_from_its_begin() -> None:
    leak = detector()
    found = feed(leak, late, 0, 12 * HOUR)
    assert len(found) == 1
    assert 6 * HOUR < found[0][0] < 10 * HOUR
    assert abs(leak.describe().onset_ms / 1000 - T0 - 6 * HOUR) < 90 * MINUTE


def test_the_verdict_has_the_numbers_that_decided() -> None:
    leak = detector()
    at = feed(leak, steady, 0, 8 * HOUR)[0][0]
    again = detector()
    feed(again, steady, 0, at + 10)
    verdict = again.describe()
    evidence = verdict.evidence
    left = 8 * HOUR - at
    assert (verdict.kind, verdict.tier, verdict.quality) == ("memory_leak", "page", "exact")
    assert evidence["slope_mib_per_minute"] == pytest.approx(9 * 1024 / 60, rel=0.05)
    assert number(verdict, "exhaustion_minutes") == pytest.approx(left / 60, rel=0.1)
    assert number(verdict, "exhaustion_minutes_earliest") <= number(verdict, "exhaustion_minutes")
    assert number(verdict, "exhaustion_minutes_latest") >= number(verdict, "exhaustion_minutes")
    assert number(verdict, "trend_z") >= 4.0
    assert number(verdict, "floor_then_bytes") < number(verdict, "floor_now_bytes")
    assert evidence["limit_bytes"] == 80 * GIB
    assert verdict.subject.pod == "p"
    assert "Deployment server in ml, pod p, leaks GPU memory" in verdict.summary
    assert verdict.parameters["exhaustion_within"] == 86400.0


def number(verdict: Verdict, name: str) -> float:
    value = verdict.evidence[name]
    assert isinstance(value, int | float)
    return value


def test_a_leak_that_takes_days_is_a_warning() -> None:
    leak = detector()
    found = feed(leak, slow, 0, 4 * DAY)
    assert [kind for _, kind in found] == ["memory_leak"]
    assert found[0][0] <= 3 * DAY
    verdict = leak.describe()
    assert (verdict.tier, verdict.evidence["severity"]) == ("ticket", "warning")
    assert verdict.evidence["bucket_seconds"] == 7200
    assert verdict.parameters["slow_exhaustion_within"] == 7 * 86400.0


def test_a_slow_leak_becomes_critical_when_a_day_is_left() -> None:
    leak = detector()
    feed(leak, slow, 0, 5 * DAY + 6 * HOUR)
    assert leak.describe().tier == "page"


def test_a_pod_is_judged_by_its_own_limit() -> None:
    def small(at: int) -> float:
        return 4.0 + 0.5 * at / HOUR

    assert feed(detector(), small, 0, 7 * HOUR) == []
    fields: dict[str, object] = {"memory_limit_bytes": 8 * GIB, "shared": True}
    found = feed(detector(), small, 0, 7 * HOUR, **fields)
    assert [kind for _, kind in found] == ["memory_leak"]


def test_what_others_hold_of_a_shared_device_is_no_room() -> None:
    def crowded(at: int) -> float:
        return 10.0 + 1.0 * at / HOUR

    assert feed(detector(), crowded, 0, 6 * HOUR) == []
    leak = detector()
    found: Found = []
    for at in range(0, 6 * HOUR, 10):
        free = round((7.0 - at / HOUR) * GIB)
        seen = window(crowded(at), shared=True, memory_free_bytes=free)
        if one_window(leak, seen, at):
            found.append((at, "memory_leak"))
            break
    assert found
    left = 7 * HOUR - found[0][0]
    assert number(leak.describe(), "exhaustion_minutes") == pytest.approx(left / 60, rel=0.1)


def test_the_share_that_time_slicing_estimates_is_said() -> None:
    leak = detector()
    feed(leak, steady, 0, 8 * HOUR, shared=True, quality="estimated")
    assert leak.describe().quality == "estimated"


def test_a_device_without_pods_is_one_subject() -> None:
    leak, kind = detector(), None
    for at in range(0, 8 * HOUR, 10):
        size = round(steady(at) * GIB)
        one = series(50.0, memory_used_bytes=size, memory_min_bytes=size, pod=None, pod_uid=None)
        device = workload(one, namespace=None, kind=None, name="GPU-1")
        kind = one_window(leak, device, at)
    assert kind == "memory_leak"
    assert leak.describe().summary.startswith("GPU-1 leaks GPU memory")


# What is not a leak.


def flat(at: int) -> float:
    """KV cache that is reserved at the start."""
    return 72.0 + 0.01 * (at % 3)


def warm_up(at: int) -> float:
    """An allocator that finds its level within hours."""
    return 10.0 + 55.0 * (1 - math.exp(-at / (1.5 * HOUR)))


def stairs(at: int) -> float:
    """Four larger models, one after the other."""
    return 12.0 + 12.0 * min(4, at // (2 * HOUR))


def batches(at: int) -> float:
    return 30.0 + 40.0 * random.Random(at // 30).random()  # noqa: S311 - a signal


def saw_tooth(at: int) -> float:
    """Garbage that is collected every three hours."""
    return 15.0 + 50.0 * (at % (3 * HOUR)) / (3 * HOUR)


def day_rhythm(at: int) -> float:
    return 35.0 - 30.0 * math.cos(2 * math.pi * at / DAY)


def restarts(at: int) -> float:
    """A program that starts anew every two hours and warms up each time."""
    since = at % (2 * HOUR)
    return 0.5 if since < MINUTE else 5.0 + 40.0 * (1 - math.exp(-since / (40 * MINUTE)))


def creeping(at: int) -> float:
    """A tenth of a percent a day, within what a month would notice."""
    return 40.0 + 0.1 * at / DAY


def one_step(at: int) -> float:
    return 20.0 if at < 5 * HOUR else 70.0


def gone(at: int) -> float | None:
    del at
    return None


@pytest.mark.parametrize(
    ("held", "days"),
    [
        (flat, 2.0), (warm_up, 2.0), (stairs, 1.0), (batches, 1.0),
        (restarts, 1.0), (creeping, 3.0), (one_step, 1.0), (gone, 0.5),
    ],
)  # fmt: skip
def test_healthy_memory_is_no_leak(held: Held, days: float) -> None:
    assert feed(detector(), held, 0, round(days * DAY)) == []


def test_a_saw_tooth_that_was_seen_once_is_no_leak_after_that() -> None:
    """The first rise is like a leak's in every way; from the second on it is no record."""
    found = feed(detector(), saw_tooth, 0, DAY)
    assert [at for at, kind in found if kind and at >= 3 * HOUR] == []


def test_the_rhythm_of_the_day_is_no_leak_once_it_was_seen() -> None:
    found = feed(detector(), day_rhythm, 0, 6 * DAY)
    assert [at for at, _ in found if at >= DAY] == []


def test_a_saw_tooth_down_to_nothing_is_no_leak_after_the_first_tooth() -> None:
    """It looks like a program that starts anew, but one that did not run out of memory."""

    def saw(at: int) -> float:
        return 2.0 + 40.0 * (at % (2 * HOUR)) / (2 * HOUR)

    found = feed(detector(), saw, 0, DAY)
    assert [at for at, kind in found if kind and at >= 2 * HOUR] == []


def test_a_leak_that_kills_its_program_again_and_again_is_told_each_time() -> None:
    def killed(at: int) -> float:
        return min(79.5, 2.0 + 80.0 * (at % (5 * HOUR)) / (5 * HOUR))

    found = feed(detector(), killed, 0, 15 * HOUR)
    opened = [at // (5 * HOUR) for at, kind in found if kind]
    assert opened == [0, 1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_total_bytes": 0},
        {"memory_total_bytes": None},
        {"memory_total_bytes": 2 * GIB},
        {"memory_min_bytes": None},
        {"interval_seconds": 300.0},
    ],
)
def test_what_can_not_be_judged_is_not(fields: dict[str, object]) -> None:
    leak = detector()
    for at in range(0, 8 * HOUR, 10):
        assert one_window(leak, window(steady(at), **fields), at) is None


def test_a_source_that_is_too_slow_is_not_observable_and_said_so() -> None:
    leak = detector()
    one_window(leak, window(8.0, interval_seconds=300.0), 0)
    assert leak.state.not_observable_windows == 1


@pytest.mark.parametrize("step", [20, 60])
def test_a_slower_source_finds_it_too(step: int) -> None:
    leak = detector()
    kinds = [
        one_window(leak, window(steady(at), interval_seconds=float(step)), at)
        for at in range(0, 7 * HOUR, step)
    ]
    assert kinds[-1] == "memory_leak"


def test_gaps_and_unknown_values_change_nothing() -> None:
    def gappy(at: int) -> float | None:
        return None if at % (40 * MINUTE) < 8 * MINUTE else steady(at)

    assert [kind for _, kind in feed(detector(), gappy, 0, 7 * HOUR)] == ["memory_leak"]
    leak = detector()
    ends: list[str | None] = []
    for at in range(0, 7 * HOUR, 10):
        if 2 * HOUR <= at < 2 * HOUR + 25 * MINUTE:
            continue
        ends.append(one_window(leak, window(steady(at)), at))
    assert ends[-1] == "memory_leak"


def test_windows_that_come_from_the_past_are_no_new_bucket() -> None:
    leak = detector()
    feed(leak, flat, 0, 2 * HOUR)
    assert feed(leak, flat, 0, 2 * HOUR) == []


def test_another_layout_of_mig_begins_anew() -> None:
    leak = detector()
    feed(leak, steady, 0, 3 * HOUR, memory_total_bytes=80 * GIB)
    feed(leak, lambda _: 9.0, 3 * HOUR, 3 * HOUR + 10, memory_total_bytes=10 * GIB)
    (known,) = leak.state.series.values()
    assert known.limit_bytes == 10 * GIB
    assert known.floors.newest is None


# Its end.


def test_it_ends_when_the_memory_is_released() -> None:
    leak = detector()
    feed(leak, steady, 0, 6 * HOUR)
    found = feed(leak, lambda _: 1.0, 6 * HOUR, 7 * HOUR)
    assert [kind for _, kind in found] == [None]
    assert found[0][0] <= 6 * HOUR + MINUTE
    assert leak.close_reason == "memory released"
    (known,) = leak.state.series.values()
    assert known.restarts == 1


def test_a_leak_that_comes_back_after_a_restart_is_found_and_says_so() -> None:
    leak = detector()
    feed(leak, steady, 0, 6 * HOUR)
    feed(leak, lambda _: 1.0, 6 * HOUR, 6 * HOUR + 2 * MINUTE)
    begin = 6 * HOUR + 2 * MINUTE
    found = feed(leak, lambda at: steady(at - begin), begin, begin + 7 * HOUR)
    assert [kind for _, kind in found] == ["memory_leak"]
    assert leak.describe().evidence["restarts_seen"] == 1


def test_it_ends_when_it_grows_no_more() -> None:
    leak = detector()
    feed(leak, steady, 0, 5 * HOUR)
    found = feed(leak, lambda _: steady(5 * HOUR), 5 * HOUR, 8 * HOUR)
    assert [kind for _, kind in found] == [None]
    assert leak.close_reason == "recovered"


def test_it_stays_open_while_the_memory_is_full() -> None:
    leak = detector()
    feed(leak, lambda at: min(79.9, steady(at)), 0, 9 * HOUR)
    assert feed(leak, lambda _: 79.9, 9 * HOUR, 14 * HOUR) == []
    assert number(leak.describe(), "exhaustion_minutes") < 1


def test_it_ends_with_its_pod() -> None:
    leak = detector()
    feed(leak, steady, 0, 6 * HOUR)
    end = SeriesEnd(node="n1", device_uuid="GPU-1", pod_uid="u", reason="pod deleted")
    assert one_window(leak, workload(ended=(end,)), 6 * HOUR) is None
    assert leak.close_reason == "pod deleted"
    assert leak.state.series == {}


def test_a_pod_of_the_same_name_begins_anew() -> None:
    leak = detector()
    feed(leak, steady, 0, 2 * HOUR)
    one_window(leak, window(20.0, pod_uid="another"), 2 * HOUR)
    assert leak.state.series["GPU-1|another"].floors.newest is None


def test_two_devices_are_one_alert_that_names_the_worse() -> None:
    leak, kind = detector(), None
    for at in range(0, 7 * HOUR, 10):
        sizes = round(steady(at) * GIB), round(steady(at) * 0.9 * GIB)
        both = [
            series(
                50.0,
                device_uuid=f"GPU-{number}",
                pod_uid=f"u{number}",
                memory_used_bytes=size,
                memory_min_bytes=size,
            )
            for number, size in enumerate(sizes)
        ]
        kind = one_window(leak, workload(*both), at)
    assert kind == "memory_leak"
    verdict = leak.describe()
    assert verdict.evidence["leaking_series"] == 2
    assert verdict.subject.device_uuid == "GPU-0"


def test_nothing_open_has_no_words() -> None:
    leak = detector()
    feed(leak, flat, 0, HOUR)
    with pytest.raises(RuntimeError, match="returned a kind"):
        leak.describe()


# Its state.


@pytest.mark.parametrize("restart_at", [0, 15 * MINUTE, HOUR + 10, 3 * HOUR, 6 * HOUR])
def test_a_restart_changes_nothing(restart_at: int) -> None:
    straight, before = detector(), detector()
    whole = feed(straight, swinging, 0, 7 * HOUR)
    first = feed(before, swinging, 0, restart_at)
    dump = msgspec.json.encode(before.state)
    after = detector(msgspec.json.decode(dump, type=LeakState))
    assert first + feed(after, swinging, restart_at, 7 * HOUR) == whole
    assert after.state == straight.state
    assert after.describe() == straight.describe()


def test_the_state_of_a_series_is_small_however_long_it_is_watched() -> None:
    leak = detector()
    feed(leak, batches, 0, 3 * DAY)
    assert len(msgspec.json.encode(leak.state)) < 450
    assert leak.state.series["GPU-1|u"].floors.level_bytes is not None

"""What each shape promises, for twenty seeds: detectors are judged by these loads."""

from collections.abc import Callable
from itertools import islice

import pytest

from producers import scenarios
from producers.scenarios import GIB, MINUTE, Load, Script, Shape, seeded, swung, until

SEEDS = range(20)
STEP = 5.0
LENGTH = 9000.0

HEALTHY: tuple[Shape, ...] = (
    scenarios.steady,
    scenarios.training,
    scenarios.bursty,
    scenarios.small_kernels,
    scenarios.shared,
    scenarios.instance,
    scenarios.loading,
)
WASTEFUL: tuple[Shape, ...] = (
    scenarios.notebook,
    scenarios.idle_server,
    scenarios.idle_then_used,
    scenarios.low_use,
)


def series(shape: Shape, seed: int, begin: float = 0.0, end: float = LENGTH) -> list[Load]:
    script = Script(shape(seeded(seed)))
    return [script.at(begin + STEP * n) for n in range(int((end - begin) / STEP))]


def runs(loads: list[Load], holds: Callable[[Load], bool]) -> list[float]:
    """Seconds of each unbroken run of samples."""
    lengths, current = [], 0.0
    for load in loads:
        if holds(load):
            current += STEP
        elif current:
            lengths.append(current)
            current = 0.0
    return [*lengths, current] if current else lengths


def shortfall(loads: list[Load], percent: float, use: Callable[[Load], float]) -> float:
    """The highest sum of (percent - use) x seconds, never below 0."""
    highest = total = 0.0
    for load in loads:
        total = max(0.0, total + (percent - use(load)) * STEP)
        highest = max(highest, total)
    return highest


def active(load: Load) -> float:
    return load.active_percent


def util(load: Load) -> float:
    return load.util_percent


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_a_script_does_not_depend_on_when_it_is_asked() -> None:
    forward = series(scenarios.bursty, 3)
    script = Script(scenarios.bursty(seeded(3)))
    backward = [script.at(STEP * n) for n in reversed(range(len(forward)))]
    assert backward[::-1] == forward


def test_a_phase_ends_where_the_next_begins() -> None:
    script = Script(iter([(10.0, Load(1.0)), (20.0, Load(2.0)), (scenarios.FOREVER, Load(3.0))]))
    assert [script.at(at).util_percent for at in (0, 9.9, 10, 29.9, 30, 1e9)] == [1, 1, 2, 2, 3, 3]


def test_until_cuts_the_last_phase_short() -> None:
    phases = iter([(10.0, Load(1.0)), (20.0, Load(2.0)), (20.0, Load(3.0))])
    assert list(until(15, phases)) == [(10.0, Load(1.0)), (5, Load(2.0))]


def test_equal_names_give_equal_streams_and_others_do_not() -> None:
    assert seeded(1, "a").random() == seeded(1, "a").random()
    assert len({seeded(1, "a").random(), seeded(1, "b").random(), seeded(2, "a").random()}) == 3


@pytest.mark.parametrize("swing", [-1.0, -0.4, 0.0, 0.4, 1.0])
def test_a_swing_never_leaves_the_scale(swing: float) -> None:
    assert all(0 <= swung(level, swing) <= 100 for level in range(101))
    assert (swung(0, swing), swung(100, swing)) == (0, 100)


@pytest.mark.parametrize("shape", [*HEALTHY, *WASTEFUL, scenarios.hung])
def test_loads_are_possible(shape: Shape) -> None:
    for _, load in islice(shape(seeded(0)), 400):
        shares = (load.util_percent, load.active_percent, load.memory_percent)
        assert all(0 <= share <= 100 for share in shares)
        assert 0 <= load.power_fraction <= 1
        assert 0 <= load.spread <= 1
        assert 0 <= load.memory_bytes <= 79 * GIB
        assert load.memory_bytes or load == Load()
        if load == Load():  # an endless last phase
            break


@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy_shapes_are_never_low_for_long(shape: Shape) -> None:
    """A third of the least hold is the most that they come to."""
    use = util if shape in (scenarios.small_kernels, scenarios.shared) else active
    for seed in SEEDS:
        assert shortfall(series(shape, seed), 10, use) < 10 * 1800 / 3


@pytest.mark.parametrize("shape", WASTEFUL)
def test_wasteful_shapes_are_low_for_long(shape: Shape) -> None:
    for seed in SEEDS:
        assert shortfall(series(shape, seed), 10, active) > 10 * 1800


@pytest.mark.parametrize("seed", SEEDS)
def test_training_stops_for_checkpoints(seed: int) -> None:
    loads = series(scenarios.training, seed)
    dips = runs(loads, lambda load: load.util_percent == 0)
    assert 6 <= len(dips) <= 10
    whole = dips if loads[-1].util_percent else dips[:-1]  # the end may cut the last one
    assert all(60 - STEP <= dip <= 120 + STEP for dip in whole)
    work_runs = runs(loads, lambda load: load.util_percent > 0)
    assert all(900 - STEP <= run <= 1200 + STEP for run in work_runs[:-1])
    assert min(active(load) for load in loads if util(load) == 98) >= 65


@pytest.mark.parametrize("seed", SEEDS)
def test_bursty_inference_is_quiet_for_five_minutes_at_most(seed: int) -> None:
    loads = series(scenarios.bursty, seed, 0, 8 * LENGTH)
    assert 30 <= mean([active(load) for load in loads]) <= 42
    assert max(runs(loads, lambda load: active(load) == 0)) <= 300 + STEP
    assert {load.memory_bytes for load in loads} == {65 * GIB}


@pytest.mark.parametrize("seed", SEEDS)
def test_small_kernels_are_always_there_and_draw_little(seed: int) -> None:
    for load in series(scenarios.small_kernels, seed):
        assert load.util_percent == 100
        assert 130 <= 55 + load.power_fraction * (400 - 55) <= 160
        swings = [swung(load.memory_percent, sign * load.spread) for sign in (-1, 1)]
        assert 3 <= swings[0] <= swings[1] <= 8


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_and_instance_stay_in_their_range(seed: int) -> None:
    for load in series(scenarios.shared, seed):
        swings = [swung(load.util_percent, sign * load.spread) for sign in (-1, 1)]
        assert 30 <= swings[0] <= swings[1] <= 50
    for load in series(scenarios.instance, seed):
        shares = (load.active_percent, load.util_percent)
        swings = [swung(share, sign * load.spread) for sign in (-1, 1) for share in shares]
        assert 40 <= min(swings) <= max(swings) <= 70


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_loads_for_three_minutes(seed: int) -> None:
    loads = series(scenarios.loading, seed)
    start = loads[: int(180 / STEP)]
    assert {load.util_percent for load in start} == {0}
    held = [load.memory_bytes for load in start]
    assert held == sorted(held)
    assert held[0] < GIB < 50 * GIB < held[-1]
    assert loads[len(start)].util_percent > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_notebook_lets_go_after_ten_minutes(seed: int) -> None:
    assert mean([active(load) for load in series(scenarios.notebook, seed, 0, 600)]) > 10
    assert set(series(scenarios.notebook, seed, 600)) == {Load()}


@pytest.mark.parametrize("seed", SEEDS)
def test_idle_server_keeps_its_memory(seed: int) -> None:
    assert mean([active(load) for load in series(scenarios.idle_server, seed, 0, 480)]) > 10
    after = set(series(scenarios.idle_server, seed, 480))
    assert {(load.util_percent, load.memory_bytes) for load in after} == {(0, 60 * GIB)}


@pytest.mark.parametrize("seed", SEEDS)
def test_idle_then_used_is_idle_for_fifty_minutes(seed: int) -> None:
    loads = series(scenarios.idle_then_used, seed)
    assert runs(loads, lambda load: load.util_percent == 0) == [50 * MINUTE]
    assert min(load.memory_bytes for load in loads) == 40 * GIB


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hung_job_works_and_then_spins(seed: int) -> None:
    assert min(active(load) for load in series(scenarios.hung, seed, 0, 1200)) > 60
    (stall,) = set(series(scenarios.hung, seed, 1200))
    assert stall.util_percent == 100
    assert 15 < stall.active_percent < 25
    assert 70 + stall.power_fraction * (700 - 70) == pytest.approx(78, abs=0.5)
    assert stall.spread == stall.memory_percent == 0
    assert stall.pcie_bytes_per_second == stall.nvlink_bytes_per_second == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_low_use_is_four_to_six_percent(seed: int) -> None:
    for load in series(scenarios.low_use, seed):
        assert 4 <= load.active_percent <= 6
        assert swung(load.active_percent, load.spread) < 10

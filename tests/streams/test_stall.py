import pytest

from schemas.parameters import UnderUseParameters
from schemas.windows import WorkloadWindow
from streams.stall import is_still
from tests.streams.under_use_signals import GIB, HOUR, MINUTE, changes, detector, hung, series
from tests.streams.under_use_signals import workload as job

PARAMETERS = UnderUseParameters()
WORKING = series(100.0, power_mean_watts=320.0, memory_activity_mean_percent=40.0)
UNKNOWN = series(None, gpu_util_mean_percent=None)


@pytest.mark.parametrize(
    ("fields", "still"),
    [
        ({}, True),
        ({"link_bytes_per_second": 1e6}, True),
        ({"link_bytes_per_second": 1e9}, False),
        ({"gpu_util_mean_percent": 94.0}, False),
        ({"gpu_util_mean_percent": None}, None),
        ({"gpu_util_mean_percent": 250.0}, None),
        ({"power_mean_watts": 95.0}, False),
        ({"power_max_watts": 90.0}, False),
        ({"power_mean_watts": None}, None),
        ({"power_mean_watts": -1.0}, None),
        ({"power_idle_watts": None}, None),
        ({"power_limit_watts": None}, None),
        ({"memory_activity_mean_percent": 5.0}, False),
        ({"memory_activity_mean_percent": None}, None),
        ({"mig_instance": "1g.10gb/3"}, None),
        ({"shared": True}, None),
        ({"coverage_seconds": 0.0}, None),
        ({"interval_seconds": 301.0}, None),
    ],
)
def test_every_sign_of_life_counts(fields: dict[str, object], still: bool | None) -> None:  # noqa: FBT001
    assert is_still(job(hung(**fields)), PARAMETERS) is still


@pytest.mark.parametrize(
    ("window", "still"),
    [
        (job(hung(), hung()), True),
        (job(hung(), WORKING), False),
        (job(hung(), UNKNOWN), None),
        (job(hung(), hung(), WORKING), True),
        (job(hung(), hung(), UNKNOWN), True),
        (job(hung(), UNKNOWN, UNKNOWN), None),
        (job(hung(), WORKING, WORKING, UNKNOWN), False),
    ],
)
def test_all_ranks_or_all_but_one(window: WorkloadWindow, still: bool | None) -> None:  # noqa: FBT001
    assert is_still(window, PARAMETERS) is still


def test_a_hung_job_is_found_after_half_an_hour() -> None:
    """NVIDIA/nccl 968."""
    assert changes(detector(), lambda _: job(hung(), hung()), HOUR) == [(1800, "busy_stalled")]


def test_it_ends_after_two_minutes_of_movement() -> None:
    under_use = detector()
    changes(under_use, lambda _: job(hung()), HOUR)
    assert changes(under_use, lambda _: job(WORKING), HOUR, HOUR) == [(HOUR + 120, None)]


def test_a_moment_of_movement_does_not_end_it() -> None:
    under_use = detector()
    changes(under_use, lambda _: job(hung()), HOUR)
    blip = lambda at: job(WORKING if at % 300 < 100 else hung())  # noqa: E731
    assert changes(under_use, blip, HOUR, HOUR) == []


def test_a_healthy_job_of_small_kernels_moves_now_and_then() -> None:
    still_mostly = lambda at: job(  # noqa: E731
        hung(memory_activity_mean_percent=6.0 if at % 60 == 0 else 1.0)
    )
    assert changes(detector(), still_mostly, 12 * HOUR) == []


def test_low_power_alone_is_no_stall() -> None:
    small = hung(memory_activity_mean_percent=8.0, power_mean_watts=80.0)
    assert changes(detector(), lambda _: job(small), 12 * HOUR) == []


@pytest.mark.parametrize(
    "fields",
    [{"mig_instance": "1g.10gb/3"}, {"shared": True}, {"power_mean_watts": None}],
)
def test_not_judged_where_the_power_is_not_the_jobs_own(fields: dict[str, object]) -> None:
    assert changes(detector(), lambda _: job(hung(**fields)), 5 * HOUR) == []


def test_a_stall_with_a_measure_of_activity_is_not_called_idle() -> None:
    spinning = hung(measure="sm_active", use_mean_percent=0.4)
    under_use = detector()
    assert changes(under_use, lambda _: job(spinning), 5 * HOUR) == [(1800, "busy_stalled")]


def test_a_stalled_verdict_says_what_is_wrong() -> None:
    under_use = detector()
    changes(under_use, lambda _: job(hung(), hung()), HOUR)
    verdict = under_use.describe()
    assert verdict.summary == (
        "Deployment server in ml hangs on its 2 GPUs: full gpu_util at 70 W without memory "
        "traffic for 60 min."
    )
    assert verdict.waste is not None
    assert verdict.waste.gpu_hours == pytest.approx(2.0)
    assert verdict.evidence["memory_held_bytes"] == 120 * GIB
    assert verdict.parameters["stalled_after"] == 1800.0
    assert "open_after" not in verdict.parameters


def test_a_silent_rank_costs_nothing_that_is_known() -> None:
    silent = UNKNOWN.model_copy(update={"coverage_seconds": 0.0, "device_model": None})
    under_use = detector()
    changes(under_use, lambda _: job(hung(), hung(), silent), HOUR)
    waste = under_use.describe().waste
    assert waste is not None
    assert waste.cost == pytest.approx(8.0)


def test_a_job_that_dies_after_a_stall_becomes_idle_later() -> None:
    under_use = detector()
    changes(under_use, lambda _: job(hung()), HOUR)
    dead = changes(under_use, lambda _: job(series(0.0)), HOUR, HOUR)
    assert dead == [(HOUR + 120, None), (HOUR + 30 * MINUTE, "idle")]

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.windows import SeriesEnd, WorkloadWindow
from streams.quiet_hours import QuietHours
from streams.under_use import UnderUse, UnderUseState
from streams.verdicts import Detector, Verdict
from tests.streams.under_use_signals import (
    GIB,
    HOUR,
    MIB,
    MINUTE,
    T0,
    Signal,
    changes,
    detector,
    feed,
    hung,
    reloaded,
    series,
    use,
    workload,
)

DAY = 24 * HOUR
HELD = {"memory_used_bytes": 60 * GIB, "power_mean_watts": 120.0}


def test_it_is_a_detector() -> None:
    seam: Detector = detector()
    assert seam.name == "under_use"


# What is under-use.


def test_an_idle_card_is_found_after_half_an_hour() -> None:
    assert changes(detector(), lambda _: use(0.0), 2 * HOUR) == [(1800, "idle")]


def test_a_loaded_model_without_a_request_holds_memory() -> None:
    """0 %, 120 W, 60 GB held for 40 min."""
    assert changes(detector(), lambda _: use(0.0, **HELD), 40 * MINUTE) == [(1800, "idle_held")]


def test_low_use_takes_longer_the_less_is_missing() -> None:
    assert changes(detector(), lambda _: use(5.0), 2 * HOUR) == [(3600, "low_use")]


def test_a_high_gpu_util_hides_low_activity() -> None:
    hidden = use(12.0, measure="sm_active", gpu_util_mean_percent=98.0)
    under_use = detector()
    assert changes(under_use, lambda _: hidden, 3 * HOUR) == [(7200, "low_use")]
    assert under_use.describe().summary == (
        "Deployment server in ml hardly uses its GPU: 12.0 % sm_active behind 98 % gpu_util "
        "for 180 min."
    )


def test_good_activity_ends_hidden_low_use() -> None:
    hidden = use(12.0, measure="sm_active", gpu_util_mean_percent=98.0)
    under_use = detector()
    changes(under_use, lambda _: hidden, 3 * HOUR)
    good = use(60.0, measure="sm_active", gpu_util_mean_percent=98.0)
    assert changes(under_use, lambda _: good, HOUR, 3 * HOUR) == [(3 * HOUR + 1200, None)]


def test_gpu_util_can_not_tell_activity() -> None:
    assert changes(detector(), lambda _: use(12.0), 5 * HOUR) == []


def test_it_closes_when_half_of_the_hold_is_worked_off() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    assert changes(under_use, lambda _: use(100.0), HOUR, HOUR) == [(HOUR + 100, None)]
    assert under_use.close_reason == "recovered"


def test_a_gap_learned_from_an_incident_does_not_close_it_early() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    assert changes(under_use, lambda at: use(50.0 if at % 300 < 10 else 0.0), HOUR, HOUR) == []
    assert under_use.hold_seconds == 4500


def test_the_hold_can_be_set() -> None:
    under_use = detector(open_after=120.0)
    assert changes(under_use, lambda _: use(0.0), HOUR) == [(120, "idle")]


# What is not.


def test_minutes_between_epochs_are_not_idle() -> None:
    """mosaicml/streaming 643: 10 minutes at 0 % between epochs of an hour, all night."""
    assert changes(detector(), lambda at: use(0.0 if at % 4200 >= 3600 else 95.0), 10 * HOUR) == []


@pytest.mark.parametrize(
    ("period", "low"),
    [(600, 40), (1800, 300), (120, 60)],
    ids=["checkpoint dips", "data-loading dips", "bursty inference"],
)
def test_dips_are_not_idle(period: int, low: int) -> None:
    assert changes(detector(), lambda at: use(0.0 if at % period < low else 70.0), 12 * HOUR) == []


def test_off_loaded_training_is_not_idle() -> None:
    """Utilisation reads 0 in most samples."""
    dice = random.Random(7)  # noqa: S311 - a signal
    values = [100.0 if dice.random() < 0.2 else 0.0 for _ in range(12 * 360)]
    assert changes(detector(), lambda at: use(values[at // 10]), 12 * HOUR) == []


def test_the_night_of_a_service_that_works_by_day_is_not_idle_once_learned() -> None:
    under_use = detector()

    def service(at: int) -> WorkloadWindow:
        return use(50.0 if 8 * HOUR <= at % DAY < 20 * HOUR else 0.0, **HELD)

    first = changes(under_use, service, DAY + HOUR, 8 * HOUR)
    assert [kind for _, kind in first] == ["idle_held", None], "the first night is not known yet"
    assert changes(under_use, service, 3 * DAY, DAY + 9 * HOUR) == []


def test_a_service_idle_by_day_is_found_whatever_its_nights_are() -> None:
    under_use = detector()
    night_off: Signal = lambda at: use(50.0 if 8 * HOUR <= at % DAY < 20 * HOUR else 0.0)  # noqa: E731
    changes(under_use, night_off, 2 * DAY)
    found = changes(under_use, lambda _: use(0.0), DAY, 2 * DAY)
    assert [kind for _, kind in found] == ["idle"]
    assert 8 * HOUR < found[0][0] - 2 * DAY <= 10 * HOUR


def test_a_gap_that_ended_by_itself_makes_the_hold_longer() -> None:
    under_use = detector()
    changes(under_use, lambda at: use(0.0 if at < 25 * MINUTE else 90.0), HOUR)
    assert changes(under_use, lambda _: use(0.0), HOUR, HOUR) == [(HOUR + 2250, "idle")]
    assert under_use.hold_seconds == 1.5 * 25 * MINUTE


def test_the_hold_has_an_end() -> None:
    under_use = detector()
    changes(under_use, lambda at: use(0.0 if at < 5 * HOUR else 90.0), 6 * HOUR)
    assert under_use.hold_seconds == 4500


def test_a_notebook_is_held_longer() -> None:
    notebook = workload(series(0.0), notebook=True)
    assert changes(detector(), lambda _: notebook, 2 * HOUR) == [(3600, "idle")]


def test_a_workload_is_idle_only_when_all_its_devices_are() -> None:
    one_works = workload(series(0.0), series(40.0, device_uuid="GPU-2"))
    none_works = workload(series(0.0), series(0.0, device_uuid="GPU-2"))
    assert changes(detector(), lambda _: one_works, 2 * HOUR) == []
    assert changes(detector(), lambda _: none_works, 2 * HOUR) == [(1800, "idle")]


# Starting.


def started(at_seconds: int, percent: float = 0.0, **fields: object) -> WorkloadWindow:
    return workload(series(percent), started_at_ms=(T0 + at_seconds) * 1000, **fields)


def test_the_time_after_a_start_is_not_idle() -> None:
    found = changes(detector(), lambda _: started(0), 2 * HOUR)
    assert found == [(3600, "idle")]


def test_the_grace_can_be_longer_by_annotation() -> None:
    slow = lambda _: started(0, starting_grace_seconds=7200.0)  # noqa: E731
    assert changes(detector(), slow, 4 * HOUR) == [(9000, "idle")]


def test_the_first_use_ends_the_start() -> None:
    found = changes(detector(), lambda at: started(0, 100.0 if at < 10 else 0.0), HOUR)
    assert found == [(1810, "idle")]


def test_a_newer_start_begins_anew() -> None:
    under_use = detector()
    changes(under_use, lambda _: started(0), 2 * HOUR)
    found = changes(under_use, lambda _: started(2 * HOUR), 2 * HOUR, 2 * HOUR)
    assert found == [(2 * HOUR + 10, None), (3 * HOUR, "idle")]


def test_a_restart_is_the_reason_why_an_incident_ends() -> None:
    under_use = detector()
    changes(under_use, lambda _: started(0), 2 * HOUR)
    changes(under_use, lambda _: started(2 * HOUR), 10, 2 * HOUR)
    assert under_use.close_reason == "restarted"


def test_an_older_start_is_a_pod_that_left() -> None:
    under_use = detector()
    changes(under_use, lambda _: started(0), 2 * HOUR)
    assert changes(under_use, lambda _: started(-HOUR), HOUR, 2 * HOUR) == []


@pytest.mark.parametrize(("start", "found"), [(100 * DAY, 3600), (-T0, 1800)])
def test_a_start_in_the_future_or_the_far_past_is_harmless(start: int, found: int) -> None:
    assert changes(detector(), lambda _: started(start), 2 * HOUR) == [(found, "idle")]


# Unknown.


@pytest.mark.parametrize(
    "fields",
    [
        {"use_mean_percent": None},
        {"use_mean_percent": -1.0},
        {"use_mean_percent": 101.0},
        {"coverage_seconds": 0.0},
        {"measure": None},
        {"interval_seconds": 301.0},
    ],
)
def test_unknown_adds_nothing(fields: dict[str, object]) -> None:
    assert changes(detector(), lambda _: workload(series(0.0, **fields)), 3 * HOUR) == []


def test_a_device_that_is_not_known_may_be_the_one_that_works() -> None:
    one_unknown = workload(series(0.0), series(None, device_uuid="GPU-2"))
    assert changes(detector(), lambda _: one_unknown, 3 * HOUR) == []


def test_a_device_in_use_is_enough_to_know() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    works = workload(series(100.0), series(None, device_uuid="GPU-2"))
    assert changes(under_use, lambda _: works, HOUR, HOUR) == [(HOUR + 100, None)]


def test_a_series_sampled_too_rarely_is_not_observable() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0, interval_seconds=400.0), 100)
    assert under_use.state.not_observable_windows == 10


def test_a_board_that_reports_no_memory_holds_none_that_is_known() -> None:
    blind = use(0.0, memory_used_bytes=10 * GIB, memory_total_bytes=0)
    under_use = detector()
    assert changes(under_use, lambda _: blind, HOUR) == [(1800, "idle")]
    assert under_use.describe().evidence["memory_held_bytes"] is None


def test_gaps_add_nothing() -> None:
    under_use = detector()
    assert changes(under_use, lambda _: use(0.0), 20 * MINUTE) == []
    assert changes(under_use, lambda _: use(0.0), 20 * MINUTE, 5 * HOUR) == [
        (5 * HOUR + 10 * MINUTE, "idle")
    ]


def test_partial_coverage_counts_for_what_it_covers() -> None:
    half = workload(series(0.0), series(0.0, device_uuid="GPU-2", coverage_seconds=5.0))
    assert changes(detector(), lambda _: half, 2 * HOUR) == [(3600, "idle")]


def test_a_gap_that_nobody_saw_whole_is_not_learned() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), 25 * MINUTE)
    changes(under_use, lambda _: use(90.0), 10 * MINUTE, HOUR)
    assert under_use.state.low.longest_gap_seconds == 0


def test_a_change_of_measure_begins_anew_and_is_evidence() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), 29 * MINUTE)
    by_activity = lambda _: use(0.0, measure="sm_active")  # noqa: E731
    found = changes(under_use, by_activity, HOUR, 29 * MINUTE)
    assert found == [(59 * MINUTE, "idle")]
    evidence = under_use.describe().evidence
    assert (evidence["former_measure"], evidence["measure"]) == ("gpu_util", "sm_active")


def test_a_device_unknown_for_a_moment_is_no_change_of_measure() -> None:
    under_use = detector()

    def mixed(at: int) -> WorkloadWindow:
        other = 0.0 if at % 60 else None
        return workload(series(50.0, measure="sm_active"), series(other, device_uuid="GPU-2"))

    changes(under_use, mixed, HOUR)
    assert (under_use.state.measure, under_use.state.former_measure) == ("gpu_util+sm_active", "")


def test_what_is_not_allocated_is_not_wasted() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    end = SeriesEnd(node="n1", device_uuid="GPU-1", pod_uid="u", reason="not allocated")
    assert changes(under_use, lambda _: workload(ended=(end,)), 10, HOUR) == [(HOUR + 10, None)]
    assert under_use.close_reason == "not allocated"
    assert changes(under_use, lambda _: use(0.0), HOUR, HOUR + 10) == [(HOUR + 1810, "idle")]


def test_a_series_that_ends_beside_others_changes_nothing() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    end = SeriesEnd(node="n1", device_uuid="GPU-2", reason="pod deleted")
    assert changes(under_use, lambda _: workload(series(0.0), ended=(end,)), 10, HOUR) == []


# The kind of an open incident.


def test_a_kind_stays_unless_it_changed_for_ten_minutes() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    assert changes(under_use, lambda at: use(5.0 if at % 3600 < 300 else 0.0), HOUR, HOUR) == []
    assert changes(under_use, lambda _: use(5.0), HOUR, 2 * HOUR) == [(2 * HOUR + 750, "low_use")]


def test_memory_that_is_released_changes_the_kind() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0, **HELD), HOUR)
    assert changes(under_use, lambda _: use(0.0), HOUR, HOUR) == [(HOUR + 600, "idle")]


def test_a_process_that_comes_is_a_sign_of_work() -> None:
    under_use = detector()
    changes(under_use, lambda _: use(0.0), HOUR)
    assert changes(under_use, lambda _: use(0.0, **HELD), HOUR, HOUR) == [
        (HOUR + 10, None),
        (HOUR + 1800, "idle_held"),
    ]


def test_a_process_that_comes_within_a_window_is_seen_in_the_next() -> None:
    under_use = detector()

    def loads(at: int) -> WorkloadWindow:
        least = 4 * MIB if at <= 1200 else 60 * GIB
        return use(0.0, memory_min_bytes=least, **(HELD if at >= 1200 else {}))

    assert changes(under_use, loads, HOUR) == [(1210 + 1800, "idle_held")]


def test_the_short_context_of_a_monitor_is_no_sign_of_work() -> None:
    def probed(at: int) -> WorkloadWindow:
        """Each probe is seen by the last sample of a window and the first of the next."""
        least, last = {0: (4, 500), 10: (4, 4)}.get(at % 600, (4, 4))
        return use(0.0, memory_used_bytes=last * MIB, memory_min_bytes=least * MIB)

    assert changes(detector(), probed, HOUR) == [(1800, "idle")]


def test_short_jobs_that_come_and_go_are_work() -> None:
    """A mean of 1 %, and a process each ten minutes that loads 20 GB and computes for 5 s."""

    def job(at: int) -> WorkloadWindow:
        if at % 600:
            return use(0.0)
        return use(5.0, use_max_percent=90.0, memory_used_bytes=20 * GIB, memory_min_bytes=4 * MIB)

    assert changes(detector(), job, 6 * HOUR) == []


def test_a_process_that_leaves_without_work_changes_nothing() -> None:
    under_use = detector()
    left = lambda at: use(0.0, **(HELD if at < 1200 else {}))  # noqa: E731
    assert changes(under_use, left, HOUR) == [(1800, "idle_held"), (2400, "idle")]


def test_idle_with_a_rare_blip_stays_idle() -> None:
    blips = lambda at: use(12.0 if at % 300 == 0 else 0.0)  # noqa: E731
    assert [kind for _, kind in changes(detector(), blips, 6 * HOUR)] == ["idle"]


# What the verdict says.


def verdict_of(signal: Signal, seconds: int = HOUR) -> Verdict:
    under_use = detector()
    changes(under_use, signal, seconds)
    return under_use.describe()


def test_the_verdict_carries_the_numbers() -> None:
    verdict = verdict_of(lambda at: use(90.0 if at < 600 else 0.0, **HELD))
    assert verdict.onset_ms == (T0 + 600) * 1000
    assert verdict.summary == (
        "Deployment server in ml does not use its GPU: 0.0 % gpu_util for 50 min, "
        "60.0 GiB of memory held."
    )
    assert (verdict.kind, verdict.tier, verdict.owner) == ("idle_held", "ticket", "team-a")
    assert verdict.waste is not None
    assert verdict.waste.gpu_hours == pytest.approx(50 / 60)
    assert verdict.waste.cost == pytest.approx(50 / 60 * 4.0)
    assert verdict.waste.currency == "USD"
    expected = {
        "use_mean_percent": 0.0,
        "low_minutes": 50.0,
        "memory_held_bytes": 60 * GIB,
        "power_watts": 120.0,
        "power_fraction": pytest.approx(60 / 340),
        "measure": "gpu_util",
        "devices": 1,
        "coverage": 1.0,
        "hold_minutes": 30.0,
        "longest_gap_minutes": 0.0,
        "quiet_hour": False,
    }
    assert {name: verdict.evidence[name] for name in expected} == expected
    assert verdict.parameters["open_after"] == 1800.0


def test_waste_is_the_share_of_the_card() -> None:
    slice_of = series(0.0, card_share=0.25, mig_instance="1g.10gb/3")
    waste = verdict_of(lambda _: workload(slice_of)).waste
    assert waste is not None
    assert waste.gpu_hours == pytest.approx(0.25)
    assert waste.cost == pytest.approx(1.0)


def test_a_card_without_a_price_makes_the_cost_unknown() -> None:
    other = series(0.0, device_uuid="GPU-2", device_model="NVIDIA L40S")
    waste = verdict_of(lambda _: workload(series(0.0), other)).waste
    assert waste is not None
    assert waste.gpu_hours == pytest.approx(2.0)
    assert (waste.cost, waste.currency) == (None, None)


def test_standby_is_information_only() -> None:
    assert verdict_of(lambda _: workload(series(0.0), standby=True)).tier == "info"


@pytest.mark.parametrize(
    ("quality", "kind", "said"),
    [
        ("exact", "Deployment", "exact"),
        ("estimated", "Deployment", "estimated"),
        ("unknown", "Deployment", "estimated"),
        ("unknown", None, "exact"),
    ],
)
def test_the_verdict_says_how_well_it_is_attributed(
    quality: str, kind: str | None, said: str
) -> None:
    window = workload(series(0.0, quality=quality), kind=kind)
    assert verdict_of(lambda _: window).quality == said


def test_a_device_of_a_log_is_its_own_subject() -> None:
    alone = series(0.0, pod=None, pod_uid=None, quality="unknown")
    verdict = verdict_of(lambda _: workload(alone, namespace=None, kind=None, name="GPU-1"))
    assert verdict.subject.model_dump(exclude_none=True) == {
        "cluster": "c",
        "node": "n1",
        "device_uuid": "GPU-1",
        "device_model": "NVIDIA H100 80GB HBM3",
    }
    assert verdict.summary.startswith("GPU GPU-1 is not used: 0.0 % gpu_util for 60 min")


def test_a_subject_of_many_devices_names_the_workload_alone() -> None:
    window = workload(series(0.0), series(0.0, device_uuid="GPU-2"))
    assert verdict_of(lambda _: window).subject.model_dump(exclude_none=True) == {
        "cluster": "c",
        "namespace": "ml",
        "workload": "Deployment/server",
    }


def test_nothing_open_has_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="update"):
        detector().describe()


# The state.

_window = st.builds(
    lambda busy, fields, started, gone: workload(
        *(() if gone else (hung() if busy is None else series(busy, **fields),)),
        started_at_ms=started,
        ended=(SeriesEnd(node="n1", device_uuid="GPU-1", reason="pod deleted"),) if gone else (),
    ),
    st.sampled_from([0.0, 0.0, 0.3, 4.0, 9.99, 12.1, 33.3, 100.0, None]),
    st.sampled_from(
        [
            {},
            {"measure": "sm_active", "gpu_util_mean_percent": 99.0},
            {"coverage_seconds": 3.337},
            {"memory_used_bytes": 60 * GIB},
            {"interval_seconds": 500.0},
        ]
    ),
    st.sampled_from([None, None, (T0 + 100) * 1000, (T0 + HOUR) * 1000]),
    st.sampled_from([False] * 9 + [True]),
)
_runs = st.lists(st.tuples(_window, st.integers(1, 250)), min_size=1, max_size=8)


def trace(under_use: UnderUse, windows: list[WorkloadWindow], cut: int) -> list[object]:
    """Every kind and verdict, with a restart of the worker before window `cut`."""
    found: list[object] = []
    for number, window in enumerate(windows):
        if number == cut:
            under_use = reloaded(under_use)
        ((_, kind),) = feed(under_use, lambda _, w=window: w, 10, number * 10)  # type: ignore[misc]
        found.append(kind)
        if kind is not None and window.series and number % 60 == 0:
            found.append(under_use.describe())
    return [*found, msgspec.json.encode(under_use.state)]


@settings(max_examples=30)
@given(_runs, st.data())
def test_a_dump_and_load_anywhere_gives_the_same(
    runs: list[tuple[WorkloadWindow, int]], data: st.DataObject
) -> None:
    windows = [window for window, length in runs for _ in range(length)]
    cut = data.draw(st.integers(0, len(windows) - 1))
    assert trace(detector(), windows, cut) == trace(detector(), windows, -1)


@pytest.mark.slow
def test_the_state_is_small() -> None:
    under_use = detector()
    dice = random.Random(3)  # noqa: S311 - a signal
    level = [dice.random() * 100 for _ in range(400)]
    changes(under_use, lambda at: use(level[at // HOUR], memory_used_bytes=50 * GIB), 340 * HOUR)
    changes(under_use, lambda _: use(0.37, measure="sm_active"), 3 * HOUR, 340 * HOUR)
    assert under_use.state.kind == "idle"
    full = msgspec.structs.replace(under_use.state, quiet=learned())
    assert len(msgspec.json.encode(full)) <= 1500


def learned() -> QuietHours:
    under_use = detector()
    changes(under_use, lambda _: use(33.3), 30 * HOUR)
    return under_use.state.quiet


def test_a_dump_of_the_first_version_is_still_read() -> None:
    """Golden bytes: a release reads the state of the two before it."""
    dump = (
        b'{"last_end_ms":1772413200000,"measure":"gpu_util","low":{"score_seconds":1800.0,'
        b'"open":true,"opened_at_score_seconds":1800.0,"spell":{"onset_ms":1772409600000,"known_seconds":3600.0,'
        b'"low_seconds":3600.0,"memory_seconds":3600.0,"memory_sum":15099494400.0,'
        b'"gpu_seconds":3600.0,"cost":4.0},"gap_seconds":3600.0},"kind":"idle"}'
    )
    under_use = detector(msgspec.json.decode(dump, type=UnderUseState))
    assert UnderUseState.VERSION == 1
    kinds = [k for _, k in feed(under_use, lambda _: use(0.0), 20, HOUR)]
    assert kinds == ["idle", "idle"]
    assert under_use.describe().evidence["memory_held_bytes"] == 4 * MIB

"""Windows of one node, from samples to series."""

from collections import Counter

import pytest

from schemas.parameters import TimeParameters
from schemas.pods import DeviceAllocation, Pod, PodEvent
from schemas.telemetry import DeviceSample, NodeTelemetry, ProcessSample
from schemas.windows import SeriesWindow, WorkloadWindow
from schemas.wire import PodVersion
from streams.node import NodeState, NodeStream
from streams.windows import WINDOW_MS

START_MS = 1_790_000_000_000
GIB = 2**30


def node() -> NodeStream:
    return NodeStream(NodeState(cluster="c", node="n"), TimeParameters(), Counter())


def feed(
    stream: NodeStream, at_seconds: float, device: DeviceSample, interval: float = 1.0
) -> None:
    at_ms = START_MS + round(at_seconds * 1000)
    sample = NodeTelemetry(
        cluster="c",
        node="n",
        boot_id="b",
        sequence=round(at_seconds * 10),
        observed_at_ms=at_ms,
        interval_seconds=interval,
        devices=(device,),
    )
    stream.add(round(at_seconds * 10), at_ms, sample, again=False)


def windows(stream: NodeStream) -> dict[int, list[WorkloadWindow]]:
    stream.flush()
    closed = sorted(stream.state.windows.closed)
    return {(start - START_MS) // 1000: stream.windows.take(start) for start in closed}


def first(found: dict[int, list[WorkloadWindow]], start: int = 0) -> SeriesWindow:
    return found[start][0].series[0]


def device(use: float | None, **fields: object) -> DeviceSample:
    given = {"uuid": "GPU-1", "gpu_util_percent": use, "memory_used_bytes": 8 * GIB} | fields
    return DeviceSample.model_validate(given)


def test_a_mean_is_weighed_by_the_time_covered() -> None:
    stream = node()
    for at, use in [(0, 100.0), (1, 0.0), (4, 0.0), (10, 0.0)]:
        feed(stream, at, device(use), interval=6.0)
    window = first(windows(stream))
    assert window.coverage_seconds == 10.0
    assert window.use_mean_percent == 10.0
    assert (window.use_min_percent, window.use_max_percent) == (0.0, 100.0)
    assert window.use_last_percent == 0.0


def test_a_sample_covers_at_most_one_and_a_half_intervals() -> None:
    stream = node()
    feed(stream, 0, device(50.0), interval=2.0)
    feed(stream, 60, device(50.0), interval=2.0)
    found = windows(stream)
    assert sorted(found) == [0, 60]
    assert first(found).coverage_seconds == 3.0


def test_unknown_is_not_zero() -> None:
    stream = node()
    for at in range(5):
        feed(stream, at, device(80.0 if at == 0 else None))
    feed(stream, 5, device(None))
    window = first(windows(stream))
    assert window.use_mean_percent == 80.0
    assert window.power_mean_watts is None


@pytest.mark.parametrize(
    "odd", [{"gpu_util_percent": 180.0}, {"gpu_util_percent": -1.0}, {"memory_used_bytes": 0}]
)
def test_what_cannot_be_is_unknown(odd: dict[str, object]) -> None:
    stream = node()
    for at in range(12):
        feed(stream, at, device(100.0, **odd))
    assert first(windows(stream)).use_mean_percent is None


def test_the_sample_after_a_process_has_left_still_shows_its_work() -> None:
    stream = node()
    feed(stream, 0, device(90.0))
    feed(stream, 1, device(40.0, memory_used_bytes=0))
    feed(stream, 2, device(0.0, memory_used_bytes=0))
    assert first(windows(stream)).use_max_percent == 90.0
    again = node()
    feed(again, 0, device(90.0))
    for at in range(1, 10):
        feed(again, at, device(40.0, memory_used_bytes=0))
    assert first(windows(again)).use_mean_percent == pytest.approx((90 + 40) / 2)


def test_the_best_measure_is_named() -> None:
    stream = node()
    feed(stream, 0, device(100.0, sm_active_percent=20.0, gr_engine_active_percent=90.0))
    feed(stream, 1, device(100.0, sm_active_percent=20.0))
    window = first(windows(stream))
    assert (window.measure, window.use_mean_percent) == ("sm_active", 20.0)
    assert window.gpu_util_mean_percent == 100.0


def test_pods_on_a_shared_card_are_measured_by_their_processes() -> None:
    stream = node()
    pods = tuple(
        Pod(
            namespace="team",
            name=name,
            uid=name,
            allocations=(
                DeviceAllocation(
                    device_uuid="GPU-1", memory_limit_bytes=4 * GIB if name == "one" else None
                ),
            ),
        )
        for name in ("one", "two", "unseen")
    )
    position = PodVersion(epoch=1, sequence=0)
    stream.add_pods(
        0,
        PodEvent(
            cluster="c",
            node="n",
            observed_at_ms=START_MS,
            position=position,
            action="snapshot",
            pods=pods,
        ),
    )
    processes = [
        {"pid": 1, "pod_uid": "one", "sm_percent": 30.0, "memory_used_bytes": GIB},
        {"pid": 2, "pod_uid": "one", "sm_percent": 10.0, "memory_used_bytes": GIB},
        {"pid": 3, "pod_uid": "two", "sm_percent": 5.0, "memory_used_bytes": None},
    ]
    seen = tuple(ProcessSample.model_validate(one) for one in processes)
    for at in range(3):
        feed(stream, at, device(45.0, processes=seen, memory_total_bytes=80 * GIB))
    found = {w.name: w.series[0] for w in windows(stream)[0]}
    assert (found["one"].use_mean_percent, found["one"].memory_used_bytes) == (40.0, 2 * GIB)
    assert (found["two"].use_mean_percent, found["two"].memory_used_bytes) == (5.0, None)
    assert found["unseen"].use_mean_percent is None
    assert (found["one"].memory_limit_bytes, found["two"].memory_limit_bytes) == (4 * GIB, None)
    assert {one.memory_free_bytes for one in found.values()} == {72 * GIB}
    assert found["one"].card_share == pytest.approx(1 / 3)
    assert all(series.shared for series in found.values())


def test_late_and_repeated_samples_are_counted_and_change_nothing() -> None:
    counters: Counter[str] = Counter()
    stream = NodeStream(NodeState(cluster="c", node="n"), TimeParameters(), counters)
    for at in range(60):
        feed(stream, at, device(50.0))
    feed(stream, 45, device(0.0))
    feed(stream, 5.5, device(0.0))
    assert (counters["repeated"], counters["late"]) == (1, 1)
    assert all(first({0: part}).use_mean_percent == 50.0 for part in windows(stream).values())


def test_windows_follow_the_clock_of_the_data() -> None:
    stream = node()
    for at in range(0, 35, 5):
        feed(stream, at, device(50.0), interval=5.0)
    found = windows(stream)
    assert [start * 1000 % WINDOW_MS for start in found] == [0] * len(found)
    assert [first(found, start).coverage_seconds for start in found] == [10.0, 10.0, 10.0, 7.5]

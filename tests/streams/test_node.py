"""One node over restarts: what is counted, what is read again, what is left out."""

from collections import Counter

import msgspec
import pytest

from schemas.parameters import TimeParameters
from schemas.pods import DeviceAllocation, Pod, PodEvent
from schemas.telemetry import DeviceSample, NodeTelemetry
from schemas.windows import WorkloadWindow
from schemas.wire import PodVersion
from streams.clock import AheadOfBrokerError
from streams.node import NodeState, NodeStream

START_MS = 1_790_000_000_000
GIB = 2**30
BUSY = DeviceSample(uuid="GPU-1", gpu_util_percent=50.0, memory_used_bytes=8 * GIB)


class Topic:
    """One node's telemetry, read by operators that are replaced at any time."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, NodeTelemetry]] = []
        self.counters: Counter[str] = Counter()
        self.stream = self._stream(NodeState(cluster="c", node="n"))
        self.seen = 0

    def send(self, at_seconds: float, device: DeviceSample = BUSY, **fields: object) -> None:
        at_ms = START_MS + round(at_seconds * 1000)
        known = {
            "cluster": "c", "node": "n", "boot_id": "b", "sequence": round(at_seconds * 10),
            "observed_at_ms": at_ms, "interval_seconds": 1.0, "devices": (device,),
        }  # fmt: skip
        append_ms = fields.pop("append_ms", at_ms)
        assert isinstance(append_ms, int)
        self.samples.append((append_ms, NodeTelemetry.model_validate(known | fields)))
        self.read()

    def read(self) -> None:
        offset = len(self.samples) - 1
        self.seen = len(self.samples)
        self.stream.add(offset, *self.samples[offset], again=False)

    def restart(self) -> None:
        """A successor loads the state and reads again what it has to."""
        resume = self.stream.resume_telemetry(self.seen)
        state = msgspec.json.decode(msgspec.json.encode(self.stream.state), type=NodeState)
        self.stream = self._stream(state, again=True)
        for offset in range(resume, self.seen):
            self.stream.add(offset, *self.samples[offset], again=True)

    def windows(self) -> dict[int, list[WorkloadWindow]]:
        self.stream.flush()
        closed = sorted(self.stream.state.windows.closed)
        return {(start - START_MS) // 1000: self.stream.windows.take(start) for start in closed}

    def _stream(self, state: NodeState, *, again: bool = False) -> NodeStream:
        return NodeStream(state, TimeParameters(), self.counters, again=again)


@pytest.mark.parametrize("interval", [1.0, 3.7, 27.0])
def test_a_restart_after_any_sample_changes_no_window(interval: float) -> None:
    def topic(*restarts: int) -> dict[int, list[WorkloadWindow]]:
        one = Topic()
        for number in range(40):
            device = BUSY.model_copy(update={"gpu_util_percent": float(number % 7 * 10)})
            one.send(number * interval, device, interval_seconds=interval)
            if number in restarts:
                one.restart()
        return one.windows()

    whole = topic()
    assert len(whole) > 3
    for number in range(40):
        assert topic(number, number + 1, number + 5) == whole


def test_work_that_ends_as_a_window_ends_is_known_after_a_restart_too() -> None:
    """Whether use on an empty card is believed depends on the sample of the window before."""
    empty = BUSY.model_copy(update={"gpu_util_percent": 40.0, "memory_used_bytes": 0})

    def topic(*, restart: bool) -> dict[int, list[WorkloadWindow]]:
        one = Topic()
        for at in range(10):
            one.send(at)
        one.send(10, empty)
        for at in range(11, 31):
            one.send(at, empty.model_copy(update={"gpu_util_percent": 0.0}))
        if restart:
            assert one.stream.state.windows.closed
            one.restart()
        return one.windows()

    assert topic(restart=True) == topic(restart=False)
    assert topic(restart=True)[10][0].series[0].use_max_percent == 40.0


def test_a_sample_that_was_refused_stays_out_when_it_is_read_again() -> None:
    one = Topic()
    for at in range(5):
        one.send(at)
    with pytest.raises(AheadOfBrokerError):
        one.send(50, append_ms=START_MS + 5_000)
    for at in range(6, 9):
        one.send(at)
    one.restart()
    assert list(one.windows()) == [0]


def test_a_pod_that_replaces_another_within_a_window_gets_only_its_own_time() -> None:
    one = Topic()
    for sequence, (at, uid) in enumerate([(0, "first"), (6, "second")]):
        pod = Pod(
            namespace="team",
            name=uid,
            uid=uid,
            allocations=(DeviceAllocation(device_uuid="GPU-1"),),
        )
        version = PodVersion(epoch=1, sequence=sequence)
        event = PodEvent(
            cluster="c", node="n", observed_at_ms=START_MS + at * 1000, position=version,
            action="snapshot", pods=(pod,),
        )  # fmt: skip
        one.stream.add_pods(sequence, event)
    for at in range(12):
        use = 90.0 if at < 6 else 10.0
        device = BUSY.model_copy(update={"gpu_util_percent": use})
        one.send(at, device, pod_version={"epoch": 1, "sequence": int(at >= 6)})
    found = {part.name: part for part in one.windows()[0]}
    assert [end.reason for end in found["first"].ended] == ["pod deleted"]
    second = found["second"].series[0]
    assert (second.coverage_seconds, second.use_mean_percent) == (4.0, 10.0)


def test_pod_events_that_come_late_are_waited_for_and_then_given_up() -> None:
    one = Topic()
    for at in range(25):
        one.send(at, pod_version={"epoch": 1, "sequence": 0})
    assert one.stream.waits_for_pods
    newest = one.stream.waits_for_pods_since
    assert newest == 9
    assert not one.stream.state.windows.closed
    one.stream.give_up_pods()
    assert one.counters["lost_pod_events"] == 10
    assert one.stream.state.applied_ms == START_MS + 10_000
    assert not one.stream.waits_for_pods


def test_the_state_holds_nothing_of_the_window_in_progress() -> None:
    one = Topic()
    for at in range(25):
        one.send(at)
    del one.stream.state.windows.closed[START_MS]
    assert b"use_" not in msgspec.json.encode(one.stream.state)
    assert one.stream.resume_telemetry(25) == 9

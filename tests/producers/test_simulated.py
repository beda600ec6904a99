import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest

from producers.simulated import NODES, SimulatedCluster, pod_changes
from producers.simulated_workloads import RUNS
from schemas.codec import encode
from schemas.pods import Pod, PodEvent
from schemas.telemetry import DeviceSample, NodeTelemetry

if TYPE_CHECKING:
    from schemas.wire import PodVersion

START_MS = 1_790_000_000_000

Message = NodeTelemetry | PodEvent


def contents(cluster: SimulatedCluster) -> Iterator[Message]:
    """The messages as a reader of the topics has them: checked by the pydantic models."""
    for message in cluster.messages():
        model = NodeTelemetry if message.type == "node_telemetry" else PodEvent
        yield model.model_validate_json(encode(message))


def digest(cluster: SimulatedCluster) -> str:
    summary = hashlib.sha256()
    for message in cluster.messages():
        summary.update(encode(message))
    return summary.hexdigest()


@pytest.fixture(scope="module")
def coarse() -> list[Message]:
    """The whole story, one scrape a minute."""
    return list(contents(SimulatedCluster(1, interval_seconds=60)))


def telemetry(messages: list[Message]) -> list[NodeTelemetry]:
    return [message for message in messages if isinstance(message, NodeTelemetry)]


def events(messages: list[Message]) -> list[PodEvent]:
    return [message for message in messages if isinstance(message, PodEvent)]


def workload_name(pod: Pod) -> str:
    assert pod.workload is not None
    return pod.workload.name


def held_samples(messages: list[Message]) -> Iterator[tuple[float, str, Pod, DeviceSample]]:
    """(seconds, workload, pod, sample) of every device of every pod, joined as the streams do."""
    running: dict[str, dict[str, Pod]] = defaultdict(dict)
    for message in messages:
        if isinstance(message, PodEvent):
            if message.action == "snapshot":
                running[message.node] = {}
            for pod in message.pods:
                if message.action == "deleted":
                    del running[message.node][pod.uid]
                else:
                    running[message.node][pod.uid] = pod
            continue
        devices = {device.uuid: device for device in message.devices}
        seconds = (message.observed_at_ms - START_MS) / 1000
        for pod in running[message.node].values():
            for allocation in pod.allocations:
                yield seconds, workload_name(pod), pod, devices[allocation.device_uuid]


def test_same_seed_same_bytes() -> None:
    first, again = (SimulatedCluster(7, duration_seconds=300) for _ in range(2))
    assert digest(first) == digest(again) == digest(first)
    assert digest(SimulatedCluster(8, duration_seconds=300)) != digest(first)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = [encode(m) for m in SimulatedCluster(2, duration_seconds=200).messages()]
    longer = SimulatedCluster(2, duration_seconds=float("inf")).messages()
    assert [encode(message) for message in islice(longer, len(short))] == short


def test_messages_are_in_order_and_inside_the_duration(coarse: list[Message]) -> None:
    times = [message.observed_at_ms for message in coarse]
    assert times == sorted(times)
    assert times[0] == START_MS
    assert times[-1] < START_MS + 9_000_000
    assert {message.clock for message in coarse} == {"data"}
    assert {message.cluster for message in coarse} == {"demo"}


def test_a_change_after_the_last_scrape_is_still_told() -> None:
    messages = list(SimulatedCluster(0, duration_seconds=185, interval_seconds=120).messages())
    assert messages[-1].type == "pod_event"
    assert messages[-1].observed_at_ms == START_MS + 180_000


def test_nodes_keep_their_phase_and_count_their_scrapes(coarse: list[Message]) -> None:
    by_node = defaultdict(list)
    for scrape in telemetry(coarse):
        by_node[scrape.node].append(scrape)
    assert len(by_node) == 8
    phases = {(scrapes[0].observed_at_ms - START_MS) for scrapes in by_node.values()}
    assert len(phases) > 1
    assert all(0 < phase < 1000 for phase in phases)
    for scrapes in by_node.values():
        assert [scrape.sequence for scrape in scrapes] == list(range(150))
        assert len({scrape.boot_id for scrape in scrapes}) == 1
        steps = {b.observed_at_ms - a.observed_at_ms for a, b in pairwise(scrapes)}
        assert steps == {60_000}


def test_the_cluster_has_64_gpus(coarse: list[Message]) -> None:
    scrapes = {scrape.node: scrape for scrape in telemetry(coarse)}
    devices = [device for scrape in scrapes.values() for device in scrape.devices]
    instances = [device for device in devices if device.mig_instance]
    assert len({device.uuid for device in devices}) == len(devices) == 63 + 7
    assert sum(device.card_share for device in devices) == pytest.approx(64)
    assert len({device.parent_uuid for device in instances}) == 1
    assert not {device.parent_uuid for device in instances} & {device.uuid for device in devices}
    models = Counter(device.model for device in devices if not device.mig_instance)
    assert sorted(models.values()) == [8, 8, 47]


def test_cards_tell_only_what_such_cards_can(coarse: list[Message]) -> None:
    for scrape in telemetry(coarse)[:16]:
        for device in scrape.devices:
            on_hopper = "H100" in (device.model or "")
            assert (device.sm_active_percent is not None) == on_hopper
            assert (device.dram_active_percent is not None) == on_hopper
            whole = device.mig_instance is None
            assert (device.gpu_util_percent is not None) == whole
            assert (device.power_watts is not None) == whole
            assert (device.power_limit_watts is not None) == whole


def test_values_are_possible(coarse: list[Message]) -> None:
    for scrape in telemetry(coarse):
        for device in scrape.devices:
            shares = (
                device.gpu_util_percent,
                device.gr_engine_active_percent,
                device.sm_active_percent,
                device.memory_controller_percent,
                device.dram_active_percent,
            )
            assert all(0 <= share <= 100 for share in shares if share is not None)
            assert device.memory_used_bytes is not None
            assert device.memory_total_bytes is not None
            assert device.memory_used_bytes < device.memory_total_bytes
            if device.power_watts is not None and device.power_limit_watts is not None:
                assert 30 < device.power_watts <= device.power_limit_watts


def test_the_pod_version_is_that_of_the_last_event(coarse: list[Message]) -> None:
    last: dict[str, PodVersion] = {}
    for message in coarse:
        if isinstance(message, PodEvent):
            before = last.get(message.node)
            if message.action == "snapshot":
                assert message.position.sequence == 0
                assert before is None or message.position.epoch > before.epoch
            else:
                assert before is not None
                assert message.position.epoch == before.epoch
                assert message.position.sequence == before.sequence + 1
            last[message.node] = message.position
        else:
            assert message.pod_version == last[message.node]


def test_each_node_has_a_snapshot_at_the_start_and_every_hour(coarse: list[Message]) -> None:
    snapshots = Counter(e.observed_at_ms for e in events(coarse) if e.action == "snapshot")
    assert snapshots == {START_MS + hour * 3_600_000: 8 for hour in range(3)}


def test_a_snapshot_says_what_the_changes_came_to(coarse: list[Message]) -> None:
    running: dict[str, dict[str, Pod]] = defaultdict(dict)
    for event in events(coarse):
        told = {pod.uid: pod for pod in event.pods}
        if event.action == "snapshot" and event.node in running:
            assert told == running[event.node]
        elif event.action == "deleted":
            for uid in told:
                del running[event.node][uid]
            continue
        running[event.node] |= told


def test_no_slot_is_given_twice_but_the_shared_ones() -> None:
    moments = [change.seconds for change in islice(pod_changes(), 60) if change.seconds < 9000]
    for at in moments:
        held = Counter(
            (run.node, slot)
            for run in RUNS
            if run.begin_seconds <= at and (run.end_seconds is None or at < run.end_seconds)
            for slot in run.slots
        )
        assert {place for place, count in held.items() if count > 1} == {(6, n) for n in range(4)}
        assert len(held) < sum(14 if plan.has_mig else 8 for plan in NODES)


def test_devices_of_nobody_are_empty(coarse: list[Message]) -> None:
    held = {sample.uuid for _, _, _, sample in held_samples(coarse)}
    free = [d for s in telemetry(coarse) for d in s.devices if d.uuid not in held]
    assert len({device.uuid for device in free}) == 7
    for device in free:
        assert device.gpu_util_percent in (None, 0)
        assert device.sm_active_percent in (None, 0)
        assert (device.memory_used_bytes or 0) < 16 * 2**20
        assert device.processes == ()


def test_processes_belong_to_the_pods_that_hold_the_card(coarse: list[Message]) -> None:
    holders: dict[tuple[float, str], set[str]] = defaultdict(set)
    processes = {}
    for seconds, _, pod, sample in held_samples(coarse):
        holders[seconds, sample.uuid].add(pod.uid)
        processes[seconds, sample.uuid] = {process.pod_uid for process in sample.processes}
    assert all(processes[place] <= uids for place, uids in holders.items())
    assert Counter(map(len, holders.values())).keys() == {1, 2}


def test_pods_have_an_owner_and_a_container(coarse: list[Message]) -> None:
    for event in events(coarse):
        for pod in event.pods:
            assert pod.owner
            assert bool(pod.allocations) == (event.action != "deleted")
            assert all(allocation.container for allocation in pod.allocations)


def test_cards_of_the_hung_job_are_seen_idle_first(coarse: list[Message]) -> None:
    cards = {s.uuid for _, name, _, s in held_samples(coarse) if name == "hung-job"}
    assert len(cards) == 4
    early = [
        device
        for scrape in telemetry(coarse)
        if scrape.observed_at_ms < START_MS + 180_000
        for device in scrape.devices
        if device.uuid in cards
    ]
    assert len(early) == 12
    assert all(device.gpu_util_percent == 0 and device.processes == () for device in early)
    assert all(65 < (device.power_watts or 0) < 75 for device in early)


def test_the_hung_job_stalls_flat_and_is_restarted(coarse: list[Message]) -> None:
    stalled = defaultdict(list)
    uids = set()
    for seconds, name, pod, sample in held_samples(coarse):
        if name != "hung-job":
            continue
        uids.add(pod.uid)
        if 1400 <= seconds < 6000:
            assert sample.gpu_util_percent == 100
            assert sample.dram_active_percent == sample.memory_controller_percent == 0
            links = (sample.pcie_bytes_per_second, sample.nvlink_bytes_per_second)
            assert sum(rate or 0 for rate in links) < 1e6
            stalled[sample.uuid].append(sample.power_watts or 0)
        elif seconds > 6000:
            assert (sample.sm_active_percent or 0) > 30
    assert len(uids) == 2
    assert all(max(watts) - min(watts) < 5 and max(watts) < 90 for watts in stalled.values())


def test_pods_are_replaced_and_come_back(coarse: list[Message]) -> None:
    lives: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events(coarse):
        for pod in event.pods:
            lives[workload_name(pod), pod.name].add(pod.uid)
    assert len(lives["recreated", "recreated-0"]) == 2
    assert len(lives["rollout", "rollout-v1-0"]) == len(lives["rollout", "rollout-v2-0"]) == 1
    ends = {
        workload_name(pod): (event.observed_at_ms - START_MS) / 60_000
        for event in events(coarse)
        if event.action == "deleted"
        for pod in event.pods
    }
    assert ends["short-job"] == 30
    assert ends.keys() == {"short-job", "rollout", "recreated", "hung-job"}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_seed_workloads_do_what_they_should(seed: int) -> None:
    messages = list(contents(SimulatedCluster(seed, interval_seconds=120)))
    seen = defaultdict(list)
    for seconds, name, pod, sample in held_samples(messages):
        own = [process for process in sample.processes if process.pod_uid == pod.uid]
        if name == "small-kernels":
            assert sample.gpu_util_percent == 100
            assert 130 <= (sample.power_watts or 0) <= 160
            assert 3 <= (sample.memory_controller_percent or 0) <= 8
        elif name.startswith("shared-"):
            (process,) = own
            assert 30 <= (process.sm_percent or 0) <= 50
        elif name == "mig-inference":
            assert 40 <= (sample.sm_active_percent or 0) <= 70
        elif name == "notebook" and seconds > 600:
            assert own == []
            assert (sample.memory_used_bytes or 0) < 16 * 2**20
        elif name == "idle-server" and seconds > 480:
            assert sample.sm_active_percent == 0
            assert (sample.memory_used_bytes or 0) > 60 * 2**30
        elif sample.sm_active_percent is not None:
            seen[name].append(sample.sm_active_percent)
    mean = {name: sum(values) / len(values) for name, values in seen.items()}
    assert 4 <= mean["low-use"] <= 6
    assert 25 <= mean["bursty-inference"] <= 50
    assert mean["training"] > 50


def test_every_workload_has_an_expectation(coarse: list[Message]) -> None:
    names = {workload_name(pod) for event in events(coarse) for pod in event.pods}
    assert names == SimulatedCluster.EXPECTED.keys()
    found = {name: kind for name, kind in SimulatedCluster.EXPECTED.items() if kind}
    assert found == {
        "notebook": "idle",
        "idle-server": "idle_held",
        "idle-then-used": "idle_held",
        "low-use": "low_use",
        "hung-job": "busy_stalled",
        "leaking-server": "memory_leak",
    }


@pytest.mark.parametrize("interval", [0, -1, float("nan"), 3601])
def test_an_impossible_interval_is_refused(interval: float) -> None:
    with pytest.raises(ValueError, match="give one above 0"):
        SimulatedCluster(interval_seconds=interval)

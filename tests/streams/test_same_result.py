"""Whatever the order, the pace and the restarts: the same alerts, byte for byte."""

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from schemas.topics import PODS, TELEMETRY, WINDOWS
from tests.streams.harness import PARTITIONS, START_MS, Harness, Sent, pods, ran, sample

NODES = {"n0": "wide", "n1": "wide", "n2": "idle", "n3": "busy", "n4": "late-idle", "n5": "busy"}
SAMPLES = 72


def use_of(node: str, sequence: int) -> float | None:
    """The nodes of `wide` are idle together in the middle; `idle` is idle from the start."""
    quiet = {"n0": (10, 50), "n1": (15, 60), "n2": (0, SAMPLES), "n4": (30, SAMPLES)}
    first, last = quiet.get(node, (SAMPLES, SAMPLES))
    if sequence % 17 == 16:
        return None
    return 0.0 if first <= sequence < last else 60.0 + sequence % 7


def world(
    nodes: Sequence[str] = tuple(NODES), *, skew_ms: dict[str, int] | None = None
) -> list[Sent]:
    sent = [pods(node, NODES[node]) for node in nodes]
    for sequence in range(SAMPLES):
        for node in nodes:
            shift = (skew_ms or {}).get(node, 0)
            sent.append(sample(node, sequence, use_of(node, sequence), skew_ms=shift))
    return sent


EXPECTED = ran(world()).alerts()


def about(alerts: list[tuple[bytes | None, bytes | None]], workload: str) -> list[bytes | None]:
    return [value for key, value in alerts if key is not None and workload.encode() in key]


def shuffled(sent: list[Sent], chance: random.Random, within_ms: int = 9_000) -> list[Sent]:
    """Arrival within the lateness; the broker stamps what arrives in order."""
    arriving = [(at + chance.randrange(within_ms), index) for index, (at, _) in enumerate(sent)]
    return [(at, sent[index][1]) for at, index in sorted(arriving)]


def test_the_world_has_alerts_that_open_and_resolve() -> None:
    events = [json.loads(value) for _, value in EXPECTED if value]
    seen = {(event["subject"]["workload"], event["status"]) for event in events}
    assert {("Job/wide", "firing"), ("Job/wide", "resolved"), ("Job/idle", "firing")} <= seen
    assert not [one for one in seen if one[0] == "Job/busy"]


@hypothesis_settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_any_order_within_the_lateness(chance: random.Random) -> None:
    first = [one for one in world() if not hasattr(one[1], "sequence")]
    rest = [one for one in world() if hasattr(one[1], "sequence")]
    assert ran(first + shuffled(rest, chance)).alerts() == EXPECTED


@hypothesis_settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_repetitions_change_nothing(chance: random.Random) -> None:
    sent = world()
    doubled = sent + chance.sample(sent, 100)
    in_order = [one for one in doubled if not hasattr(one[1], "sequence")]
    in_order += sorted((one for one in doubled if hasattr(one[1], "sequence")), key=lambda s: s[0])
    harness = ran(in_order)
    assert harness.alerts() == EXPECTED
    assert sum(one.counters["repeated"] for one in harness.one) > 0


@hypothesis_settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_a_dump_and_load_at_any_point(chance: random.Random) -> None:
    harness = Harness(world())
    for _ in range(60):
        harness.feed(chance.randrange(PARTITIONS), chance.choice([PODS, TELEMETRY]), most=9)
        if chance.random() < 0.3:
            harness.judge()
        if chance.random() < 0.2:
            harness.restart()
    harness.finish()
    assert harness.alerts() == EXPECTED


@pytest.mark.parametrize("ahead", [PODS, TELEMETRY])
def test_one_topic_read_to_its_end_before_the_other(ahead: str) -> None:
    harness = Harness(world())
    for partition in range(PARTITIONS):
        harness.feed(partition, ahead)
    harness.judge()
    harness.finish()
    assert harness.alerts() == EXPECTED


@pytest.mark.parametrize("held", range(PARTITIONS))
def test_one_partition_held_back_until_the_others_are_done(held: int) -> None:
    harness = Harness(world())
    for partition in range(PARTITIONS):
        if partition != held:
            harness.feed(partition, PODS)
            harness.feed(partition, TELEMETRY)
    harness.judge()
    harness.finish()
    assert harness.alerts() == EXPECTED


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_a_node_an_hour_off_changes_nothing_for_anyone(skew_ms: int) -> None:
    harness = ran(world(skew_ms={"n2": skew_ms}))
    assert harness.alerts() == EXPECTED
    assert sum(one.counters["skewed_nodes"] for one in harness.one) == 1


def test_a_dead_node_changes_nothing_for_the_others() -> None:
    sent = [one for one in world() if one[1].node != "n3" or one[0] < START_MS + 100_000]
    alerts = ran(sent).alerts()
    for workload in ("wide", "/idle", "late-idle"):
        assert about(alerts, workload) == about(EXPECTED, workload)


def test_a_new_node_changes_nothing_for_the_others() -> None:
    sent = [*world(), pods("n9", "new", START_MS + 180_000)]
    sent += [sample("n9", sequence, 0.0) for sequence in range(36, SAMPLES)]
    alerts = ran(sorted(sent, key=lambda one: one[0])).alerts()
    for workload in set(NODES.values()):
        assert about(alerts, f"/{workload}") == about(EXPECTED, f"/{workload}")
    assert about(alerts, "new")


def test_a_node_that_falls_silent_resolves_its_alert() -> None:
    events = [json.loads(value) for value in about(EXPECTED, "Job/idle") if value]
    assert events[-1]["status"] == "resolved"
    assert events[-1]["reason"] == "node silent"


def test_an_outage_of_kafka_is_nobodys_silence() -> None:
    """What the agents kept meanwhile comes at once, one node after the other."""
    begin, end = START_MS + 120_000, START_MS + 300_000
    before = [one for one in world() if one[0] < begin]
    kept = [(end, message) for at, message in world() if begin <= at < end]
    kept.sort(key=lambda one: one[1].node)
    after = [one for one in world() if one[0] >= end]
    assert kept
    assert len(after) > len(NODES)
    assert ran([*before, *kept, *after]).alerts() == EXPECTED


def test_what_retention_cut_after_a_restart_makes_nothing_else_count_twice() -> None:
    """Contributions that wait for another source are read again, from where the topic begins."""
    harness = Harness(world())
    for partition in range(1, PARTITIONS):
        harness.feed(partition, PODS)
        harness.feed(partition, TELEMETRY)
    harness.judge()
    two = harness.two[0]
    waiting, resume = len(two._waiting), two.resume_offsets()[WINDOWS]
    assert waiting > 2
    harness.restart()
    two = harness.two[0]
    two.reposition(WINDOWS, resume + 1)
    harness.positions[WINDOWS, 0] = resume + 1
    harness.judge()
    assert len(two._waiting) >= waiting - 1
    assert two.counters["repeated_windows"] == 0

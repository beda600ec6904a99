"""States over versions: a newer one is told, an older one is read."""

import json

import pytest

from streams.stage_one import PARTITION_KEY, StageOne
from streams.stage_two import StageTwo
from streams.states import NewerStateError
from tests.streams.harness import PARTITIONS, QUICK, Harness, pods, sample

NODE = b"c/n0"


def dumped() -> tuple[dict[bytes, bytes | None], dict[bytes, bytes | None]]:
    """States of a partition that holds a node, and of one that holds a workload."""
    sent = [pods("n0", "train"), *(sample("n0", number, 0.0) for number in range(60))]
    harness = Harness(sent)
    harness.finish()
    one = next(stage.dump() for stage in harness.one if NODE in stage.dump())
    two = next(stage.dump() for stage in harness.two if len(stage.dump()) > 1)
    return one, two


def altered(value: bytes | None, **fields: object) -> bytes:
    assert value is not None
    return json.dumps(json.loads(value) | fields).encode()


@pytest.mark.parametrize("stage", [0, 1])
def test_a_newer_state_is_told_and_not_read(stage: int) -> None:
    states = dumped()[stage]
    for key in states:
        newer = states | {key: altered(states[key], version=2)}
        loading = (StageOne, StageTwo)[stage](0, PARTITIONS, QUICK)
        with pytest.raises(NewerStateError, match="has version 2, this release reads up to 1"):
            loading.load(newer)


@pytest.mark.parametrize("stage", [0, 1])
def test_fields_of_later_releases_and_missing_ones_are_no_fault(stage: int) -> None:
    states = dumped()[stage]
    other = {key: altered(value, a_later_field=[1]) for key, value in states.items()}
    shorter = json.loads(other[PARTITION_KEY])
    shorter.pop("resume")
    loading = (StageOne, StageTwo)[stage](0, PARTITIONS, QUICK)
    loading.load(other | {PARTITION_KEY: json.dumps(shorter).encode()})
    assert set(loading.dump()) == set(states)


def test_a_load_gives_the_bytes_that_were_dumped() -> None:
    one, two = dumped()
    first, second = StageOne(0, PARTITIONS, QUICK), StageTwo(0, PARTITIONS, QUICK)
    first.load(one)
    second.load(two)
    assert first.dump() == one
    assert second.dump() == two


def test_a_node_that_is_gone_for_a_day_ends_with_a_tombstone() -> None:
    harness = Harness([pods("n0", "train"), *(sample("n0", number, 50.0) for number in range(9))])
    harness.finish()
    stage = next(one for one in harness.one if NODE in one.dump())
    stage.tick(*[harness.now_ms_at_end + 90_000_000] * 2)
    stage.forget()
    assert stage.dump()[NODE] is None
    assert NODE not in stage.dump()

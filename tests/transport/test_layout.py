"""What the topics have to be, and every way to differ from it."""

from dataclasses import replace

import pytest

from schemas.topics import STATE_PREFIX, TOPICS
from streams.engine.operators import STAGES
from transport.layout import (
    CLEANUP,
    EXISTENCE,
    MAX_MESSAGE_BYTES,
    PARTITIONS,
    REPLICATION,
    RETENTION_MS,
    STATE_STAGES,
    TIMESTAMP_TYPE,
    Difference,
    TopicLayout,
    differences,
    partitions_found,
    wanted_layouts,
)

PREFIX = "eu."
WANTED = wanted_layouts(PREFIX, 6, 3)


def as_found() -> dict[str, TopicLayout]:
    """What a broker tells of topics that are as wanted: more settings than we ask for."""
    return {
        one.name: replace(one, config={**one.config, "segment.bytes": "1073741824"})
        for one in WANTED
    }


def with_setting(name: str, setting: str, value: str) -> dict[str, TopicLayout]:
    found = as_found()
    one = found[PREFIX + name]
    found[one.name] = replace(one, config={**one.config, setting: value})
    return found


def test_every_topic_is_there_and_every_stage_has_its_states() -> None:
    names = {one.name.removeprefix(PREFIX) for one in WANTED}
    plain = {topic.name for topic in TOPICS if topic.name != STATE_PREFIX}
    assert names == plain | {stage.state_topic for stage in STAGES}
    assert tuple(stage.name for stage in STAGES) == STATE_STAGES


def test_partitions_follow_the_sources() -> None:
    single = {one.name for one in WANTED if one.partitions != 6}
    assert single == {"eu.gpu.parameters"}


def test_the_settings_of_each_kind_of_topic() -> None:
    layouts = {one.name.removeprefix(PREFIX): dict(one.config) for one in WANTED}
    producer = {"compression.type": "producer"}
    append = {"message.timestamp.type": "LogAppendTime"}
    assert layouts["gpu.telemetry"] == {
        **producer,
        **append,
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "segment.ms": "10800000",
    }
    assert layouts["gpu.state.node"] == {
        **producer,
        **append,
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "600000",
        "segment.ms": "600000",
        "max.message.bytes": "8388608",
    }
    assert layouts["gpu.windows"]["max.message.bytes"] == "8388608"
    assert layouts["gpu.parameters"] == {**producer, "cleanup.policy": "compact"}


def test_equal_is_no_difference() -> None:
    assert differences(WANTED, as_found()) == []


@pytest.mark.parametrize(
    ("name", "setting", "value", "breaks"),
    [
        ("gpu.telemetry", TIMESTAMP_TYPE, "CreateTime", True),
        ("gpu.state.workload", CLEANUP, "delete", True),
        ("gpu.signals", CLEANUP, "compact,delete", True),
        ("gpu.alerts", RETENTION_MS, "604800000", False),
        ("gpu.windows", MAX_MESSAGE_BYTES, "1048588", False),
        ("gpu.state.node", "min.compaction.lag.ms", "0", False),
        ("gpu.telemetry", "compression.type", "gzip", False),
    ],
)
def test_a_setting_that_differs(name: str, setting: str, value: str, *, breaks: bool) -> None:
    (one,) = differences(WANTED, with_setting(name, setting, value))
    assert (one.topic, one.what, one.found, one.breaks) == (PREFIX + name, setting, value, breaks)
    assert f"{setting} is {value}, should be {one.wanted}" in str(one)
    assert f"--add-config '{setting}={one.wanted}'" in str(one)


def test_a_missing_topic() -> None:
    found = as_found()
    del found["eu.gpu.alerts"]
    (one,) = differences(WANTED, found)
    assert one == Difference("eu.gpu.alerts", EXISTENCE, "there", "missing")
    assert one.breaks
    assert "gpuvigil topics create" in str(one)


def test_another_number_of_partitions() -> None:
    found = as_found()
    found["eu.pod.events"] = replace(found["eu.pod.events"], partitions=12)
    (one,) = differences(WANTED, found)
    assert one == Difference("eu.pod.events", PARTITIONS, "6", "12")
    assert one.breaks


def test_copies_matter_only_where_a_number_is_wanted() -> None:
    found = as_found()
    found["eu.gpu.alerts"] = replace(found["eu.gpu.alerts"], replication=1)
    (one,) = differences(WANTED, found)
    assert (one.what, one.wanted, one.found, one.breaks) == (REPLICATION, "3", "1", False)
    assert differences(wanted_layouts(PREFIX, 6), found) == []


def test_the_telemetry_says_how_many_partitions_all_should_have() -> None:
    assert partitions_found(PREFIX, as_found()) == 6
    assert partitions_found(PREFIX, {}) == 48
    assert partitions_found("other.", as_found()) == 48


def test_each_difference_is_one_line() -> None:
    lines = [str(one) for one in differences(WANTED, {})]
    assert len(lines) == len(WANTED)
    assert not any("\n" in line for line in lines)

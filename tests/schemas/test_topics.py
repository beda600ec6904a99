from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from schemas.topics import (
    DEFAULT_PARTITIONS,
    TOPICS,
    key_fields,
    messages,
    murmur2,
    node_key,
    partition_of,
    workload_key,
)


@given(st.binary(max_size=64))
def test_the_hash_is_the_one_of_kafka_clients(key: bytes) -> None:
    # aiokafka keeps the sign bit, which both clear before they divide.
    assert murmur2(key) & 0x7FFFFFFF == aiokafka_murmur2(key) & 0x7FFFFFFF


@given(st.binary(max_size=64), st.integers(1, 400))
def test_a_key_lands_where_kafka_clients_put_it(key: bytes, partitions: int) -> None:
    everyone = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, everyone, everyone)


def test_known_hashes() -> None:
    """From Kafka's own unit test of murmur2, as unsigned numbers."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) - 2**32 for key in expected} == expected


def test_keys() -> None:
    assert node_key("east", "nöde-1") == "east/nöde-1".encode()
    assert workload_key("east", "a", "Job", "b") == b"east/a/Job/b"


def test_every_topic_and_message_is_there_once() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(names) == len(set(names)) == 11
    models = list(messages())
    assert len(models) == len(set(models)) == 10
    types = {(m.model_fields["type"].default, m.model_fields["version"].default) for m in models}
    assert len(types) == 10


def test_compacted_topics_keep_and_others_say_how_long() -> None:
    for topic in TOPICS:
        assert (topic.retention_ms is None) == (topic.cleanup == "compact"), topic.name


def test_partitions() -> None:
    counts = {topic.name: topic.partitions(7) for topic in TOPICS}
    assert counts.pop("gpu.parameters") == 1
    assert set(counts.values()) == {7}
    assert TOPICS[0].partitions() == DEFAULT_PARTITIONS


def test_a_key_is_made_of_fields_that_the_message_always_has() -> None:
    for model in messages():
        assert all(model.model_fields[name].is_required() for name in key_fields(model))

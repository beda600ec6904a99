"""How the topics have to be on Kafka, and how what is there differs from it.

Nothing here asks a broker: `topics create` and `topics check` compare with it, and so does a worker
before it begins.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from schemas.topics import (
    DEFAULT_PARTITIONS,
    STATE_PREFIX,
    TELEMETRY,
    TOPICS,
    WINDOWS,
    Topic,
)

STATE_STAGES: Final = ("node", "workload")
"""Each stage has a topic of its own in the family `gpu.state.`."""

LARGE_MESSAGE_BYTES: Final = 8 * 2**20
"""What windows and checkpoints may have, compressed: Kafka's default is 1 MiB."""
STATE_LAG_MS: Final = 600_000
"""A checkpoint stays as it was written for at least so long: a load in progress misses none."""
SEGMENTS_PER_RETENTION: Final = 8
"""Kafka deletes whole segments, and by default closes one only after a week or 1 GiB."""

TIMESTAMP_TYPE = "message.timestamp.type"
CLEANUP = "cleanup.policy"
RETENTION_MS = "retention.ms"
SEGMENT_MS = "segment.ms"
COMPACTION_LAG_MS = "min.compaction.lag.ms"
MAX_MESSAGE_BYTES = "max.message.bytes"
COMPRESSION = "compression.type"

EXISTENCE, PARTITIONS, REPLICATION = "existence", "partitions", "replication"
BREAKS: Final = frozenset({EXISTENCE, PARTITIONS, TIMESTAMP_TYPE, CLEANUP})
"""A difference in one of these makes results wrong or loses state; others cost disk or size."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic as it should be, or as it is."""

    name: str
    """With the prefix."""
    partitions: int
    replication: int | None
    """None where any will do."""
    config: Mapping[str, str] = field(default_factory=dict)
    """The settings that matter, as Kafka writes them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing about one topic that is not as it should be."""

    topic: str
    what: str
    """EXISTENCE, PARTITIONS, REPLICATION or the name of a setting."""
    wanted: str
    found: str

    @property
    def breaks(self) -> bool:
        """Whether a worker must not begin with it."""
        return self.what in BREAKS

    def __str__(self) -> str:
        if self.what == EXISTENCE:
            return (
                f"{self.topic}: is missing; run `gpuvigil topics create`, or let this user see it"
            )
        return f"{self.topic}: {self.what} is {self.found}, should be {self.wanted}; {self._mend()}"

    def _mend(self) -> str:
        if self.what == PARTITIONS:
            return "a key would change its partition, so make new topics with another prefix"
        if self.what == REPLICATION:
            return "change it by kafka-reassign-partitions.sh"
        change = f"--alter --entity-type topics --entity-name {self.topic}"
        return f"change it by kafka-configs.sh {change} --add-config '{self.what}={self.wanted}'"


def wanted_layouts(
    prefix: str = "", partitions: int = DEFAULT_PARTITIONS, replication: int | None = None
) -> tuple[TopicLayout, ...]:
    """Every topic as it should be where the source topics have `partitions`."""
    return tuple(
        TopicLayout(prefix + name, topic.partitions(partitions), replication, _config(topic))
        for name, topic in topic_names()
    )


def topic_names() -> Iterator[tuple[str, Topic]]:
    """Every topic's own name, without the prefix: a family has one for each stage."""
    for topic in TOPICS:
        if topic.name == STATE_PREFIX:
            yield from ((topic.name + stage, topic) for stage in STATE_STAGES)
        else:
            yield topic.name, topic


def partitions_found(prefix: str, found: Mapping[str, TopicLayout]) -> int:
    """The number that all sources should have: that of the telemetry, or the default without it."""
    telemetry = found.get(prefix + TELEMETRY)
    return DEFAULT_PARTITIONS if telemetry is None else telemetry.partitions


def differences(
    wanted: Iterable[TopicLayout], found: Mapping[str, TopicLayout]
) -> list[Difference]:
    """Everything that is not as wanted, topic by topic.  Settings that nobody wants may be any."""
    return [one for layout in wanted for one in _differences(layout, found.get(layout.name))]


def _differences(wanted: TopicLayout, found: TopicLayout | None) -> Iterator[Difference]:
    name = wanted.name
    if found is None:
        yield Difference(name, EXISTENCE, "there", "missing")
        return
    if found.partitions != wanted.partitions:
        yield Difference(name, PARTITIONS, str(wanted.partitions), str(found.partitions))
    if wanted.replication not in {None, found.replication}:
        yield Difference(name, REPLICATION, str(wanted.replication), str(found.replication))
    for setting, value in wanted.config.items():
        held = found.config.get(setting, "unknown")
        if held != value:
            yield Difference(name, setting, value, held)


def _config(topic: Topic) -> dict[str, str]:
    config = {CLEANUP: topic.cleanup, COMPRESSION: "producer"}
    if topic.placement != "single":
        config[TIMESTAMP_TYPE] = "LogAppendTime"
    if topic.retention_ms is not None:
        config[RETENTION_MS] = str(topic.retention_ms)
        config[SEGMENT_MS] = str(topic.retention_ms // SEGMENTS_PER_RETENTION)
    if topic.name == STATE_PREFIX:
        config[COMPACTION_LAG_MS] = config[SEGMENT_MS] = str(STATE_LAG_MS)
    if topic.name in {WINDOWS, STATE_PREFIX}:
        config[MAX_MESSAGE_BYTES] = str(LARGE_MESSAGE_BYTES)
    return config

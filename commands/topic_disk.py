"""The disk that the topics of a cluster need, for whoever orders it.

Sizes of messages are those of the simulated cluster; ratios of compression were measured on Kafka.
What does not grow with the number of GPUs is left out: it is little.
"""

from dataclasses import dataclass

from schemas.topics import STATE_PREFIX, TELEMETRY, WINDOWS
from transport.layout import (
    RETENTION_MS,
    SEGMENT_MS,
    STATE_LAG_MS,
    STATE_STAGES,
    TopicLayout,
)

SCRAPE_BYTES_PER_GPU = 750
"""Of a scrape with all its processes: 6 KB for 8 GPUs."""
WINDOW_BYTES_PER_GPU = 900
MARK_BYTES = 190
"""The empty message that a source partition sends to a target partition for each window."""
STATE_BYTES_PER_GPU = 1100
WINDOW_SECONDS = 10
SAVE_SECONDS = 10
"""What changed is saved at least this far apart."""
LZ4_RATIO = 2.3
"""One scrape a batch."""
ZSTD_RATIO = 3.6
DIRTY_SECONDS = 3 * STATE_LAG_MS / 1000
"""A checkpoint waits to be compacted: for its segment to end, for the lag, for the cleaner."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is watched."""

    nodes: int
    gpus_per_node: int
    interval_seconds: float

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node


def disk_bytes(layout: TopicLayout, prefix: str, load: Load) -> int | None:
    """The bytes on all brokers together; None where they do not depend on the GPUs."""
    name = layout.name.removeprefix(prefix)
    copies = layout.replication or 1
    if name == TELEMETRY:
        rate = load.gpus * SCRAPE_BYTES_PER_GPU / load.interval_seconds / LZ4_RATIO
        return round(rate * _kept_seconds(layout) * copies)
    if name == WINDOWS:
        window = layout.partitions**2 * MARK_BYTES + load.gpus * WINDOW_BYTES_PER_GPU
        return round(window / WINDOW_SECONDS / ZSTD_RATIO * _kept_seconds(layout) * copies)
    if name.startswith(STATE_PREFIX):
        of_stage = load.gpus * STATE_BYTES_PER_GPU / len(STATE_STAGES) / ZSTD_RATIO
        return round(of_stage * (1 + DIRTY_SECONDS / SAVE_SECONDS) * copies)
    return None


def _kept_seconds(layout: TopicLayout) -> float:
    """The retention, and a segment that only ends with its last record."""
    return (int(layout.config[RETENTION_MS]) + int(layout.config[SEGMENT_MS])) / 1000

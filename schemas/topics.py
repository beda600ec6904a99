"""Every topic in one list, and how a key finds its partition.

Names are without the installation's prefix: whoever opens a topic puts it in front.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel

from schemas.alerts import AlertEvent
from schemas.catalog import CatalogEntry
from schemas.parameters import ParametersMessage
from schemas.pods import PodEvent
from schemas.services import ServiceSignal
from schemas.signals import Demand, WorkloadSignal
from schemas.state import StateRecord
from schemas.telemetry import NodeTelemetry
from schemas.windows import WindowContribution

TELEMETRY = "gpu.telemetry"
PODS = "pod.events"
SERVICES = "service.signals"
WINDOWS = "gpu.windows"
ALERTS = "gpu.alerts"
SIGNALS = "gpu.signals"
DEMAND = "gpu.demand"
CATALOG = "workload.catalog"
PARAMETERS = "gpu.parameters"
STATE_PREFIX = "gpu.state."
DEADLETTER = "gpu.deadletter"

DEFAULT_PARTITIONS = 48

Placement = Literal["source", "companion", "single"]
"""`source`: as many partitions as the installation has, the same for all sources.  `companion`: as
many again, because each belongs to one source partition.  `single`: one partition."""

Cleanup = Literal["delete", "compact"]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_NODE = ("cluster", "node")
_WORKLOAD = ("cluster", "namespace", "kind", "name")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as `topics create` makes it and as its readers may rely on it."""

    name: str
    """Ends with a dot where it begins a family of topics, one for each stage."""
    purpose: str
    key: str
    """The key in words."""
    model: type[BaseModel] | None
    """None where values are raw bytes."""
    placement: Placement
    cleanup: Cleanup
    retention_ms: int | None
    """None on a compacted topic: the latest value of a key stays."""
    readers: tuple[str, ...]
    key_fields: tuple[str, ...] = ()
    """The fields that, joined by `/`, are the key; empty where the key is not in the content."""

    def partitions(self, sources: int = DEFAULT_PARTITIONS) -> int:
        """How many partitions it has where the source topics have `sources`."""
        return 1 if self.placement == "single" else sources


TOPICS: tuple[Topic, ...] = (
    Topic(
        TELEMETRY,
        "One node's scrape with all its devices and processes.",
        "cluster/node",
        NodeTelemetry,
        "source",
        "delete",
        _DAY_MS,
        ("streams", "replay"),
        _NODE,
    ),
    Topic(
        PODS,
        "Which pods hold which devices of a node.",
        "cluster/node",
        PodEvent,
        "source",
        "delete",
        7 * _DAY_MS,
        ("streams", "replay"),
        _NODE,
    ),
    Topic(
        SERVICES,
        "Queue, throughput and latency of a served pod.",
        "cluster/node",
        ServiceSignal,
        "source",
        "delete",
        _DAY_MS,
        ("streams",),
        _NODE,
    ),
    Topic(
        WINDOWS,
        "Internal: one source partition's contributions to the workloads of one target partition.",
        "none: the writer names the partition",
        WindowContribution,
        "companion",
        "delete",
        _DAY_MS,
        ("streams", "archive"),
    ),
    Topic(
        ALERTS,
        "Alerts that fire, change and resolve: the product's interface for services.",
        "cluster, detector and subject",
        AlertEvent,
        "companion",
        "delete",
        30 * _DAY_MS,
        ("subscribers", "sinks"),
    ),
    Topic(
        SIGNALS,
        "Latest load of a workload over all its replicas.",
        "cluster/namespace/kind/name",
        WorkloadSignal,
        "companion",
        "compact",
        None,
        ("scaler", "subscribers"),
        _WORKLOAD,
    ),
    Topic(
        DEMAND,
        "Work that waits for a workload which may have no pod.",
        "cluster/namespace/kind/name",
        Demand,
        "companion",
        "compact",
        None,
        ("scaler",),
        _WORKLOAD,
    ),
    Topic(
        CATALOG,
        "Owner, replicas, standby and price class of a workload.",
        "cluster/namespace/kind/name",
        CatalogEntry,
        "companion",
        "compact",
        None,
        ("streams",),
        _WORKLOAD,
    ),
    Topic(
        PARAMETERS,
        "Parameters of the detectors with the time from which they hold.",
        "version",
        ParametersMessage,
        "single",
        "compact",
        None,
        ("streams", "replay"),
        ("parameters_version",),
    ),
    Topic(
        STATE_PREFIX,
        "Checkpoints of a stage's operators with their source offsets.",
        "state key",
        StateRecord,
        "companion",
        "compact",
        None,
        ("workers",),
        ("key",),
    ),
    Topic(
        DEADLETTER,
        "At most 256 KiB of a message that could not be used; the headers say why.",
        "original key",
        None,
        "companion",
        "delete",
        14 * _DAY_MS,
        ("operators",),
    ),
)


def messages() -> Iterator[type[BaseModel]]:
    """The models of all topics, in the order of TOPICS."""
    return (topic.model for topic in TOPICS if topic.model is not None)


def key_fields(model: type[BaseModel]) -> tuple[str, ...]:
    """The fields of the key of a model's topic; empty where the content does not hold the key."""
    return next((t.key_fields for t in TOPICS if t.model is model), ())


def node_key(cluster: str, node: str) -> bytes:
    """The key of everything that one node says."""
    return f"{cluster}/{node}".encode()


def workload_key(cluster: str, namespace: str, kind: str, name: str) -> bytes:
    """The key of everything that is said of one workload."""
    return f"{cluster}/{namespace}/{kind}/{name}".encode()


def murmur2(data: bytes) -> int:
    """The 32-bit hash by which Kafka's default partitioner places a key."""
    length = len(data)
    whole = length & ~3
    value = 0x9747B28C ^ length
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ (word >> 24)) * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    if length > whole:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ (value >> 13)) * 0x5BD1E995 & 0xFFFFFFFF
    return value ^ (value >> 15)


@lru_cache(maxsize=65536)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions

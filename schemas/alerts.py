"""The product: a verdict that someone can act on.  Bodies hold event time only, and no host."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from schemas.wire import Message, Text, Wire

AlertKind = Literal[
    "idle",
    "idle_held",
    "low_use",
    "busy_stalled",
    "memory_leak",
    "orphan_memory",
    "noisy_neighbour",
    "crowded",
    "unallocated_use",
    "anomaly",
]
AlertStatus = Literal["firing", "updated", "resolved"]
Tier = Literal["page", "ticket", "info"]
EvidenceValue = float | int | bool | str | None


def rfc3339(moment: datetime) -> str:
    """A time in UTC with milliseconds, as `2026-09-01T06:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(epoch_ms: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)


Rfc3339 = Annotated[datetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]


class Subject(Wire):
    """What the alert is about; None where it does not apply or is not known."""

    cluster: Text
    node: Text | None = None
    device_uuid: Text | None = None
    device_model: Text | None = None
    mig_instance: Text | None = None
    namespace: Text | None = None
    pod: Text | None = None
    pod_uid: Text | None = None
    container: Text | None = None
    workload: Text | None = None
    """`kind/name` of the workload."""


class Waste(Wire):
    """What the incident has cost so far."""

    gpu_hours: float
    cost: float | None = None
    """None where no price is configured for the model."""
    currency: Text | None = None


class AlertEvent(Message):
    """One event in an incident's life.  Key: cluster, detector and subject.

    A reader ignores a `revision` that is not larger than the one it has, and closes an incident
    that is past `valid_until` as stale.
    """

    type: Literal["alert_event"] = "alert_event"
    version: Literal[1] = 1
    cluster: Text
    detector: Text
    incident_id: Text
    revision: Annotated[int, Field(ge=1)]
    valid_until: Rfc3339
    kind: AlertKind
    status: AlertStatus
    tier: Tier
    quality: Literal["exact", "estimated"]
    subject: Subject
    aggressors: tuple[Subject, ...] = ()
    owner: Text | None = None
    onset: Rfc3339
    opened_at: Rfc3339
    updated_at: Rfc3339
    resolved_at: Rfc3339 | None = None
    reason: Text | None = None
    """Why it resolved."""
    summary: Annotated[str, Field(max_length=2048)]
    evidence: dict[str, EvidenceValue]
    waste: Waste | None = None
    parameters: dict[str, EvidenceValue]
    runbook_url: Annotated[str, Field(max_length=2048)] | None = None
    graph_url: Annotated[str, Field(max_length=2048)] | None = None

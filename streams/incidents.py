"""The life of an alert: it opens once, is repeated at a bounded rate, and resolves with a reason.

The state holds the last verdict, so that what is written after a restart is the same to the byte.
"""

import hashlib
import json
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct, field

from schemas.alerts import (
    AlertEvent,
    AlertKind,
    AlertStatus,
    EvidenceValue,
    Subject,
    Tier,
    Waste,
    moment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.parameters import AlertParameters
    from streams.verdicts import Verdict

CHECK_EVERY_MS = 60_000
"""Least time between two looks at an open incident's tier and quality."""
LAST_MOMENT_MS = 253_402_300_799_999
ID_HEX_DIGITS = 20


class KeptVerdict(Struct, omit_defaults=True):
    """A verdict in types that JSON carries exactly."""

    detector: str
    tier: Tier
    quality: Literal["exact", "estimated"]
    onset_ms: int
    subject: dict[str, str | None]
    owner: str | None
    summary: str
    evidence: dict[str, EvidenceValue]
    waste: dict[str, float | str | None] | None
    parameters: dict[str, EvidenceValue]
    aggressors: list[dict[str, str | None]]


class Incident(Struct, omit_defaults=True):
    """One incident, open or resolved not long ago."""

    incident_id: str
    kind: AlertKind
    opened_at_ms: int
    last: KeptVerdict
    revision: int = 0
    told_at_ms: int = 0
    """Time of the last event."""
    checked_at_ms: int = 0
    """Time of the last verdict."""
    resolved_at_ms: int | None = None


class IncidentsState(Struct, omit_defaults=True):
    """The incidents of each subject: at most one open, and those that may reopen."""

    VERSION: ClassVar[int] = 1

    subjects: dict[str, list[Incident]] = field(default_factory=dict)


class IncidentLife:
    """The incidents of one detector, for one subject or several."""

    def __init__(self, parameters: "AlertParameters", state: IncidentsState | None = None) -> None:
        self.state = state if state is not None else IncidentsState()
        self._parameters = parameters

    def step(
        self,
        subject_key: str,
        kind: AlertKind | None,
        now_ms: int,
        describe: "Callable[[], Verdict]",
        reason: str = "recovered",
    ) -> list[AlertEvent]:
        """The events that this moment asks for; `kind` is what the detector says is open.

        `describe` is called when an event is written and once a minute while one is open;
        `reason` says why an incident that is not open any more has ended.
        """
        incidents = self.state.subjects.get(subject_key)
        if incidents is None:
            if kind is None:
                return []
            incidents = self.state.subjects[subject_key] = []
        current = next((one for one in incidents if one.resolved_at_ms is None), None)
        events: list[AlertEvent] = []
        if current is not None and current.kind != kind:
            why = f"became {kind}" if kind else reason
            events.append(self._resolve(current, now_ms, why))
            current = None
        if kind is not None:
            event = (
                self._open(subject_key, incidents, kind, now_ms, describe())
                if current is None
                else self._repeat(current, now_ms, describe)
            )
            events += [event] if event else []
        self._forget(subject_key, now_ms)
        return events

    def end(self, subject_key: str, now_ms: int, reason: str) -> list[AlertEvent]:
        """Resolve what is open of a subject that is gone, with its last evidence."""
        incidents = self.state.subjects.get(subject_key, [])
        open_ones = [one for one in incidents if one.resolved_at_ms is None]
        events = [self._resolve(one, now_ms, reason) for one in open_ones]
        self._forget(subject_key, now_ms)
        return events

    def _open(
        self,
        subject_key: str,
        incidents: list[Incident],
        kind: AlertKind,
        now_ms: int,
        verdict: "Verdict",
    ) -> AlertEvent:
        """A new incident, or the one of the same kind that resolved not long ago."""
        kept = _kept(verdict)
        former = next(
            (one for one in incidents if one.kind == kind and self._fresh(one, now_ms)), None
        )
        if former is None:
            cluster = verdict.subject.cluster
            identity = incident_id(cluster, verdict.detector, subject_key, kind, now_ms)
            former = Incident(incident_id=identity, kind=kind, opened_at_ms=now_ms, last=kept)
            incidents.append(former)
        former.last, former.resolved_at_ms = kept, None
        return self._tell(former, "firing", now_ms)

    def _repeat(
        self, incident: Incident, now_ms: int, describe: "Callable[[], Verdict]"
    ) -> AlertEvent | None:
        due = now_ms - incident.told_at_ms >= self._parameters.repeat_every * 1000
        if not due and now_ms - incident.checked_at_ms < CHECK_EVERY_MS:
            return None
        before = incident.last
        incident.last, incident.checked_at_ms = _kept(describe()), now_ms
        changed = (before.tier, before.quality) != (incident.last.tier, incident.last.quality)
        return self._tell(incident, "updated", now_ms) if due or changed else None

    def _resolve(self, incident: Incident, now_ms: int, reason: str) -> AlertEvent:
        incident.resolved_at_ms = now_ms
        return self._tell(incident, "resolved", now_ms, reason)

    def _tell(
        self, incident: Incident, status: AlertStatus, now_ms: int, reason: str | None = None
    ) -> AlertEvent:
        incident.revision += 1
        incident.told_at_ms = incident.checked_at_ms = now_ms
        return _event(incident, status, now_ms, reason, self._parameters)

    def _fresh(self, incident: Incident, now_ms: int) -> bool:
        """Whether trouble of the same kind would still be this incident."""
        resolved = incident.resolved_at_ms
        return resolved is None or now_ms - resolved <= self._parameters.reopen_within * 1000

    def _forget(self, subject_key: str, now_ms: int) -> None:
        incidents = self.state.subjects.get(subject_key, [])
        fresh = [one for one in incidents if self._fresh(one, now_ms)]
        if fresh:
            self.state.subjects[subject_key] = fresh
        else:
            self.state.subjects.pop(subject_key, None)


def incident_id(
    cluster: str, detector: str, subject_key: str, kind: AlertKind, opened_at_ms: int
) -> str:
    """The same for the same incident in every run: 20 hex digits."""
    identity = json.dumps([cluster, detector, subject_key, kind, opened_at_ms])
    return hashlib.sha256(identity.encode()).hexdigest()[:ID_HEX_DIGITS]


def subject_key(subject: Subject) -> str:
    """The subject in a key: the workload where there is one, else the device.

    A workload's pods and devices come and go within an incident, so they are no part of it.
    """
    if subject.workload is not None:
        return f"{subject.namespace or ''}/{subject.workload}"
    if subject.device_uuid is not None:
        return subject.device_uuid
    return "/".join(part for part in (subject.node, subject.namespace, subject.pod) if part)


def alert_key(event: AlertEvent) -> bytes:
    """The key of `gpu.alerts`: all incidents of a subject are in one partition, in order."""
    return f"{event.cluster}/{event.detector}/{subject_key(event.subject)}".encode()


def _kept(verdict: "Verdict") -> KeptVerdict:
    waste = verdict.waste
    return KeptVerdict(
        detector=verdict.detector,
        tier=verdict.tier,
        quality=verdict.quality,
        onset_ms=verdict.onset_ms,
        subject=verdict.subject.model_dump(exclude_none=True),
        owner=verdict.owner,
        summary=verdict.summary,
        evidence=dict(verdict.evidence),
        waste=None if waste is None else waste.model_dump(exclude_none=True),
        parameters=dict(verdict.parameters),
        aggressors=[one.model_dump(exclude_none=True) for one in verdict.aggressors],
    )


def _event(
    incident: Incident,
    status: AlertStatus,
    now_ms: int,
    reason: str | None,
    parameters: "AlertParameters",
) -> AlertEvent:
    last = incident.last
    runbook = parameters.runbook_base_url
    valid_until_ms = min(LAST_MOMENT_MS, now_ms + round(parameters.valid_for * 1000))
    return AlertEvent(
        cluster=last.subject["cluster"] or "",
        detector=last.detector,
        incident_id=incident.incident_id,
        revision=incident.revision,
        valid_until=moment(valid_until_ms),
        kind=incident.kind,
        status=status,
        tier=last.tier,
        quality=last.quality,
        subject=Subject.model_validate(last.subject),
        aggressors=tuple(Subject.model_validate(one) for one in last.aggressors),
        owner=last.owner,
        onset=moment(last.onset_ms),
        opened_at=moment(incident.opened_at_ms),
        updated_at=moment(now_ms),
        resolved_at=None if incident.resolved_at_ms is None else moment(incident.resolved_at_ms),
        reason=reason,
        summary=last.summary,
        evidence=last.evidence,
        waste=None if last.waste is None else Waste.model_validate(last.waste),
        parameters=last.parameters,
        runbook_url=None if runbook is None else runbook + incident.kind,
    )

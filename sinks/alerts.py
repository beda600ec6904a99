"""What a reader of alerts has to remember: which revision it has, and until when it holds."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent

STALE = "stale"

FORGET_AFTER = timedelta(hours=24)
"""So long after its end an incident's revision is remembered: repetitions come within minutes."""


@dataclass(slots=True)
class _Known:
    event: "AlertEvent"
    stale: bool = False

    @property
    def is_open(self) -> bool:
        return self.event.status != "resolved" and not self.stale

    @property
    def valid_until(self) -> datetime:
        return _utc(self.event.valid_until)


@dataclass(slots=True)
class _ClusterTime:
    """The newest event time of a cluster, and what the broker's clock said to it."""

    newest: datetime
    appended_ms: int

    def at(self, broker_ms: int) -> datetime:
        try:
            return self.newest + timedelta(milliseconds=max(0, broker_ms - self.appended_ms))
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)


class AlertReader:
    """Follows revisions and `valid_until` of all incidents.

    Events hold event time alone, and nothing says whether a host's clock or that of simulated data
    is behind it.  So a cluster's time is the newest `updated_at` among its events, and from there
    on it moves with the broker's clock.  For a host's clock this is the broker's time less the
    delay of the stream; a simulation at 600 times real time moves with its events; and where a
    worker catches up on old data, its alerts are not stale on arrival.
    """

    def __init__(self) -> None:
        self.ignored = 0
        """Events whose revision was not larger than the one known."""
        self._known: dict[tuple[str, str], _Known] = {}
        self._times: dict[str, _ClusterTime] = {}

    def take(self, event: "AlertEvent", appended_ms: int) -> bool:
        """Whether the event says something new.  `appended_ms` is the broker's time of its record.

        An incident that was closed as stale opens again with a larger revision.
        """
        identity = (event.cluster, event.incident_id)
        known = self._known.get(identity)
        if known is not None and event.revision <= known.event.revision:
            self.ignored += 1
            return False
        self._known[identity] = _Known(event)
        time, updated_at = self._times.get(event.cluster), _utc(event.updated_at)
        if time is None or updated_at > time.newest:
            self._times[event.cluster] = _ClusterTime(updated_at, appended_ms)
        return True

    def stale(self, broker_ms: int) -> list["AlertEvent"]:
        """What is past its `valid_until` at this time of the broker, each once, the oldest first.

        They come as resolved events with the reason `stale` and the revision that they had.  Ask
        only when all partitions are read to their ends, or an alert looks stale whose repetition
        is still unread.
        """
        ended = [
            known
            for (cluster, _), known in self._known.items()
            if known.is_open and known.valid_until < self._times[cluster].at(broker_ms)
        ]
        for known in ended:
            known.stale = True
        self._forget(broker_ms)
        return [_closed(known.event) for known in sorted(ended, key=_valid_until)]

    @property
    def open_alerts(self) -> list["AlertEvent"]:
        """The newest event of each incident that is open, the oldest first."""
        events = (known.event for known in self._known.values() if known.is_open)
        return sorted(events, key=lambda event: (_utc(event.opened_at), event.incident_id))

    def _forget(self, broker_ms: int) -> None:
        """Drop what ended long ago; its subject may have gone for good."""
        self._known = {
            identity: known
            for identity, known in self._known.items()
            if known.is_open
            or self._times[identity[0]].at(broker_ms) - known.valid_until < FORGET_AFTER
        }


def _utc(moment: datetime) -> datetime:
    """The moment with a zone: a writer that is not ours may have left it out."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _valid_until(known: _Known) -> tuple[datetime, str]:
    return known.valid_until, known.event.incident_id


def _closed(event: "AlertEvent") -> "AlertEvent":
    """The end that nobody sent: at the moment up to which the last event held."""
    return event.model_copy(
        update={
            "status": "resolved",
            "reason": STALE,
            "updated_at": event.valid_until,
            "resolved_at": event.valid_until,
        }
    )

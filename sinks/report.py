"""The summary at the end: what was watched, what was wrong, what it cost, by namespace."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from sinks.words import NO_POD, clean, money

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent
    from schemas.windows import WindowContribution

SECONDS_PER_HOUR = 3600.0


class Report:
    """Collects the newest revision of each incident and the GPU-hours that were observed."""

    def __init__(self) -> None:
        self.incidents: dict[str, AlertEvent] = {}
        self.observed_hours: defaultdict[str, float] = defaultdict(float)

    def take_alert(self, event: "AlertEvent") -> None:
        """Keep the event unless a newer revision is known."""
        known = self.incidents.get(event.incident_id)
        if known is None or event.revision > known.revision:
            self.incidents[event.incident_id] = event

    def take_windows(self, message: "WindowContribution") -> None:
        """Count the GPU-hours that a contribution covers."""
        for workload in message.workloads:
            hours = sum(s.coverage_seconds * s.card_share for s in workload.series)
            self.observed_hours[workload.namespace or NO_POD] += hours / SECONDS_PER_HOUR

    @property
    def open_alerts(self) -> "list[AlertEvent]":
        """Incidents that have not resolved, the oldest first."""
        events = (e for e in self.incidents.values() if e.status != "resolved")
        return sorted(events, key=lambda event: event.opened_at)

    def namespaces(self) -> list[dict[str, float | str | None]]:
        """A row for each namespace; `cost` is None where a price is missing."""
        names = set(self.observed_hours) | {_namespace(e) for e in self.incidents.values()}
        return [self._row(name) for name in sorted(names)]

    def by_kind(self) -> dict[str, dict[str, int]]:
        """How many incidents of each kind are open and resolved."""
        counted = Counter((e.kind, e.status == "resolved") for e in self.incidents.values())
        return {
            kind: {"open": counted[kind, False], "resolved": counted[kind, True]}
            for kind in sorted({kind for kind, _ in counted})
        }

    def as_json(self) -> dict[str, object]:
        """The summary as data."""
        return {"alerts": self.by_kind(), "namespaces": self.namespaces()}

    def render(self) -> list[Table]:
        """The summary as tables."""
        kinds = Table(title="Incidents", title_justify="left")
        kinds.add_column("kind")
        kinds.add_column("open", justify="right")
        kinds.add_column("resolved", justify="right")
        for kind, counts in self.by_kind().items():
            kinds.add_row(kind, str(counts["open"]), str(counts["resolved"]))
        waste = Table(title="GPU-hours by namespace", title_justify="left")
        waste.add_column("namespace")
        for column in ("observed", "wasted", "cost of the waste"):
            waste.add_column(column, justify="right")
        for name in sorted(self.observed_hours):
            row = self._row(name)
            cost = row["cost"]
            waste.add_row(
                Text(clean(name)),
                f"{row['observed_gpu_hours']:.2f}",
                f"{row['wasted_gpu_hours']:.2f}",
                money(cost if isinstance(cost, float) else None, str(row["currency"] or "")),
            )
        return [kinds, waste]

    def _row(self, name: str) -> dict[str, float | str | None]:
        wastes = [e.waste for e in self.incidents.values() if e.waste and _namespace(e) == name]
        costs = [waste.cost for waste in wastes]
        known = [cost for cost in costs if cost is not None]
        return {
            "namespace": name,
            "observed_gpu_hours": round(self.observed_hours.get(name, 0.0), 4),
            "wasted_gpu_hours": round(sum(waste.gpu_hours for waste in wastes), 4),
            "cost": round(sum(known, 0.0), 2) if len(known) == len(costs) else None,
            "currency": next((w.currency for w in wastes if w.currency), None),
        }


def _namespace(event: "AlertEvent") -> str:
    return event.subject.namespace or NO_POD

"""Alerts and numbers in words for people, safe against what a pod may be called."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent, Subject, Waste

NO_POD = "(no pod)"
UNKNOWN = "unknown"


def clean(text: str) -> str:
    """The text without control characters, which could move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def subject_words(subject: "Subject") -> str:
    """The workload with its namespace, else the device with its node."""
    if subject.workload is not None:
        return clean(f"{subject.namespace or NO_POD}/{subject.workload}")
    return clean(f"{subject.node or UNKNOWN}/{subject.device_uuid or UNKNOWN}")


def money(cost: float | None, currency: str | None) -> str:
    """An amount, or that it is not known."""
    return UNKNOWN if cost is None else clean(f"{cost:,.2f} {currency or ''}".rstrip())


def waste_words(waste: "Waste | None") -> str:
    """GPU-hours and what they cost."""
    if waste is None:
        return ""
    hours = f"{waste.gpu_hours:.2f} GPU-hours"
    return hours if waste.cost is None else f"{hours}, {money(waste.cost, waste.currency)}"


def evidence_words(event: "AlertEvent") -> str:
    """The evidence as `name value` pairs; what is not known is left out."""
    shown = [
        f"{name.replace('_', ' ')} {_value(value)}"
        for name, value in event.evidence.items()
        if value is not None
    ]
    return clean("; ".join(shown))


def alert_words(event: "AlertEvent") -> str:
    """An event as a short block: when, what, where, why."""
    head = f"{event.updated_at:%Y-%m-%d %H:%M:%S}Z  {event.status.upper():8}  {event.kind:12}"
    lines = [f"{head}  {subject_words(event.subject)}  [{event.tier}, {event.quality}]"]
    reason = f" ({clean(event.reason)})" if event.reason else ""
    lines.append(f"    {clean(event.summary)}{reason}")
    if event.status == "firing":
        lines.append(f"    evidence: {evidence_words(event)}")
    if event.waste is not None:
        lines.append(f"    wasted: {waste_words(event.waste)}")
    return "\n".join(lines)


def _value(value: float | str | bool | None) -> str:  # noqa: FBT001 - one of the evidence's types
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"  # noqa: PLR2004 - as read
    return str(value)

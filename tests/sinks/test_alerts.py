"""A reader's rules: larger revisions only, and nothing stays open past its validity."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.alerts import AlertEvent, Subject, moment
from sinks.alerts import AlertReader

AT_MS = 1_790_000_000_000
VALID_MS = 1_800_000
MINUTE_MS = 60_000
NO_ZONE = datetime(2026, 9, 1)  # noqa: DTZ001 - what a foreign writer may send


def event(
    revision: int,
    *,
    incident: str = "one",
    status: str = "firing",
    at_ms: int = AT_MS,
    cluster: str = "c",
) -> AlertEvent:
    return AlertEvent.model_validate(
        {
            "cluster": cluster,
            "detector": "under_use",
            "incident_id": incident,
            "revision": revision,
            "valid_until": moment(at_ms + VALID_MS),
            "kind": "idle",
            "status": status,
            "tier": "ticket",
            "quality": "exact",
            "subject": Subject(cluster=cluster, namespace="team", workload="Job/train"),
            "onset": moment(at_ms),
            "opened_at": moment(at_ms),
            "updated_at": moment(at_ms),
            "summary": "does nothing",
            "evidence": {},
            "parameters": {},
        }
    )


def ids(events: list[AlertEvent]) -> list[str]:
    return [one.incident_id for one in events]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6))))
def test_shown_revisions_only_grow_whatever_is_repeated(told: list[tuple[str, int]]) -> None:
    reader = AlertReader()
    shown: dict[str, list[int]] = {}
    for incident, revision in told:
        if reader.take(event(revision, incident=incident), AT_MS):
            shown.setdefault(incident, []).append(revision)
    assert all(found == sorted(set(found)) for found in shown.values())
    assert {i: max(r for o, r in told if o == i) for i, _ in told} == {
        incident: found[-1] for incident, found in shown.items()
    }
    assert reader.ignored == len(told) - sum(map(len, shown.values()))


@pytest.mark.parametrize(
    ("delay_ms", "silent_ms", "stale"),
    [
        (0, VALID_MS, False),
        (0, VALID_MS + 1, True),
        (40 * MINUTE_MS, VALID_MS, False),  # a worker catches up: its alerts hold on arrival
        (40 * MINUTE_MS, VALID_MS + 1, True),
        (-300 * MINUTE_MS, VALID_MS, False),  # simulated ahead of the broker's clock
        (-300 * MINUTE_MS, VALID_MS + 1, True),
        (0, -MINUTE_MS, False),  # this reader's clock is behind
    ],
)
def test_without_a_word_an_alert_holds_for_its_validity(
    delay_ms: int, silent_ms: int, *, stale: bool
) -> None:
    reader = AlertReader()
    reader.take(event(1), AT_MS + delay_ms)
    ended = reader.stale(AT_MS + delay_ms + silent_ms)
    assert [(one.status, one.reason, one.revision) for one in ended] == (
        [("resolved", "stale", 1)] if stale else []
    )
    assert all(one.resolved_at == moment(AT_MS + VALID_MS) for one in ended)
    assert len(reader.open_alerts) == (not stale)


def test_a_simulations_time_moves_with_its_events() -> None:
    """At 600 times real time half an hour of event time is three seconds of the broker's."""
    reader = AlertReader()
    reader.take(event(1, incident="lost"), AT_MS)
    for step in range(1, 5):
        at_ms = AT_MS + step * 10 * MINUTE_MS
        reader.take(event(step, incident="repeated", at_ms=at_ms), AT_MS + step * 1000)
        assert ids(reader.stale(AT_MS + step * 1000)) == (["lost"] if step == 4 else [])
    assert ids(reader.open_alerts) == ["repeated"]


def test_one_clusters_time_is_not_anothers() -> None:
    reader = AlertReader()
    reader.take(event(1, cluster="real"), AT_MS)
    reader.take(event(1, cluster="simulated", at_ms=AT_MS + 10 * VALID_MS), AT_MS)
    assert reader.stale(AT_MS + 1000) == []


def test_a_stale_alert_is_told_once_and_opens_again_with_a_larger_revision() -> None:
    reader = AlertReader()
    reader.take(event(3), AT_MS)
    late_ms = AT_MS + 2 * VALID_MS
    assert len(reader.stale(late_ms)) == 1
    assert reader.stale(late_ms + 1) == []
    assert not reader.take(event(3), late_ms)
    assert reader.take(event(4, status="updated", at_ms=late_ms), late_ms)
    assert [one.revision for one in reader.open_alerts] == [4]


def test_what_is_resolved_does_not_become_stale() -> None:
    reader = AlertReader()
    reader.take(event(1), AT_MS)
    reader.take(event(2, status="resolved"), AT_MS)
    assert reader.open_alerts == []
    assert reader.stale(AT_MS + 10 * VALID_MS) == []


def test_a_day_after_its_end_an_incident_is_forgotten() -> None:
    reader = AlertReader()
    reader.take(event(1), AT_MS)
    reader.stale(AT_MS + 2 * VALID_MS)
    day_ms = 24 * 60 * MINUTE_MS
    reader.stale(AT_MS + VALID_MS + day_ms - 1)
    assert not reader.take(event(1), AT_MS)
    reader.stale(AT_MS + VALID_MS + day_ms)
    assert reader.take(event(1), AT_MS)


@pytest.mark.parametrize(
    "odd",
    [
        {"valid_until": NO_ZONE},
        {"updated_at": NO_ZONE, "opened_at": NO_ZONE},
        {"valid_until": datetime.max.replace(tzinfo=UTC)},
        {"updated_at": datetime.max.replace(tzinfo=UTC)},
        {"updated_at": datetime.min.replace(tzinfo=UTC)},
    ],
)
def test_odd_times_stop_nothing(odd: dict[str, datetime]) -> None:
    reader = AlertReader()
    reader.take(event(1).model_copy(update=odd), AT_MS)
    reader.take(event(1, incident="two"), AT_MS)
    assert len(reader.open_alerts) == 2
    end_ms = AT_MS + round(timedelta(days=400_000).total_seconds() * 1000)
    assert "two" in ids(reader.stale(end_ms))

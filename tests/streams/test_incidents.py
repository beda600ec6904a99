from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.alerts import AlertEvent, AlertKind, Subject, Tier, Waste
from schemas.parameters import AlertParameters
from streams.incidents import (
    LAST_MOMENT_MS,
    IncidentLife,
    IncidentsState,
    alert_key,
    incident_id,
)
from streams.verdicts import Verdict

T0 = 1_772_409_600_000
WINDOW = 10_000
MINUTE = 60_000
KEY = "ml/Deployment/server"


class Detector:
    """Says what it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.kind: AlertKind = "idle"
        self.tier: Tier = "ticket"
        self.gpu_hours = 1 / 3

    def describe(self) -> Verdict:
        self.asked += 1
        return Verdict(
            detector="under_use",
            kind=self.kind,
            tier=self.tier,
            quality="exact",
            onset_ms=T0 - 30 * MINUTE,
            subject=Subject(cluster="c", namespace="ml", workload="Deployment/server"),
            owner="team-a",
            summary="It does not use its GPU.",
            evidence={"use_mean_percent": 0.1, "devices": 1, "measure": "gpu_util", "none": None},
            waste=Waste(gpu_hours=self.gpu_hours, cost=2.0, currency="USD"),
            parameters={"open_after": 1800.0},
        )


def life(state: IncidentsState | None = None, **parameters: float | str) -> IncidentLife:
    return IncidentLife(AlertParameters.model_validate(parameters), state)


def drive(
    incidents: IncidentLife,
    kinds: Iterable[AlertKind | None],
    detector: Detector | None = None,
    start_ms: int = T0,
) -> list[AlertEvent]:
    """One step each window."""
    detector = detector or Detector()
    events: list[AlertEvent] = []
    for number, kind in enumerate(kinds):
        detector.kind = kind or detector.kind
        now_ms = start_ms + number * WINDOW
        events += incidents.step(KEY, kind, now_ms, detector.describe)
    return events


def story(events: list[AlertEvent]) -> list[tuple[str, str, int, str | None]]:
    return [(event.kind, event.status, event.revision, event.reason) for event in events]


def idle(minutes: int) -> list[AlertKind | None]:
    return ["idle"] * (minutes * 6)


def well(minutes: int) -> list[AlertKind | None]:
    return [None] * (minutes * 6)


def test_nothing_wrong_says_and_keeps_nothing() -> None:
    incidents, detector = life(), Detector()
    assert drive(incidents, well(60), detector) == []
    assert (detector.asked, incidents.state) == (0, IncidentsState())


def test_it_opens_once() -> None:
    (event,) = drive(life(), idle(1))
    assert (event.status, event.revision, event.tier) == ("firing", 1, "ticket")
    assert event.model_dump(mode="json")["opened_at"] == "2026-03-02T00:00:00.000Z"
    assert event.model_dump(mode="json")["onset"] == "2026-03-01T23:30:00.000Z"
    assert event.model_dump(mode="json")["valid_until"] == "2026-03-02T00:30:00.000Z"
    assert event.resolved_at is None


def test_it_is_repeated_at_a_bounded_rate() -> None:
    events = drive(life(), idle(31))
    assert [(event.status, event.revision) for event in events] == [
        ("firing", 1),
        ("updated", 2),
        ("updated", 3),
        ("updated", 4),
    ]
    gaps = {b.updated_at - a.updated_at for a, b in pairwise(events)}
    assert {gap.total_seconds() for gap in gaps} == {600.0}
    assert {event.incident_id for event in events} == {events[0].incident_id}


def test_asking_is_bounded_too() -> None:
    detector = Detector()
    drive(life(), idle(60), detector)
    assert detector.asked == 60


def test_it_resolves_with_the_last_evidence() -> None:
    detector = Detector()
    _, event = drive(life(), [*idle(5), None], detector)
    assert (event.status, event.revision, event.reason) == ("resolved", 2, "recovered")
    assert event.resolved_at == event.updated_at
    assert event.evidence["use_mean_percent"] == 0.1


def test_the_last_evidence_is_not_older_than_a_minute() -> None:
    incidents, detector = life(), Detector()
    drive(incidents, idle(5), detector)
    detector.gpu_hours = 0.75
    *_, event = drive(incidents, [*idle(2), None], detector, T0 + 5 * MINUTE)
    assert event.status == "resolved"
    assert event.waste is not None
    assert event.waste.gpu_hours == 0.75


def test_the_detector_may_say_why_it_ended() -> None:
    incidents, detector = life(), Detector()
    drive(incidents, idle(1), detector)
    (event,) = incidents.step(KEY, None, T0 + MINUTE, detector.describe, "measure changed")
    assert event.reason == "measure changed"


def test_another_kind_is_another_incident() -> None:
    events = drive(life(), [*idle(1), "low_use"])
    assert story(events) == [
        ("idle", "firing", 1, None),
        ("idle", "resolved", 2, "became low_use"),
        ("low_use", "firing", 1, None),
    ]
    assert events[0].incident_id != events[2].incident_id


def test_reopening_within_half_an_hour_is_the_same_incident() -> None:
    events = drive(life(), [*idle(1), *well(29), *idle(1), None])
    assert story(events) == [
        ("idle", "firing", 1, None),
        ("idle", "resolved", 2, "recovered"),
        ("idle", "firing", 3, None),
        ("idle", "resolved", 4, "recovered"),
    ]
    assert len({event.incident_id for event in events}) == 1
    assert len({event.opened_at for event in events}) == 1
    assert events[2].resolved_at is None


def test_reopening_later_is_a_new_incident_and_the_old_one_is_forgotten() -> None:
    incidents = life()
    events = drive(incidents, [*idle(1), *well(31)])
    assert incidents.state == IncidentsState()
    events += drive(incidents, idle(1), start_ms=T0 + 32 * MINUTE)
    assert story(events)[-1] == ("idle", "firing", 1, None)
    assert events[-1].incident_id != events[0].incident_id


def test_a_kind_that_comes_back_through_another_is_the_same_incident() -> None:
    events = drive(life(), [*idle(10), "low_use", *well(5), *idle(1)])
    assert story(events)[-1] == ("idle", "firing", 3, None)
    assert events[-1].incident_id == events[0].incident_id


def test_a_change_of_tier_goes_out_at_once_but_at_most_once_a_minute() -> None:
    incidents, detector = life(), Detector()
    drive(incidents, idle(1), detector)
    at: list[int] = []
    for number in range(60):
        detector.tier = "info" if number // 7 % 2 else "ticket"
        now_ms = T0 + MINUTE + number * WINDOW
        at += [now_ms for _ in incidents.step(KEY, "idle", now_ms, detector.describe)]
    assert len(at) >= 2
    assert all(later - earlier >= MINUTE for earlier, later in pairwise(at))


def test_a_lasting_change_of_tier_is_told_within_a_minute() -> None:
    incidents, detector = life(), Detector()
    drive(incidents, idle(2), detector)
    detector.tier = "info"
    (event,) = drive(incidents, idle(2), detector, T0 + 2 * MINUTE)
    assert (event.status, event.tier, event.revision) == ("updated", "info", 2)


def test_an_end_from_outside_resolves() -> None:
    incidents = life()
    drive(incidents, idle(1))
    (event,) = incidents.end(KEY, T0 + MINUTE, "pod deleted")
    assert (event.status, event.reason) == ("resolved", "pod deleted")
    assert incidents.end(KEY, T0 + 2 * MINUTE, "pod deleted") == []
    assert incidents.end("nobody", T0, "pod deleted") == []


def test_subjects_do_not_touch_each_other() -> None:
    incidents, detector = life(), Detector()
    (first,) = incidents.step("a", "idle", T0, detector.describe)
    (second,) = incidents.step("b", "idle", T0, detector.describe)
    assert first.incident_id != second.incident_id
    assert incidents.step("a", None, T0 + WINDOW, detector.describe)[0].status == "resolved"
    assert incidents.step("b", "idle", T0 + WINDOW, detector.describe) == []


def test_the_runbook_is_the_base_and_the_kind() -> None:
    (event,) = drive(life(runbook_base_url="https://runbooks.example/"), ["idle"])
    assert event.runbook_url == "https://runbooks.example/idle"
    assert drive(life(), ["idle"])[0].runbook_url is None


def test_the_key_is_the_subject_whatever_its_pods_are() -> None:
    (event,) = drive(life(), ["idle"])
    assert alert_key(event) == b"c/under_use/ml/Deployment/server"
    with_pod = event.subject.model_copy(update={"pod": "server-1", "device_uuid": "GPU-1"})
    assert alert_key(event.model_copy(update={"subject": with_pod})) == alert_key(event)
    device = Subject(cluster="c", node="n1", device_uuid="GPU-1")
    assert alert_key(event.model_copy(update={"subject": device})) == b"c/under_use/GPU-1"
    node = Subject(cluster="c", node="n1")
    assert alert_key(event.model_copy(update={"subject": node})) == b"c/under_use/n1"


def test_the_id_is_the_same_in_every_run() -> None:
    identity = incident_id("c", "under_use", KEY, "idle", T0)
    assert identity == "7276beaada81eae75810"
    assert identity != incident_id("c", "under_use", KEY, "idle", T0 + 1)


def test_the_end_of_the_calendar_is_no_crash() -> None:
    (event,) = life().step(KEY, "idle", LAST_MOMENT_MS, Detector().describe)
    assert event.valid_until == event.opened_at


_kinds = st.lists(
    st.tuples(st.sampled_from([None, "idle", "low_use", "busy_stalled"]), st.integers(1, 200)),
    max_size=8,
)


@given(_kinds, st.data())
def test_a_restart_anywhere_gives_the_same_bytes(
    runs: list[tuple[AlertKind | None, int]], data: st.DataObject
) -> None:
    kinds = [kind for kind, length in runs for _ in range(length)]
    cut = data.draw(st.integers(0, len(kinds)))
    whole = drive(life(), kinds)
    first = life()
    events = drive(first, kinds[:cut])
    dump = msgspec.json.encode(first.state)
    second = life(msgspec.json.decode(dump, type=IncidentsState))
    assert msgspec.json.encode(second.state) == dump
    events += drive(second, kinds[cut:], start_ms=T0 + cut * WINDOW)
    assert [event.model_dump_json() for event in events] == [
        event.model_dump_json() for event in whole
    ]


@given(_kinds)
def test_revisions_grow_by_one_and_at_most_one_is_open(
    runs: list[tuple[AlertKind | None, int]],
) -> None:
    revisions: dict[str, int] = {}
    open_ones: set[str] = set()
    for event in drive(life(), (kind for kind, length in runs for _ in range(length))):
        assert event.revision == revisions.get(event.incident_id, 0) + 1
        revisions[event.incident_id] = event.revision
        if event.status == "firing":
            assert not open_ones
            open_ones.add(event.incident_id)
        assert event.incident_id in open_ones
        if event.status == "resolved":
            open_ones.remove(event.incident_id)


@pytest.mark.parametrize("value", [1, 1.0, True, "text", None, 1e300, 2**62, 0.1 + 0.2])
def test_evidence_keeps_its_type_over_a_restart(value: float | str | None) -> None:
    incidents, detector = life(), Detector()
    drive(incidents, ["idle"], detector)
    incidents.state.subjects[KEY][0].last.evidence["value"] = value
    again = msgspec.json.decode(msgspec.json.encode(incidents.state), type=IncidentsState)
    kept = again.subjects[KEY][0].last.evidence["value"]
    assert (kept, type(kept)) == (value, type(value))

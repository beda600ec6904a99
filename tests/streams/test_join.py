from schemas.pods import Pod, PodAction, PodEvent
from schemas.wire import PodVersion
from streams.join import PodJoin, PodState


def event(epoch: int, sequence: int, action: PodAction, *uids: str, at_ms: int = 0) -> PodEvent:
    return PodEvent(
        cluster="c",
        node="n",
        observed_at_ms=at_ms,
        position=PodVersion(epoch=epoch, sequence=sequence),
        action=action,
        pods=tuple(Pod(namespace="team", name=uid, uid=uid) for uid in uids),
    )


def version(epoch: int, sequence: int) -> PodVersion:
    return PodVersion(epoch=epoch, sequence=sequence)


EVENTS = [
    event(1, 0, "snapshot", "a", "b"),
    event(1, 1, "upsert", "c"),
    event(1, 2, "deleted", "a"),
    event(2, 0, "snapshot", "d", at_ms=5),
]


def joined(*events: PodEvent) -> PodJoin:
    join = PodJoin(PodState())
    for offset, one in enumerate(events):
        join.add(offset, one)
    return join


def test_the_pods_are_exactly_those_of_the_version() -> None:
    join = joined(*EVENTS)
    seen = []
    for wanted in [(1, 0), (1, 1), (1, 2), (2, 0)]:
        assert join.advance(version(*wanted), 0)
        seen.append(sorted(join.state.pods))
    assert seen == [["a", "b"], ["a", "b", "c"], ["b", "c"], ["d"]]


def test_a_sample_waits_for_every_event_up_to_its_version() -> None:
    join = joined(EVENTS[0], EVENTS[2])
    assert not join.advance(version(1, 2), 0)
    assert not join.state.known
    join.give_up()
    assert sorted(join.state.pods) == ["b"]


def test_an_older_version_and_a_repeated_event_change_nothing() -> None:
    join = joined(*EVENTS)
    assert join.advance(version(2, 0), 0)
    for again in EVENTS:
        join.add(9, again)
    assert not join.waiting
    assert join.advance(version(1, 1), 0)
    assert sorted(join.state.pods) == ["d"]


def test_without_a_version_the_time_decides() -> None:
    join = joined(*EVENTS)
    assert join.advance(None, 4)
    assert sorted(join.state.pods) == ["b", "c"]
    assert join.advance(None, 5)
    assert sorted(join.state.pods) == ["d"]

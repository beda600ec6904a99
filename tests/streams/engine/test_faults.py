"""What happens between two awaits: rebalances, saves and answers that overtake each other."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from producers.simulated import SimulatedCluster
from schemas.deadletter import MAX_ORIGINAL_BYTES
from schemas.topics import ALERTS, DEADLETTER, TELEMETRY
from streams.engine.operators import Place
from streams.engine.state_topic import SAVE_SECONDS
from streams.engine.timers import LOOK_SECONDS
from streams.outputs import Output, TooManyFaultsError
from streams.stage_one import StageOne
from tests.kafka_topics import create, records
from tests.streams.engine.rig import PARTITIONS, PATIENCE_SECONDS, Rig, plain, scrapes, with_pods
from tests.streams.engine.running import (
    decided,
    ends,
    fresh,
    make_topics,
    options,
    publish,
    running,
    until_same,
)
from transport.broker import Broker
from transport.contract import Record

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LATE_SECONDS = 0.3
"""A takeover that was overtaken has ended after this."""

PLACE: Place = (TELEMETRY, 0)
WAITING = 4
"""Scrapes of a node, 5 s apart, that wait for late ones and for the end of their window."""

MINUTES_20 = 1_200_000


@pytest.fixture
async def rig(kafka: Broker) -> AsyncIterator[Rig]:
    connection = fresh(kafka, "faults")
    await make_topics(connection, PARTITIONS)
    async with Rig(connection, with_pods()) as made:
        yield made


async def test_records_that_come_while_the_ends_are_asked_for_make_no_topic_new(rig: Rig) -> None:
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(5)))
    rig.intake.fetch_all()
    numbers = iter(range(5, 100))

    def more() -> None:
        rig.topics.publish(*scrapes([next(numbers)]))
        rig.intake.fetch_all()

    rig.intake.while_answering = more
    for _ in range(5):
        await rig.timers.ask()
    assert rig.engine.totals()["topics_recreated"] == 0
    assert rig.engine.seats["node", 0].next[TELEMETRY] == 10


async def test_a_topic_that_was_made_again_before_a_takeover_is_read_from_its_beginning(
    rig: Rig,
) -> None:
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(30)))
    rig.intake.fetch_all()
    await rig.engine.save_all()
    rig.topics.make_again(PLACE)
    rig.topics.publish(*scrapes(range(30, 44)))
    async with Rig(rig.connection, rig.topics) as successor:
        await successor.took_over(0)
        assert successor.engine.totals()["topics_recreated"] == 1
        successor.intake.fetch_all()
        assert successor.engine.seats["node", 0].next[TELEMETRY] == 14
        counted = successor.engine.totals()
    assert counted["gpu_samples"] == 14 - WAITING  # states are kept, so nothing comes twice
    assert counted["late"] == counted["repeated"] == 0


async def test_the_last_message_sent_while_everything_is_held_back_is_taken_once(rig: Rig) -> None:
    await rig.took_over(0, 1)
    rig.topics.publish(*scrapes(range(4)))
    rig.intake.fetch_all()
    rig.topics.publish(*scrapes([4]))
    places = sorted(rig.intake.wanted)
    flying = {place: rig.intake.fetch(place) for place in places}  # a fetch is under way
    for place in places:
        rig.engine.fetching.hold_back(place, "test")
    rig.topics.publish(*scrapes([5]))
    assert rig.intake.fetch_all() == 0
    for place, fetched in flying.items():
        rig.intake.hand_over(place, fetched)
    for place in places:
        await rig.engine.fetching.let_go(place, "test")
    assert rig.intake.positions[PLACE] == 5  # our own next offset, not the one before the fetch
    rig.intake.fetch_all()
    await rig.engine.save_all()
    assert await rig.saved() == plain(rig.topics)
    assert rig.engine.totals()["replayed"] == 0


@pytest.mark.parametrize("before", ["nothing saved", "saved"])
async def test_a_save_that_fails_after_a_rebalance_leaves_nobody_without_an_owner(
    rig: Rig, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.engine.engine.REVOKE_SECONDS", 0.05)
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    if before == "saved":
        await rig.engine.save_all()
    rig.topics.publish(*scrapes(range(10, 20)))
    rig.intake.fetch_all()
    rig.commits.gate = gate = asyncio.Event()
    saving = asyncio.create_task(rig.engine.save_all())
    await rig.until(lambda: rig.commits.waiting)
    await rig.intake.revoked()  # the save is still under way when the next owner is known
    rig.commits.gate = None
    rig.intake.assigned(0)
    await asyncio.sleep(0.02)
    rig.commits.error = KafkaConnectionError("the broker went away")
    gate.set()
    await saving
    rig.commits.error = None
    await asyncio.sleep(1.2)  # longer than a partition waits until it is claimed again
    await rig.until(lambda: rig.serves(0))
    rig.topics.publish(*scrapes(range(20, 30)))
    rig.intake.fetch_all()
    await rig.engine.save_all()
    assert await rig.saved() == plain(rig.topics)
    assert rig.intake.error is None


async def test_a_checkpoint_that_waited_through_a_rebalance_is_not_written(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outputs are acknowledged when another seat has loaded older states: those go on."""
    monkeypatch.setattr("streams.engine.engine.REVOKE_SECONDS", 0.05)
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    rig.engine.send(rig.engine.seats["node", 0], [Output("not.there.yet", 0, b"k", b"v")])
    saving = asyncio.create_task(rig.engine.save_all())
    await asyncio.sleep(0.1)
    await rig.took_over(0)
    assert await rig.saved() == {}
    await make_late_topic(rig)
    await asyncio.wait_for(saving, PATIENCE_SECONDS)
    assert await rig.saved() == {}
    rig.intake.fetch_all()
    await rig.engine.save_all()
    assert await rig.saved() == plain(rig.topics)


async def make_late_topic(rig: Rig) -> None:
    await create(rig.connection.bootstrap, rig.connection.topic("not.there.yet"), partitions=1)


async def test_half_of_a_batch_is_never_saved(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    await rig.engine.save_all()
    before = await rig.saved()
    take = StageOne._take

    def fails_at_last(self: StageOne, record: Record) -> None:
        if record.topic == TELEMETRY and record.offset == 99:
            raise TooManyFaultsError("above 10 keys in a minute")
        take(self, record)

    monkeypatch.setattr(StageOne, "_take", fails_at_last)
    rig.topics.publish(*scrapes(range(10, 100)))
    rig.intake.fetch_all()
    assert isinstance(rig.intake.error, TooManyFaultsError)
    await rig.engine.stop()
    assert await rig.saved() == before


async def test_the_largest_message_that_no_codec_makes_smaller_is_a_dead_letter(rig: Rig) -> None:
    noise = random.Random(1).randbytes(8 * 2**20)  # noqa: S311 - hard to compress
    await rig.took_over(0)
    rig.topics.publish(*scrapes([0]))
    rig.topics.append(PLACE, b"c/n0", noise, 1_790_000_000_000)
    rig.topics.publish(*scrapes(range(1, 9)))
    rig.intake.fetch_all()
    await rig.engine.save_all()  # waits until all is acknowledged
    assert rig.engine.totals()["too_large"] == 0
    found = await records(rig.connection.bootstrap, rig.connection.topic(DEADLETTER), PARTITIONS)
    (letter,) = found[0]
    assert letter.value == noise[:MAX_ORIGINAL_BYTES]
    assert await rig.saved() == plain(rig.topics)


async def test_memory_is_not_kept_where_the_claim_ended_while_it_was_asked(rig: Rig) -> None:
    await rig.took_over(0)
    await rig.engine.save_all()
    states = rig.states["node"]
    asking = asyncio.create_task(states.unchanged([0]))
    await asyncio.sleep(0)
    await states.release(0)
    assert await asking == set()


async def test_a_save_ends_when_its_partition_is_claimed_anew(rig: Rig) -> None:
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    rig.commits.gate = asyncio.Event()
    saving = asyncio.create_task(rig.engine.save_all())
    await rig.until(lambda: rig.commits.waiting)
    rig.commits.gate = None
    began = time.monotonic()
    rig.intake.assigned(0)
    await saving
    await rig.until(lambda: rig.serves(0))
    rig.intake.fetch_all()
    await rig.engine.save_all()
    assert time.monotonic() - began < SAVE_SECONDS / 3
    assert await rig.saved() == plain(rig.topics)


async def test_a_fenced_worker_leaves_a_partition_that_is_not_its_own(rig: Rig) -> None:
    await rig.took_over(0, 1)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    async with Rig(rig.connection, rig.topics) as other:
        await other.took_over(0)
        saving = asyncio.create_task(rig.engine.save_all())
        await rig.until(lambda: rig.engine.totals()["fenced"])
        rig.intake.assigned(1)
        await saving
        await rig.until(lambda: rig.serves(1))
        await asyncio.sleep(1.0)  # twice its patience
        assert rig.serves(1)
        assert rig.states["node"].claimed == {1}
        other.intake.fetch_all()
        await other.engine.save_all()
        assert other.engine.totals()["fenced"] == 0
        assert await other.saved() == plain(rig.topics)


@pytest.mark.parametrize("seed", range(3))
async def test_any_order_of_rebalances_and_saves_counts_each_record_once(
    rig: Rig, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a schedule
    async with Rig(rig.connection, rig.topics) as other:
        rigs = [rig, other]
        for number in range(50):
            for partition in range(PARTITIONS):
                rig.topics.publish(*scrapes([number], partition))
            for one in rigs:
                one.intake.fetch_all(chance.choice([1, 3, 100]))
            if chance.random() < 0.3:
                await rebalanced(rigs, chance)
            if chance.random() < 0.3:
                await chance.choice(rigs).engine.save_all()
            await asyncio.sleep(chance.choice([0, 0, 0.05, 0.2]))
        await other.took_over()
        await rig.took_over(*range(PARTITIONS))
        await asyncio.sleep(LATE_SECONDS)
        rig.intake.fetch_all()
        await rig.engine.save_all()  # fenced where a takeover of the other one came late
        await rig.until(lambda: rig.serves(*range(PARTITIONS)))
        rig.intake.fetch_all()
        await rig.engine.save_all()
        for partition in range(PARTITIONS):
            assert await rig.saved(partition) == plain(rig.topics, partition)
        assert rig.intake.error is other.intake.error is None


async def rebalanced(rigs: Sequence[Rig], chance: random.Random) -> None:
    """New owners; a save that a worker has begun may fail meanwhile."""
    owners = [chance.randrange(len(rigs)) for _ in range(PARTITIONS)]
    saves = [asyncio.create_task(rig.engine.save_all()) for rig in rigs if chance.random() < 0.3]
    await asyncio.sleep(chance.choice([0, 0.01]))
    await asyncio.gather(*(rig.intake.revoked() for rig in rigs))
    for number, rig in enumerate(rigs):
        rig.intake.assigned(*(p for p in range(PARTITIONS) if owners[p] == number))
    await asyncio.gather(*saves)


async def test_a_partition_held_back_for_an_hour_delays_all_and_makes_nothing_late(
    kafka: Broker,
) -> None:
    messages = list(SimulatedCluster(1, duration_seconds=5400, interval_seconds=30).messages())
    begin_ms = messages[0].observed_at_ms
    pieces = [
        [m for m in messages if (m.observed_at_ms - begin_ms) // MINUTES_20 == number]
        for number in range(5)
    ]
    connection = fresh(kafka, "faults")
    await make_topics(connection)
    async with running(options(connection, "direct")) as one:
        engine = one.worker.engine
        await publish(connection, pieces[0])
        await one.until(lambda: sum(one.next.values()) >= len(pieces[0]))
        engine.fetching.hold_back(PLACE, "test")
        for piece in pieces[1:]:
            await publish(connection, piece)
            await asyncio.sleep(2 * LOOK_SECONDS)
        source_ends = await ends(connection, [TELEMETRY])
        others = {place for place, end in source_ends.items() if end} - {PLACE}
        assert others
        assert all(engine.fetching.is_held_back(place) for place in others)
        assert all(one.next[place] < source_ends[place] for place in others)
        await engine.fetching.let_go(PLACE, "test")
        await one.until(lambda: source_ends.items() <= one.next.items())
        await until_same(connection, ALERTS, decided(messages, ALERTS), one)
        counted = engine.totals()
        await one.ended()
    assert not any(counted[name] for name in ("late", "late_windows", "missing_offsets"))


async def test_a_broker_that_is_killed_while_states_are_saved_costs_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path, overrides={"broker.session.timeout.ms": "3000"}) as broker:
        connection = fresh(broker, "faults")
        await make_topics(connection, PARTITIONS)
        async with Rig(connection, with_pods()) as rig:
            await rig.took_over(0)
            rig.topics.publish(*scrapes(range(10)))
            rig.intake.fetch_all()
            await rig.engine.save_all()
            rig.topics.publish(*scrapes(range(10, 30)))
            rig.intake.fetch_all()
            rig.commits.gate = gate = asyncio.Event()
            saving = asyncio.create_task(rig.engine.save_all())
            await rig.until(lambda: rig.commits.waiting)
            await asyncio.to_thread(broker.kill, 1)
            rig.commits.gate = None
            gate.set()
            await asyncio.to_thread(broker.start_node, 1)
            await saving
            await rig.until(lambda: rig.serves(0))
            rig.intake.fetch_all()
            await rig.engine.save_all()
            assert await rig.saved() == plain(rig.topics)

"""What must not happen after somebody else's turn has begun, or before one's own has."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from streams.engine.engine import REVOKE_SECONDS
from streams.engine.operators import STAGES
from streams.engine.timers import QUIET_ASKS
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from tests.streams.engine.rig import PARTITIONS, Rig, plain, scrapes, with_pods
from tests.streams.engine.running import fresh, make_topics
from tests.streams.engine.scripted_intake import Topics
from tests.streams.harness import Sent
from transport.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LATE_SECONDS = 0.3
"""A takeover that was overtaken would have ended after this."""

MINUTES_20 = 1_200_000


@pytest.fixture
async def rig(kafka: Broker) -> AsyncIterator[Rig]:
    connection = fresh(kafka, "turns")
    await make_topics(connection, PARTITIONS)
    async with Rig(connection, with_pods()) as made:
        yield made


async def test_an_overtaken_takeover_fences_nobody_later(rig: Rig) -> None:
    rig.commits.start_gate = asyncio.Event()
    rig.intake.assigned(0)
    await rig.until(lambda: rig.commits.waiting == len(STAGES))
    began = time.monotonic()
    await rig.intake.revoked()
    assert time.monotonic() - began < REVOKE_SECONDS
    rig.intake.assigned()
    async with Rig(rig.connection, rig.topics) as owner:
        await owner.took_over(0)
        rig.commits.start_gate.set()
        await asyncio.sleep(LATE_SECONDS)
        owner.topics.publish(*scrapes(range(5)))
        owner.intake.fetch_all()
        await owner.engine.save_all()
        assert owner.engine.totals()["fenced"] == 0
        assert owner.engine.totals()["saves"] == len(STAGES)
    assert not rig.states["node"].claimed


async def test_a_stop_waits_for_the_checkpoint_in_flight_and_saves_what_came_after_it(
    rig: Rig,
) -> None:
    await rig.took_over(0)
    rig.topics.publish(*scrapes(range(10)))
    rig.intake.fetch_all()
    gate = rig.commits.gate = asyncio.Event()
    saving = asyncio.create_task(rig.engine.save_all())
    await rig.until(lambda: rig.commits.waiting)
    rig.topics.publish(*scrapes(range(10, 20)))
    rig.intake.fetch_all()
    stopping = asyncio.create_task(rig.engine.stop())
    await asyncio.sleep(LATE_SECONDS)
    assert not stopping.done()
    gate.set()
    await asyncio.gather(saving, stopping)
    assert await rig.saved() == plain(rig.topics)


async def test_data_that_is_merely_behind_does_not_take_the_time_of_the_others(rig: Rig) -> None:
    """Streams with a clock of their own go with the others only once they have ended."""
    own = {"clock": "data", "pod_version": None}
    data = [(at, one.model_copy(update=own)) for at, one in scrapes(range(20))]
    async with Rig(rig.connection, Topics(PARTITIONS)) as alone:
        await alone.took_over(0)
        node, workload = (alone.engine.seats[stage.name, 0].operator for stage in STAGES)
        assert isinstance(node, StageOne)
        assert isinstance(workload, StageTwo)

        def came(sent: Sequence[Sent]) -> int:
            alone.topics.publish(*sent)
            alone.intake.fetch_all()
            return node.progress_ms

        async def asked(times: int) -> int:
            for _ in range(times):
                await alone.timers.ask()
                await alone.timers.look()
            return node.progress_ms

        before = came(data[:10])
        workload.state.marks = {1: before + MINUTES_20}
        assert await asked(QUIET_ASKS - 1) == before
        behind = came(data[10:])
        assert behind > before
        assert node.counters["late"] == 0
        assert await asked(QUIET_ASKS - 1) == behind
        assert await asked(1) > behind

"""Both intakes, Faust's consumer and our own, under the same tests on a real Kafka."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterable

import pytest
from aiokafka.errors import KafkaConnectionError

from schemas.parameters import DetectorParameters
from schemas.topics import PODS, TELEMETRY, WINDOWS
from streams.engine.app import Worker
from streams.engine.member import FETCH_SECONDS
from streams.engine.operators import BY_NODE, Operator, Stage
from streams.outputs import Output, TooManyFaultsError
from streams.stage_one import StageOne
from tests.streams.engine.running import (
    PARTITIONS,
    Kind,
    Running,
    decided,
    ends,
    fresh,
    make_topics,
    of,
    options,
    publish,
    running,
    simulated,
    until_same,
)
from transport.broker import Broker
from transport.connection import Connection
from transport.contract import Record

pytestmark = pytest.mark.slow

SOURCES = (TELEMETRY, PODS)
STOP_SECONDS = 5.0
REASON = "test"
AMISS = ("replayed", "seeks_back", "missing_offsets", "failed_saves", "fenced", "late_saves")


@pytest.fixture(params=["faust", "direct"])
def intake(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
async def connection(kafka: Broker, intake: Kind) -> Connection:
    """A place of its own on the broker, with its topics."""
    one = fresh(kafka, f"intakes-{intake}")
    await make_topics(one)
    return one


def read(*workers: Running) -> int:
    """Source messages up to the next offsets of some workers."""
    return sum(n for w in workers for (topic, _), n in w.next.items() if topic in SOURCES)


def taken(worker: Running) -> int:
    """Records of all topics up to the next offsets, also of a worker that has ended."""
    seats = worker.worker.engine.seats.values()
    return sum(offset for seat in seats for offset in seat.next.values())


def read_again(worker: Running) -> int:
    """Records that are taken and not in the states, so that a successor has to read them."""
    seats = worker.worker.engine.seats.values()
    resumed = sum(offset for seat in seats for offset in seat.operator.resume_offsets().values())
    return taken(worker) - resumed


def nothing_amiss(*workers: Running) -> bool:
    counted = [worker.worker.engine.totals() for worker in workers]
    return not any(one[name] for one in counted for name in AMISS)


async def test_a_restart_goes_on_where_the_states_were_saved(
    connection: Connection, intake: Kind
) -> None:
    messages = simulated(120)
    half = len(messages) // 2
    await publish(connection, messages[:half])
    async with running(options(connection, intake)) as first:
        await first.until(lambda: read(first) == half)
        began = time.monotonic()
        await first.ended()
        assert time.monotonic() - began < STOP_SECONDS
    assert all((await of(connection, BY_NODE.state_topic)).values())
    await publish(connection, messages[half:])
    async with running(options(connection, intake)) as second:
        await second.until(lambda: read(second) == len(messages))
        await until_same(connection, WINDOWS, decided(messages, WINDOWS), second)
        await second.ended()
    counted = first.worker.engine.totals() + second.worker.engine.totals()
    assert counted["records"] == taken(second) + read_again(first)
    assert nothing_amiss(first, second)


async def test_a_second_worker_takes_half_and_gives_it_back(
    connection: Connection, intake: Kind
) -> None:
    messages = simulated(180)
    third = len(messages) // 3
    await publish(connection, messages[:third])
    async with running(options(connection, intake)) as one:
        await one.until(lambda: read(one) == third)
        async with running(options(connection, intake)) as two:
            await two.until(lambda: len(one.live) == len(two.live) == PARTITIONS)
            assert not one.live & two.live
            for worker in (one, two):
                assert partitions(worker, *SOURCES) == partitions(worker, WINDOWS)
            await publish(connection, messages[third:-third])
            await two.until(lambda: read(one, two) == len(messages) - third)
            await two.ended()
        await one.until(lambda: len(one.live) == 2 * PARTITIONS)
        await publish(connection, messages[-third:])
        await one.until(lambda: read(one) == len(messages))
        await until_same(connection, WINDOWS, decided(messages, WINDOWS), one)
    assert nothing_amiss(one, two)


def partitions(worker: Running, *topics: str) -> list[int]:
    """Those whose seats read all of these topics, once for each topic."""
    found = sorted(p for topic, p in worker.next if topic in topics)
    return found[:: len(topics)]


async def test_what_is_sent_while_everything_is_held_back_is_processed_once(
    connection: Connection, intake: Kind
) -> None:
    messages = simulated(60)
    async with running(options(connection, intake)) as one:
        await one.until(lambda: len(one.live) == 2 * PARTITIONS)
        engine = one.worker.engine
        places = list(one.next)
        for place in places:
            engine.fetching.hold_back(place, REASON)
        await asyncio.sleep(2 * FETCH_SECONDS)
        await publish(connection, messages)
        await asyncio.sleep(4 * FETCH_SECONDS)
        assert read(one) == 0
        for place in places:
            await engine.fetching.let_go(place, REASON)
        await one.until(lambda: read(one) == len(messages))
        await one.ended()
        counted = engine.totals()
    assert counted["records"] == sum(
        n for seat in engine.seats.values() for n in seat.next.values()
    )
    assert not {"replayed", "seeks_back", "missing_offsets"} & {k for k, n in counted.items() if n}


async def test_one_place_held_back_delays_no_other(connection: Connection, intake: Kind) -> None:
    messages = simulated(60)
    async with running(options(connection, intake)) as one:
        await one.until(lambda: len(one.live) == 2 * PARTITIONS)
        engine = one.worker.engine
        engine.fetching.hold_back((TELEMETRY, 0), REASON)
        await asyncio.sleep(2 * FETCH_SECONDS)
        await publish(connection, messages)
        held = await ends(connection, SOURCES)
        others = {place: end for place, end in held.items() if place != (TELEMETRY, 0)}
        assert held[TELEMETRY, 0]
        await one.until(lambda: others.items() <= one.next.items())
        assert one.next[TELEMETRY, 0] == 0
        await engine.fetching.let_go((TELEMETRY, 0), REASON)
        await one.until(lambda: read(one) == len(messages))


async def test_an_end_by_cancellation_leaves_nothing_behind(
    connection: Connection, intake: Kind
) -> None:
    tasks, threads = asyncio.all_tasks(), own_threads()
    async with running(options(connection, intake)) as one:
        await one.until(lambda: len(one.live) == 2 * PARTITIONS)
        began = time.monotonic()
        one.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one.task
        assert time.monotonic() - began < STOP_SECONDS
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == tasks
    assert own_threads() == threads


def own_threads() -> set[threading.Thread]:
    """All but those of asyncio, which look up names."""
    return {one for one in threading.enumerate() if not one.name.startswith("asyncio_")}


async def test_a_stop_before_the_group_is_joined_is_obeyed_and_leaves_no_connection(
    connection: Connection, intake: Kind
) -> None:
    for step in range(16):
        async with running(options(connection, intake)) as one:
            await asyncio.sleep(step * 0.007)
            began = time.monotonic()
            await one.ended()
            assert time.monotonic() - began < STOP_SECONDS
        del one
        gc.collect()  # where a connection that nobody closed warns, which fails this test


def test_a_loop_that_ends_while_fausts_thread_wakes_it_drops_no_coroutine() -> None:
    loop = asyncio.new_event_loop()

    async def wake() -> None:
        worker = Worker(options(Connection(bootstrap="127.0.0.1:1"), "faust"))
        worker.app.loop = loop
        thread = worker.app.consumer._new_consumer_thread()  # type: ignore[attr-defined]
        thread.thread_loop.close()
        assert thread.parent_loop is loop
        await thread._wakeup_timer_in_thread()

    loop.run_until_complete(wake())
    loop.close()
    gc.collect()  # where a coroutine that was never started warns, which fails this test


class Failing(StageOne):
    """An operator with a fault of its own."""

    error: Exception = RuntimeError("the operator failed")

    def process(self, records: Iterable[Record]) -> list[Output]:
        del records
        raise self.error


class GivingUp(Failing):
    """One that has seen too many faults."""

    error = TooManyFaultsError("above 10 keys in a minute")


class NotSaved(StageOne):
    """One that can't be saved."""

    def dump(self) -> dict[bytes, bytes | None]:
        raise RuntimeError("the operator was not dumped")


@pytest.mark.parametrize("kind", [Failing, GivingUp, NotSaved])
async def test_an_error_in_the_engine_ends_the_run_with_it(
    connection: Connection, intake: Kind, kind: type[StageOne]
) -> None:
    await publish(connection, simulated(20))
    worker = Worker(options(connection, intake, checkpoint_seconds=0.5))
    made = worker.engine._make_operator

    def make(stage: Stage, partition: int) -> Operator:
        if stage is BY_NODE:
            return kind(partition, PARTITIONS, DetectorParameters())
        return made(stage, partition)

    worker.engine._make_operator = make
    run = Running(worker)
    with pytest.raises((RuntimeError, TooManyFaultsError), match=r"operator|above 10 keys"):
        await asyncio.wait_for(run.task, 20)


async def test_a_broker_that_is_away_at_the_start_ends_the_run_at_once(intake: Kind) -> None:
    run = Running(Worker(options(Connection(bootstrap="127.0.0.1:1"), intake)))
    with pytest.raises(KafkaConnectionError):
        await asyncio.wait_for(run.task, 10)

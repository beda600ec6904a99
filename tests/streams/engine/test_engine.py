"""The engine over a scripted intake: rebalances, pauses, topics made again, faults of operators."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial

import pytest

from schemas.codec import encode
from schemas.deadletter import MAX_ORIGINAL_BYTES
from schemas.parameters import DetectorParameters
from schemas.topics import DEADLETTER, PODS, TELEMETRY, node_key
from streams.engine import clients
from streams.engine.engine import Engine
from streams.engine.operators import BY_NODE, STAGES, Operator, Place, Stage
from streams.engine.outbox import Outbox
from streams.engine.seat import Seat
from streams.engine.stalls import PATIENT_LOOKS
from streams.engine.state_topic import Saving, StateTopic
from streams.engine.timers import Timers
from streams.node import NodeStream
from streams.outputs import TooManyFaultsError
from streams.stage_one import PARTITION_KEY, StageOne
from streams.stage_two import StageTwo
from streams.states import NewerStateError
from tests.kafka_topics import records
from tests.streams.engine.running import fresh, make_topics
from tests.streams.harness import pods, sample
from transport.broker import Broker
from transport.connection import Connection
from transport.contract import Record

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 1
PATIENCE_SECONDS = 20.0


class Scripted:
    """An intake that fetches what a test hands over, and notes what it is asked."""

    def __init__(self) -> None:
        self.generation = 0
        self.begins: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self.fetched: frozenset[Place] = frozenset()
        self.seeks: list[dict[Place, int]] = []
        self.error: Exception | None = None
        self.gates: deque[asyncio.Event] = deque()
        """Each answer about the beginnings waits for the next of these."""

    def fetch_from(self, places: Collection[Place]) -> None:
        self.fetched = frozenset(places)

    async def seek(self, positions: Mapping[Place, int]) -> None:
        self.seeks.append(dict(positions))

    async def beginning_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        if self.gates:
            await self.gates.popleft().wait()
        return {place: self.begins.get(place, 0) for place in places}

    async def end_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        return {place: self.ends.get(place, 0) for place in places}

    async def commit(self, offsets: Mapping[Place, int]) -> None: ...

    def stop(self, error: Exception) -> None:
        self.error = error


class Stand:
    """An engine with all of its parts but the consumer."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.intake = Scripted()
        self.outbox = Outbox(partial(clients.output_producer, connection), connection.prefix)
        self.states = {stage.name: self._states(stage) for stage in STAGES}
        self.engine = Engine(
            self.intake,
            self.states,
            self.outbox,
            self._operator,
            partitions=PARTITIONS,
            session_seconds=1.0,
        )
        self.timers = Timers(self.engine, self.intake, 10.0, 600_000)
        self.outbox.start()

    def _states(self, stage: Stage) -> StateTopic:
        return StateTopic(
            self.connection.topic(stage.state_topic),
            PARTITIONS,
            make_producer=partial(clients.state_producer, self.connection, stage.name),
            make_consumer=partial(clients.state_consumer, self.connection),
        )

    @staticmethod
    def _operator(stage: Stage, partition: int) -> Operator:
        made = StageOne if stage is BY_NODE else StageTwo
        return made(partition, PARTITIONS, DetectorParameters())

    async def assigned(self) -> None:
        """A rebalance gives it everything; until all is live."""
        self.engine.on_assigned([0])
        await self.until(lambda: len([s for s in self.engine.seats.values() if s.live]) == 2)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.01)

    @property
    def node(self) -> Seat:
        return self.engine.seats["node", 0]

    @property
    def stage_one(self) -> StageOne:
        assert isinstance(self.node.operator, StageOne)
        return self.node.operator

    def telemetry(self, numbers: Iterable[int], node: str = "n0") -> list[Record]:
        """Scrapes that begin at our own next offset."""
        first, found = self.node.next[TELEMETRY], []
        for offset, number in enumerate(numbers, first):
            at_ms, message = sample(node, number, 50.0)
            key = node_key("c", node)
            found.append(Record(TELEMETRY, 0, offset, at_ms, key, encode(message)))
        return found

    def pods(self, node: str = "n0") -> list[Record]:
        at_ms, message = pods(node, "work")
        offset = self.node.next[PODS]
        return [Record(PODS, 0, offset, at_ms, node_key("c", node), encode(message))]

    async def ended(self) -> None:
        await self.engine.stop()
        await self.outbox.stop()


@pytest.fixture
async def stand(kafka: Broker) -> AsyncIterator[Stand]:
    connection = fresh(kafka, "engine")
    await make_topics(connection, PARTITIONS)
    made = Stand(connection)
    yield made
    await made.ended()


async def test_a_rebalance_that_is_overtaken_leaves_the_newest_alone_live(stand: Stand) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    stand.intake.gates.extend(gates)  # the two stages of the first rebalance wait here
    stand.engine.on_assigned([0])
    await stand.until(lambda: not stand.intake.gates)
    stand.intake.generation += 1
    await stand.assigned()
    newest = dict(stand.engine.seats)
    seeks = len(stand.intake.seeks)
    for gate in gates:
        gate.set()
    await asyncio.sleep(0.2)
    assert stand.engine.seats == newest
    assert len(stand.intake.seeks) == seeks
    stand.engine.take(PODS, 0, stand.pods())
    assert stand.engine.take(TELEMETRY, 0, stand.telemetry(range(3))) is None
    assert stand.node.next[TELEMETRY] == 3


async def test_letting_go_seeks_to_our_own_next_offset(stand: Stand) -> None:
    await stand.assigned()
    places = set(stand.intake.fetched)
    assert len(places) == 3
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(4)))
    for place in places:
        stand.engine.fetching.hold_back(place, "a reason")
        stand.engine.fetching.hold_back(place, "another")
    assert stand.intake.fetched == set()
    stand.intake.seeks.clear()
    for place in places:
        await stand.engine.fetching.let_go(place, "a reason")
    assert stand.intake.fetched == set()
    assert stand.intake.seeks == []
    for place in places:
        await stand.engine.fetching.let_go(place, "another")
    assert stand.intake.fetched == places
    assert {TELEMETRY: 4, PODS: 1}.items() <= {
        topic: offset for seek in stand.intake.seeks for (topic, _), offset in seek.items()
    }.items()


async def test_a_topic_that_was_made_again_is_read_from_its_beginning(stand: Stand) -> None:
    stand.intake.ends = {(TELEMETRY, 0): 40, (PODS, 0): 1}
    await stand.assigned()
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(40)))
    counted = stand.stage_one.counters["gpu_samples"]
    assert counted > 30
    stand.intake.ends = {(TELEMETRY, 0): 7, (PODS, 0): 1}
    await stand.timers.ask()
    assert stand.node.next[TELEMETRY] == 0
    assert {(TELEMETRY, 0): 0} in stand.intake.seeks
    assert stand.engine.totals()["topics_recreated"] == 1
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(40, 47)))
    assert stand.stage_one.counters["gpu_samples"] >= counted + 7  # states are kept


async def test_a_consumer_that_lost_its_place_is_sent_back(stand: Stand) -> None:
    stand.intake.ends = {(TELEMETRY, 0): 10, (PODS, 0): 1}
    await stand.assigned()
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(9)))
    stand.intake.seeks.clear()
    for _ in range(PATIENT_LOOKS):
        await stand.timers.ask()
    assert stand.intake.seeks == []
    await stand.timers.ask()
    assert stand.intake.seeks == [{(TELEMETRY, 0): 9}]
    assert stand.engine.totals()["seeks_back"] == 1


async def test_what_retention_cut_is_counted_at_a_takeover(stand: Stand) -> None:
    stand.intake.ends = {(TELEMETRY, 0): 10, (PODS, 0): 1}
    await stand.assigned()
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(10)))
    await stand.engine.save_all()
    resumed = stand.stage_one.resume_offsets()[TELEMETRY]
    await stand.ended()
    successor = Stand(stand.connection)
    successor.intake.begins = {(TELEMETRY, 0): 25}
    successor.intake.ends = {(TELEMETRY, 0): 30, (PODS, 0): 1}
    await successor.assigned()
    assert successor.node.next[TELEMETRY] == 25
    assert successor.engine.totals()["cut_by_retention"] == 25 - resumed
    await successor.ended()


async def test_an_operator_that_raises_ends_its_key_alone(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stand.assigned()
    add = NodeStream.add

    def raises_once(self: NodeStream, offset: int, *rest: object, **more: object) -> None:
        if offset == 5:
            raise ZeroDivisionError("a fault\nof two lines")
        add(self, offset, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(NodeStream, "add", raises_once)
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(20)))
    assert stand.node.next[TELEMETRY] == 20
    assert stand.engine.totals()["quarantined"] == 1
    assert stand.intake.error is None
    await stand.engine.save_all()
    await stand.ended()
    letters = (await records(stand.connection.bootstrap, stand.connection.topic(DEADLETTER), 1))[0]
    (headers,) = [dict(letter.headers) for letter in letters]
    assert headers["reason"].startswith(b"operator raised ZeroDivisionError: a fault")
    assert headers["offset"] == b"5"


async def test_many_keys_that_raise_stop_the_worker(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stand.assigned()

    def raises(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(NodeStream, "add", raises)
    for number in range(12):
        stand.engine.take(TELEMETRY, 0, stand.telemetry([number], node=f"n{number}"))
    assert isinstance(stand.intake.error, TooManyFaultsError)


async def test_a_state_of_a_later_release_stops_the_worker_and_stays(stand: Stand) -> None:
    states = stand.states["node"]
    await states.claim(0)
    future = {PARTITION_KEY: (9, b'{"version":9,"marked_ms":1}')}
    await states.save(Saving("node", 0, PARTITIONS, {TELEMETRY: 0}), future)
    await states.release(0)
    stand.engine.on_assigned([0])
    await stand.until(lambda: stand.intake.error is not None)
    assert isinstance(stand.intake.error, NewerStateError)
    await stand.ended()
    assert (await states.load([0]))[0].states == {PARTITION_KEY: future[PARTITION_KEY][1]}


async def test_a_worker_that_was_fenced_takes_the_partition_again_if_it_is_still_its_own(
    stand: Stand,
) -> None:
    await stand.assigned()
    stand.engine.take(PODS, 0, stand.pods())
    stand.engine.take(TELEMETRY, 0, stand.telemetry(range(10)))
    before = stand.engine.totals()
    other = Stand(stand.connection)
    await other.assigned()
    await stand.engine.save_all()
    assert stand.engine.totals()["fenced"] >= 1
    assert ("node", 0) not in stand.engine.seats
    await stand.until(lambda: stand.engine.is_live(BY_NODE, 0))
    assert stand.node.next[TELEMETRY] == 0  # nothing of what it had taken was saved
    after = stand.engine.totals()
    assert all(after[name] >= count for name, count in before.items())
    await other.ended()


async def test_the_largest_message_of_garbage_is_a_dead_letter(stand: Stand) -> None:
    await stand.assigned()
    garbage = b"\xff" * (8 * 2**20)
    record = Record(TELEMETRY, 0, 0, 1_790_000_000_000, b"c/n0", garbage)
    stand.engine.take(TELEMETRY, 0, [record])
    await stand.engine.save_all()
    await stand.ended()
    topic = stand.connection.topic(DEADLETTER)
    (letter,) = (await records(stand.connection.bootstrap, topic, 1))[0]
    assert letter.value == garbage[:MAX_ORIGINAL_BYTES]
    assert dict(letter.headers)["truncated"] == b"true"
    assert stand.engine.totals()["dead_letters"] == 1

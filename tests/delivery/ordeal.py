"""A run through a schedule of faults, and what has to be true after it."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from schemas.topics import ALERTS, STATE_PREFIX
from streams.engine import clients
from streams.engine.state_topic import StateTopic
from tests.delivery.cluster import PROGRESS, Agent, WorkerProcess, agent
from tests.delivery.reference import (
    PARTITIONS,
    Reference,
    Said,
    States,
    comparable,
    deduplicated,
    in_process,
)
from tests.delivery.schedule import Fault
from tests.delivery.takeovers import in_words, takeover
from tests.kafka_topics import records
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

K = TypeVar("K")
Action = Callable[[], object]

SESSION_SECONDS = 6.0
"""The shortest that Kafka's defaults allow."""
CHECKPOINT_SECONDS = 2.0
LOOK_SECONDS = 0.1
SETTLE_SECONDS = 90.0
WORKERS = 2
QUICK = {"broker.session.timeout.ms": "3000"}
"""A killed broker that comes back is taken for dead sooner than after 9 s, and let in again."""


@dataclass
class Outcome:
    """What came out, beside what should have."""

    reference: Reference
    alerts: Said
    states: States
    events: int = 0
    """On the topic, repetitions included."""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from each kill until every partition of the killed one was live again."""
    stops: list[float] = field(default_factory=list)
    """Seconds that each worker took for a clean stop."""

    def differences(self) -> list[str]:
        """In words; empty if alerts and states are the same."""
        return [
            *_compared("alert", self.reference.alerts, self.alerts),
            *_compared("state", self.reference.states, self.states),
        ]

    def __str__(self) -> str:
        wanted = sum(map(len, self.reference.alerts.values()))
        lines = [
            f"alert events: {self.events} on the topic, {wanted} without repeated revisions wanted",
            f"states compared: {len(self.reference.states)}",
            f"takeovers: {in_words(self.takeovers)}",
            f"clean stops: {in_words(self.stops)}",
        ]
        return "\n".join([*lines, *(self.differences() or ["no difference"])])


class Ordeal:
    """Broker, workers and agent, and the faults that happen to them."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._say = say
        self._began = 0.0
        self._killed: list[tuple[float, int]] = []

    def run(self, faults: list[Fault], *, seed: int, seconds: float, speed: float) -> Outcome:
        """Everything from the first topic to the comparison."""
        with Broker(self._folder / "kafka", overrides=QUICK, progress=self._say) as broker:
            asyncio.run(self._topics(broker.bootstrap))
            self.workers = [self._worker(number, broker.bootstrap) for number in range(WORKERS)]
            reference = in_process(seed, seconds)
            with self._started(broker, seed, seconds, speed) as publishing:
                self._live_through(faults, broker, publishing)
                self._wait("the agent's end", lambda: not publishing.running())
                assert publishing.delivered(), publishing.log.read_text()[-2000:]
                self._wait("the workers", lambda: self._is_settled(reference))
                stops = [worker.stop() for worker in self.workers]
            outcome = asyncio.run(self._outcome(broker.bootstrap, reference))
            outcome.stops = stops
            outcome.takeovers = [takeover(self.workers, at, number) for at, number in self._killed]
            return outcome

    @contextmanager
    def _started(self, broker: Broker, seed: int, seconds: float, speed: float) -> Iterator[Agent]:
        for worker in self.workers:
            worker.start()
        publishing = agent(broker.bootstrap, self._folder, seed=seed, seconds=seconds, speed=speed)
        self._began = time.monotonic()
        try:
            yield publishing
        finally:
            publishing.kill()
            for worker in self.workers:
                worker.kill()

    def _worker(self, number: int, bootstrap: str) -> WorkerProcess:
        return WorkerProcess(
            number, bootstrap, self._folder, "--session", f"{SESSION_SECONDS}s",
            "--checkpoint", f"{CHECKPOINT_SECONDS}s",
        )  # fmt: skip

    # Faults

    def _live_through(self, faults: list[Fault], broker: Broker, publishing: Agent) -> None:
        """Begin and end each fault at its time; a list of what is still to be done."""
        todo: list[tuple[float, str, Action]] = []
        for fault in faults:
            begin, end = self._actions(fault, broker)
            name = f"{fault.kind} {'' if fault.kind == 'outage' else fault.worker}".strip()
            todo.append((fault.at_seconds, name, begin))
            todo.append((fault.at_seconds + fault.lasts_seconds, f"end of {name}", end))
        for at, name, act in sorted(todo, key=lambda one: one[0]):
            while time.monotonic() - self._began < at:
                self._see_that_all_live()
                time.sleep(LOOK_SECONDS)
            self._say(f"{at:6.1f} s  {name}{'' if publishing.running() else '  (agent has ended)'}")
            act()

    def _actions(self, fault: Fault, broker: Broker) -> tuple[Action, Action]:
        if fault.kind == "outage":
            (node,) = broker.nodes
            return partial(broker.kill, node), partial(broker.start_node, node)
        worker = self.workers[fault.worker]
        if fault.kind == "freeze":
            return partial(worker.signal, signal.SIGSTOP), partial(worker.signal, signal.SIGCONT)
        return partial(self._kill, worker), worker.start

    def _kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._killed.append((time.time(), worker.number))

    def _see_that_all_live(self) -> None:
        for worker in self.workers:
            code = worker.ended()
            assert code in {None, -signal.SIGKILL}, worker.log.read_text()[-3000:]

    # Afterwards

    def _wait(self, what: str, true: Callable[[], bool]) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while not true():
            assert time.monotonic() < end, f"waited in vain for {what}"
            self._see_that_all_live()
            time.sleep(LOOK_SECONDS)

    def _is_settled(self, reference: Reference) -> bool:
        found: dict[tuple[str, int], int] = {}
        for worker in self.workers:
            for (name, stage, partition), value in worker.metrics().items():
                if name == PROGRESS:
                    found[stage, int(partition)] = round(value * 1000)
        return found == reference.progress_ms

    async def _topics(self, bootstrap: str) -> None:
        async with KafkaAdmin(Connection(bootstrap=bootstrap)) as admin:
            await admin.create(wanted_layouts("", PARTITIONS, 1))

    async def _outcome(self, bootstrap: str, reference: Reference) -> Outcome:
        said: Said = {}
        for held in (await records(bootstrap, ALERTS, PARTITIONS)).values():
            for record in held:
                said.setdefault(record.key, []).append(record.value)
        alerts = {key: deduplicated(values) for key, values in said.items()}
        events = sum(map(len, said.values()))
        return Outcome(reference, alerts, await self._states(bootstrap), events)

    async def _states(self, bootstrap: str) -> States:
        connection = Connection(bootstrap=bootstrap)
        states: States = {}
        for stage in ("node", "workload"):
            topic = StateTopic(
                STATE_PREFIX + stage,
                PARTITIONS,
                make_producer=partial(clients.state_producer, connection, stage),
                make_consumer=partial(clients.state_consumer, connection),
            )
            for partition, loaded in (await topic.load(range(PARTITIONS))).items():
                for key, value in loaded.states.items():
                    states[stage, partition, key] = comparable(key, value)
        return states


def _compared(what: str, wanted: Mapping[K, object], found: Mapping[K, object]) -> list[str]:
    return [
        *(f"{what} {key!r} is missing" for key in wanted.keys() - found.keys()),
        *(f"{what} {key!r} should not be there" for key in found.keys() - wanted.keys()),
        *(
            f"{what} {key!r} is\n  {found[key]!r:.600}\nand should be\n  {wanted[key]!r:.600}"
            for key in wanted.keys() & found.keys()
            if wanted[key] != found[key]
        ),
    ]

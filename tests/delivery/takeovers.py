"""How long it takes until somebody else takes the records of a worker that was killed."""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from producers.simulated import SimulatedCluster
from schemas.parameters import DetectorParameters
from schemas.topics import STATE_PREFIX, TELEMETRY, node_key, partition_of
from streams.engine import clients
from streams.engine.state_topic import Saving, StateTopic
from streams.node import NodeState
from streams.runner import InProcess
from streams.stage_one import PARTITION_KEY
from tests.delivery.cluster import TookOver, WorkerProcess
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

PARTITIONS = 4
SESSION_SECONDS = 6.0
MEGABYTE = 10**6
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.2
LIVE = "gpuvigil_worker_live_partitions"
"""The metric that says for each stage how many partitions are taken."""


def takeover(workers: Iterable[WorkerProcess], killed_at: float, number: int) -> float:
    """Seconds until the last partition of a worker that was killed was live again.

    `killed_at` is in seconds since the epoch; `number` is the killed one's.
    """
    said = [one for worker in workers for one in worker.took_over()]
    waits = [
        min(
            one.at
            for one in said
            if one.at > killed_at and one.stage == stage and partition in one.partitions
        )
        - killed_at
        for stage, partition in _held(said, killed_at, number)
    ]
    return max(waits, default=0.0)


def in_words(seconds: Sequence[float]) -> str:
    """How many, their median and the longest."""
    if not seconds:
        return "none"
    return f"{len(seconds)}, median {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s"


def measured(folder: Path, megabytes: float, times: int) -> list[float]:
    """Kill one of two workers again and again over states of such a size."""
    with Broker(folder / "kafka", progress=_say) as broker:
        asyncio.run(_fill(Connection(bootstrap=broker.bootstrap), megabytes))
        workers = [
            WorkerProcess(n, broker.bootstrap, folder, "--session", f"{SESSION_SECONDS}s")
            for n in range(2)
        ]
        try:
            for worker in workers:
                worker.start()
            return [_once(workers, turn % 2) for turn in range(times)]
        finally:
            for worker in workers:
                worker.kill()


def _once(workers: list[WorkerProcess], number: int) -> float:
    """Wait until both have their share, kill one, wait for the other, start the killed one."""
    share = PARTITIONS // len(workers)
    _until(lambda: all(_live(worker) == share for worker in workers))
    at = time.time()
    workers[number].kill()
    _until(lambda: _live(workers[1 - number]) == PARTITIONS)
    took = takeover(workers, at, number)
    _say(f"takeover {took:.1f} s")
    workers[number].start()
    return took


def _live(worker: WorkerProcess) -> float:
    found = worker.metrics()
    return min(found.get((LIVE, stage, ""), 0.0) for stage in ("node", "workload"))


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(LOOK_SECONDS)


async def _fill(connection: Connection, megabytes: float) -> None:
    """Checkpoints of so many nodes that they have this size, as a worker writes them."""
    async with KafkaAdmin(connection) as admin:
        await admin.create(wanted_layouts("", PARTITIONS, 1))
    topic = StateTopic(
        STATE_PREFIX + "node",
        PARTITIONS,
        make_producer=partial(clients.state_producer, connection, "node"),
        make_consumer=partial(clients.state_consumer, connection),
    )
    for partition, states in enumerate(_states(megabytes * MEGABYTE)):
        if states:
            await topic.claim(partition)
            saving = Saving("node", partition, PARTITIONS, {TELEMETRY: 0})
            versions = {key: (NodeState.VERSION, value) for key, value in states.items()}
            await topic.save(saving, versions)
            await topic.release(partition)


def _states(size: float) -> list[dict[bytes, bytes]]:
    """By partition: states of real nodes, under more and more names."""
    runner = InProcess(DetectorParameters(), partitions=PARTITIONS)
    runner._take_all(SimulatedCluster(duration_seconds=120).messages())
    runner._step()
    models = [
        msgspec.json.decode(value)
        for one in runner._one
        for key, value in one.dump().items()
        if key != PARTITION_KEY and value is not None
    ]
    states: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
    held = number = 0
    while held < size:
        model = {**models[number % len(models)], "cluster": f"cluster-{number // len(models)}"}
        key = node_key(model["cluster"], model["node"])
        value = msgspec.json.encode(model)
        states[partition_of(key, PARTITIONS)][key] = value
        held += len(value)
        number += 1
    return states


def _held(said: list[TookOver], at: float, worker: int) -> set[tuple[str, int]]:
    """What a worker had taken over when it was killed, as it said last."""
    held: dict[str, frozenset[int]] = {}
    for one in sorted(said):
        if one.at < at and one.worker == worker:
            held[one.stage] = one.partitions
    return {(stage, partition) for stage, parts in held.items() for partition in parts}


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def main() -> None:
    """Print median and maximum with no state and with much."""
    parser = argparse.ArgumentParser(description="Measure takeovers of a killed worker.")
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.0, 50.0])
    given = parser.parse_args()
    for megabytes in given.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            took = measured(Path(folder), megabytes, given.times)
        sys.stdout.write(
            f"{megabytes:g} MB of state, sessions of {SESSION_SECONDS:g} s: {in_words(took)}\n"
        )


if __name__ == "__main__":
    main()

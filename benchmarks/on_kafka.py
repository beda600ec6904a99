"""What a worker on Kafka costs, as a ratio to consuming and decoding the same messages bare.

A real broker on one core; on the other, in turn and each in a process of its own: a bare aiokafka
consumer that decodes, and a whole worker under Faust with checkpoints, windows, detectors, outputs
and a clean stop.  Each message is a batch of its own, as agents send them.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from producers.simulated import SimulatedCluster
from schemas.codec import Decoder, encode
from schemas.parameters import DetectorParameters
from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry
from schemas.topics import PODS, TELEMETRY, node_key, partition_of
from streams.engine.app import Worker, WorkerOptions, collect_rarely
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_admin import KafkaAdmin
from transport.kafka_closing import closed
from transport.layout import wanted_layouts

REPETITIONS = 3
PARTITIONS = 4
CLUSTERS = 125
"""Of 8 nodes with 64 GPUs each."""
SCRAPES = 90
"""Of each node, a second apart: nine windows, so that the start and the stop weigh little."""
CHECKPOINT_SECONDS = 1.25
"""A worker with as many GPUs as it can take saves after ten scrapes of each; so does this one."""
LAST_SCRAPES = (105, 120)
"""Two more, so late that no scrape before them waits for a later one: all of those are counted."""
LONE_MESSAGE_BYTES = 1024
"""Below one message: none shares its batch."""

WANTED_PER_SECOND = 100_000
WANTED_RATIO = 4.0


class Taken(TypedDict):
    """What a contender took."""

    cpu_seconds: float
    wall_seconds: float
    """From the first record to the last."""
    samples: int
    checkpoints: int


def main() -> int:
    """Print GPU-samples/s, microseconds of CPU a GPU-sample and the ratio; 1 below the target."""
    parser = argparse.ArgumentParser(description="Measure a worker on Kafka.")
    parser.add_argument("--contender", choices=("bare", "worker"), help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--prefix", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()

    if given.contender:
        connection = Connection(bootstrap=given.bootstrap, prefix=given.prefix)
        contender = bare if given.contender == "bare" else worker
        print(json.dumps(asyncio.run(contender(connection, given.samples))))
        return 0
    return compare()


def compare() -> int:
    """Run the contenders in turn."""
    ours, brokers = _cores()
    _pin(brokers)
    taken: dict[str, list[Taken]] = {"bare": [], "worker": []}
    messages = samples = 0
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), progress=_say) as broker:
        for repetition in range(REPETITIONS):
            connection = Connection(bootstrap=broker.bootstrap, prefix=f"bench-{repetition}.")
            _say(f"repetition {repetition + 1}/{REPETITIONS}: publishing")
            messages, samples = asyncio.run(publish(connection))
            for name, results in taken.items():
                _say(f"repetition {repetition + 1}/{REPETITIONS}: {name}")
                results.append(_apart(name, connection, samples, ours))
    print(f"{messages:,} messages, {samples:,} GPU-samples of {64 * CLUSTERS:,} GPUs")
    return report(taken)


def report(taken: dict[str, list[Taken]]) -> int:
    """Medians, and whether they reach the target."""
    cpu = {n: statistics.median(t["cpu_seconds"] for t in each) for n, each in taken.items()}
    wall = {n: statistics.median(t["wall_seconds"] for t in each) for n, each in taken.items()}
    for name, each in taken.items():
        samples = each[0]["samples"]
        print(
            f"{name:8} {samples / wall[name]:10,.0f} GPU-samples/s on one core "
            f"{cpu[name] / samples * 1e6:7.2f} us CPU a GPU-sample "
            f"{cpu[name] / cpu['bare']:6.2f} x bare   {each[0]['checkpoints']} checkpoints"
        )
    rate = taken["worker"][0]["samples"] / wall["worker"]
    ratio = cpu["worker"] / cpu["bare"]
    good = rate >= WANTED_PER_SECOND and ratio <= WANTED_RATIO
    print(
        f"target: {WANTED_PER_SECOND:,} GPU-samples/s and at most {WANTED_RATIO:g} x bare: "
        f"{'reached' if good else 'MISSED'}"
    )
    return 0 if good else 1


async def publish(connection: Connection) -> tuple[int, int]:
    """Make the topics and fill them.  Returns how many messages and GPU-samples there are."""
    async with KafkaAdmin(connection) as admin:
        await admin.create(wanted_layouts(connection.prefix, PARTITIONS, 1))
    producer = AIOKafkaProducer(
        **connection.client_options(), compression_type="lz4", max_batch_size=LONE_MESSAGE_BYTES
    )
    await producer.start()
    count = samples = 0
    for message, counts in clusters():
        count += 1
        samples += counts
        key = node_key(message.cluster, message.node)
        topic = connection.topic(TELEMETRY if message.type == "node_telemetry" else PODS)
        await producer.send(
            topic, encode(message), key=key, partition=partition_of(key, PARTITIONS)
        )
    await producer.stop()
    return count, samples


def clusters() -> Iterator[tuple[NodeTelemetry | PodEvent, int]]:
    """The simulated cluster many times, under as many names, in the order of time.

    With each message the number of its GPU-samples that a worker is sure to count.
    """
    cluster = SimulatedCluster(
        start_ms=0, duration_seconds=LAST_SCRAPES[-1] + 1, interval_seconds=1.0
    )
    for message in cluster.messages():
        second = message.observed_at_ms // 1000
        if second >= SCRAPES and second not in LAST_SCRAPES:
            continue
        counts = len(message.devices) if message.type == "node_telemetry" else 0
        for number in range(CLUSTERS):
            renamed = msgspec.structs.replace(message, cluster=f"cluster-{number}")  # type: ignore[type-var]
            yield renamed, counts if second < SCRAPES else 0


async def bare(connection: Connection, samples: int) -> Taken:
    """Consume and decode, nothing else."""
    began = time.process_time()
    telemetry = {connection.topic(TELEMETRY): Decoder(NodeTelemetry, TELEMETRY)}
    pods = {connection.topic(PODS): Decoder(PodEvent, PODS)}
    consumer = AIOKafkaConsumer(**connection.client_options(), auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(t, p) for t in (*telemetry, *pods) for p in range(PARTITIONS)])
    first = 0.0
    ends = await consumer.end_offsets(consumer.assignment())
    while any([await consumer.position(place) < end for place, end in ends.items()]):
        for place, records in (await consumer.getmany(timeout_ms=500)).items():
            first = first or time.monotonic()
            decoder = telemetry.get(place.topic)
            for record in records:
                if decoder is not None:
                    decoder.decode(record.value, partition=place.partition, offset=record.offset)
                else:
                    pods[place.topic].decode(
                        record.value, partition=place.partition, offset=record.offset
                    )
    wall = time.monotonic() - first
    await closed(consumer)
    return {
        "cpu_seconds": time.process_time() - began,
        "wall_seconds": wall,
        "samples": samples,
        "checkpoints": 0,
    }


async def worker(connection: Connection, samples: int) -> Taken:
    """A whole worker, from its start to its clean stop."""
    began = time.process_time()
    collect_rarely()
    one = Worker(
        WorkerOptions(
            connection, PARTITIONS, DetectorParameters(), checkpoint_seconds=CHECKPOINT_SECONDS
        )
    )
    stop = asyncio.Event()
    running = asyncio.create_task(one.run(stop))
    first = 0.0
    while one.engine.totals()["gpu_samples"] < samples:
        if running.done():
            await running
            sys.exit("the worker ended before its work")
        if not first and one.engine.totals()["records"]:
            first = time.monotonic()
        await asyncio.sleep(0.02)
    wall = time.monotonic() - first
    stop.set()
    await running
    return {
        "cpu_seconds": time.process_time() - began,
        "wall_seconds": wall,
        "samples": samples,
        "checkpoints": one.engine.totals()["saves"],
    }


def _apart(name: str, connection: Connection, samples: int, cores: set[int]) -> Taken:
    """A contender in a process of its own, on its own core."""
    ran = subprocess.run(  # noqa: S603 - this module
        [
            sys.executable, "-m", "benchmarks.on_kafka", "--contender", name,
            "--bootstrap", connection.bootstrap, "--prefix", connection.prefix,
            "--samples", str(samples),
        ],
        check=True,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: _pin(cores),
    )  # fmt: skip
    taken: Taken = json.loads(ran.stdout)
    return taken


def _cores() -> tuple[set[int], set[int]]:
    """One core for the contender, the others for the broker."""
    all_ = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (set(all_[:1]), set(all_[1:])) if all_[1:] else (set(), set())


def _pin(cores: set[int]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

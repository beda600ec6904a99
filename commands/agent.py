"""`agent`: the producer of a node, for now of a simulated cluster."""

import asyncio
import logging
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from commands.errors import UsageError
from commands.settings import (
    Bootstrap,
    Cluster,
    Config,
    Settings,
    load_settings,
    moment_ms,
)
from commands.settings import (
    duration as seconds_of,
)
from producers.buffer import DEFAULT_BYTES, Buffer
from producers.pacing import Stop, paced
from producers.simulated import SimulatedCluster
from schemas.topics import PODS, TELEMETRY
from transport.contract import TransportError, UnreachableError

if TYPE_CHECKING:
    from producers.agent import Agent
    from producers.publisher import Publisher
    from producers.source_topics import SourceTopics

PROGRESS_SECONDS = 2.0
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is simulated."""

    seed: int
    speed: float
    duration_seconds: float
    start_ms: int | None
    """None: now, or just after what the topic already holds."""
    buffer_bytes: int


def agent(
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Be the agents of a cluster that does not exist.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another seed, other noise.")] = 0,
    speed: Annotated[float, typer.Option(min=0, help="Times real time; 0: unbounded.")] = 1,
    duration: Annotated[str, typer.Option(help="Simulated time, such as 2h30m.")] = "2h30m",
    start: Annotated[
        str | None,
        typer.Option(help="First event time: RFC 3339 or epoch seconds; now, if not given."),
    ] = None,
    buffer_bytes: Annotated[
        int, typer.Option(min=MIB, help="Memory for messages that Kafka has not taken yet.")
    ] = DEFAULT_BYTES,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Publish telemetry and pod events to Kafka.

    Without --start a second run begins just after what the topic already holds.  Exit code 1 means
    that Kafka was not reached, or that messages were not delivered.
    """
    settings = load_settings(config, [], cluster, bootstrap)
    if not simulated:
        raise UsageError(
            "the devices of this node come with a later release; give --simulated for a cluster "
            "that does not exist"
        )
    start_ms = None if start is None else moment_ms("--start", start)
    length = seconds_of("--duration", duration)
    plan = Simulation(seed, speed, length, start_ms, buffer_bytes)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # we tell it in our own words
    try:
        delivered = asyncio.run(_publish(settings, plan))
    except UnreachableError as error:
        _say(str(error))
        raise typer.Exit(1) from error
    except TransportError as error:
        raise UsageError(str(error)) from error
    if not delivered:
        raise typer.Exit(1)


async def _publish(settings: Settings, plan: Simulation) -> bool:
    """Run the agent.  Returns whether everything was delivered."""
    from producers.agent import Agent, with_boot
    from producers.kafka_client import kafka_producer
    from producers.publisher import Publisher

    kafka = settings.kafka
    options = kafka.client_options()
    topics, start_ms = await _beginning(settings, plan.start_ms)
    source = SimulatedCluster(
        plan.seed,
        cluster=settings.cluster,
        start_ms=start_ms,
        duration_seconds=plan.duration_seconds,
    )
    stop, buffer = Stop(), Buffer(plan.buffer_bytes)
    publisher = Publisher(buffer, lambda: kafka_producer(options), _say)
    messages = paced(with_boot(source.messages(), str(start_ms)), plan.speed, sleep=stop.sleep)
    running = Agent(messages, publisher, topics, stop, patient=plan.speed == 0)
    _listen(stop)
    telling = asyncio.create_task(_tell(running, publisher, buffer))
    began = time.monotonic()
    try:
        undelivered = await running.run()
    finally:
        telling.cancel()
    return _summary(publisher, buffer, undelivered, time.monotonic() - began)


async def _beginning(settings: Settings, start_ms: int | None) -> "tuple[SourceTopics, int]":
    """The source topics, and the first event time."""
    from commands.contact import contacted
    from producers.source_topics import newest_observed_ms, source_topics

    kafka = settings.kafka
    options = kafka.client_options()

    async def ask() -> "tuple[SourceTopics, int | None]":
        found = await source_topics(options, kafka.topic(TELEMETRY), kafka.topic(PODS))
        return found, await newest_observed_ms(options, found)

    topics, newest_ms = await contacted(ask, options, _say)
    if start_ms is None:
        start_ms = max(time.time_ns() // 1_000_000, 0 if newest_ms is None else newest_ms + 1)
    return topics, start_ms


def _listen(stop: Stop) -> None:
    """The first signal asks for an end, the next one ends the process."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def asked() -> None:
        stop.asked = True
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, asked)


async def _tell(running: "Agent", publisher: "Publisher", buffer: Buffer) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        at = running.event_time_ms
        shown = "none yet" if at is None else f"{datetime.fromtimestamp(at / 1000, tz=UTC):%F %T}Z"
        _say(
            f"sent {publisher.counters['sent']:,}  waiting {len(buffer):,} "
            f"({buffer.size_bytes / MIB:.1f} MiB)  dropped {buffer.dropped:,}  event time {shown}"
        )


def _summary(publisher: "Publisher", buffer: Buffer, undelivered: int, took: float) -> bool:
    sent, refused = publisher.counters["sent"], publisher.counters["too_large"]
    _say(f"sent {sent:,} messages in {took:.1f} s ({sent / max(took, 0.001):,.0f}/s)")
    if undelivered:
        _say(f"{undelivered:,} messages were not delivered: Kafka did not take them in time")
    if buffer.dropped or refused:
        _say(f"lost: {buffer.dropped:,} had no room in the buffer, {refused:,} were too large")
    return not (undelivered or buffer.dropped or refused)


def _say(line: str) -> None:
    typer.echo(line, err=True)

"""`worker`: takes its share of the partitions, decides, and says what follows."""

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commands.errors import UsageError
from commands.logs import Format, Level, log_to_stderr
from commands.settings import Bootstrap, Config, Set, Settings, load_settings
from commands.settings import duration as seconds_of
from transport.contract import TransportError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from streams.engine.app import Worker, WorkerOptions
    from transport.layout import TopicLayout

log = logging.getLogger("gpuvigil.worker")

PROGRESS_SECONDS = 10.0
NO_WEB = 0


def worker(
    session: Annotated[
        str,
        typer.Option(help="A worker that says nothing for so long loses its partitions."),
    ] = "10s",
    checkpoint: Annotated[
        str, typer.Option(help="How often the states are saved; more often, a shorter takeover.")
    ] = "10s",
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Kafka's group.instance.id, such as the name of a StatefulSet's pod: one that "
            "comes back within the session keeps its partitions, and one that stops does not "
            "hand them over before.",
        ),
    ] = None,
    web_host: Annotated[
        str, typer.Option(help="Where /metrics, /readyz and /livez are served.")
    ] = "127.0.0.1",
    web_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Their port; 0 serves nothing.")
    ] = 9464,
    bootstrap: Bootstrap = None,
    overrides: Set = None,
    config: Config = None,
    log_format: Format = "text",
    log_level: Level = "info",
) -> None:
    """Judge what the agents publish, and publish alerts.

    Run as many as there are cores to spare, up to the number of partitions; they share the
    partitions, and when one ends the others take over from its last checkpoint. Ctrl-C or SIGTERM
    saves and hands over. Exit code 2: something has to be put right first; 1: Kafka was not
    reached.
    """
    settings = load_settings(config, overrides or [], None, bootstrap)
    session_seconds = seconds_of("--session", session)
    checkpoint_seconds = seconds_of("--checkpoint", checkpoint)
    log_to_stderr(log_format, log_level)
    try:
        asyncio.run(
            _work(settings, session_seconds, checkpoint_seconds, instance_id, (web_host, web_port))
        )
    except UnreachableError as error:
        typer.echo(f"gpuvigil: {error}", err=True)
        raise typer.Exit(1) from error
    except TransportError as error:
        raise UsageError(str(error)) from error


async def _work(
    settings: Settings,
    session_seconds: float,
    checkpoint_seconds: float,
    instance_id: str | None,
    web: tuple[str, int],
) -> None:
    from streams.engine.app import Worker, WorkerOptions, collect_rarely

    collect_rarely()
    stop = _asked_to_stop()
    partitions = await _until(stop, _preflight(settings))
    if partitions is None:
        return
    options = WorkerOptions(
        settings.kafka,
        partitions,
        settings.parameters,
        session_seconds=session_seconds,
        checkpoint_seconds=checkpoint_seconds,
        instance_id=instance_id,
    )
    await _served(Worker(options), options, web, stop)


async def _served(
    worker: "Worker", options: "WorkerOptions", web: tuple[str, int], stop: asyncio.Event
) -> None:
    """Run a worker with its web server until it is asked to stop."""
    from aiokafka.errors import KafkaError

    from streams.engine.faults import OURS, told
    from streams.engine.metrics import registry
    from streams.engine.web import WebError, WebServer

    host, port = web
    server = WebServer(worker.engine, worker.intake, registry(worker.engine), host=host, port=port)
    if port != NO_WEB:
        try:
            await server.start()
        except WebError as error:
            raise UsageError(str(error)) from error
        log.info("metrics on http://%s:%d/metrics", host, server.port)
    telling = asyncio.create_task(_tell(worker))
    try:
        await worker.run(stop)
    except OURS as error:
        raise UsageError(str(error)) from error
    except KafkaError as error:
        raise await told(error, options.connection, options.session_seconds) from error
    finally:
        telling.cancel()
        await server.stop()
    log.info("stopped")


async def _preflight(settings: Settings) -> int:
    """The number of partitions, once Kafka answers and its topics are as they have to be."""
    from commands.contact import contacted
    from transport.kafka_admin import KafkaAdmin
    from transport.layout import differences, partitions_found, wanted_layouts

    kafka = settings.kafka

    async def ask() -> "Mapping[str, TopicLayout]":
        async with KafkaAdmin(kafka) as admin:
            return await admin.layouts(one.name for one in wanted_layouts(kafka.prefix))

    found = await contacted(ask, kafka.client_options(), lambda line: log.warning("%s", line))
    partitions = partitions_found(kafka.prefix, found)
    different = differences(wanted_layouts(kafka.prefix, partitions), found)
    wrong = [one for one in different if one.breaks]
    for one in different:
        if not one.breaks:
            log.warning("%s", one)
    if wrong:
        others = f" ({len(wrong) - 1} more: `gpuvigil topics check`)" if wrong[1:] else ""
        raise UsageError(f"{wrong[0]}{others}")
    return partitions


async def _until(stop: asyncio.Event, work: "Coroutine[Any, Any, int]") -> int | None:
    """What the work gives, or None when a stop was asked for first."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if working.done():
        return await working
    working.cancel()
    return None


def _asked_to_stop() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; the next one ends the process."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def asked() -> None:
        stop.set()
        log.info("stopping: saving states and handing over")
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, asked)
    return stop


async def _tell(worker: "Worker") -> None:
    """A line now and then, so that a quiet worker is not taken for a hanging one."""
    engine, samples, at = worker.engine, 0, time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        taken, now = engine.totals()["gpu_samples"], time.monotonic()
        rate, samples, at = (taken - samples) / (now - at), taken, now
        lags = [engine.lag(place) for seat in engine.seats.values() for place in seat.places]
        log.info(
            "%.0f GPU-samples/s, %d records behind, %d of %d assigned partitions live",
            rate,
            sum(lag or 0 for lag in lags),
            len({seat.partition for seat in engine.seats.values() if seat.live}),
            len(engine.assigned),
        )

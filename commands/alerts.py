"""`alerts`: what the alert topic says, for people and for pipes."""

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from commands.errors import UsageError
from commands.settings import Bootstrap, Config, Settings, load_settings, moment_ms
from schemas.topics import ALERTS
from sinks.jsonlines import AlertLines
from sinks.words import alert_words
from transport.contract import TransportError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka import AIOKafkaConsumer

    from schemas.alerts import AlertEvent
    from sinks.tail import AlertTail, Start

app = typer.Typer(no_args_is_help=True, help="Read the alerts that the workers have sent.")


@app.command()
def tail(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each new event as one JSON line.")
    ] = False,
    begin: Annotated[
        str, typer.Option("--from", help="beginning, end, or the broker's time as RFC 3339.")
    ] = "end",
    once: Annotated[bool, typer.Option(help="Stop where the topic ends now.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Follow the alerts: each new revision once, until Ctrl-C.

    An alert that nobody repeated within its validity is printed as resolved with the reason
    `stale`; the topic does not hold this event, so its revision is that of the last one.
    """
    settings = load_settings(config, [], None, bootstrap)
    start = _start(begin)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # we tell it in our own words
    try:
        asyncio.run(_tail(settings, start, as_json=as_json, once=once))
    except UnreachableError as error:
        _say(str(error))
        raise typer.Exit(1) from error
    except TransportError as error:
        raise UsageError(str(error)) from error


def _start(text: str) -> "Start":
    if text == "beginning":
        return "beginning"
    return "end" if text == "end" else moment_ms("--from", text)


async def _tail(settings: Settings, start: "Start", *, as_json: bool, once: bool) -> None:
    from commands.contact import contacted
    from sinks.tail import AlertTail, alert_consumer
    from transport.cancelling import whole
    from transport.kafka_closing import closed

    kafka = settings.kafka
    options = kafka.client_options()

    consumers: list[AIOKafkaConsumer] = []

    async def opened() -> "AlertTail":
        consumer = alert_consumer(options)
        consumers.append(consumer)
        await whole(consumer.start())
        following = AlertTail(consumer, kafka.topic(ALERTS), _printer(as_json=as_json), _say)
        await following.open(start)
        return following

    try:
        following = await contacted(opened, options, _say)
        await following.run(_asked_to_stop(), once=once)
    finally:
        for consumer in consumers:
            await closed(consumer)
    still_open = len(following.reader.open_alerts)
    _say(f"{still_open} alerts are open; {following.unreadable} records unreadable")


def _printer(*, as_json: bool) -> "Callable[[AlertEvent], None]":
    if as_json:
        return AlertLines(sys.stdout).write
    return lambda event: typer.echo(alert_words(event))


def _asked_to_stop() -> asyncio.Event:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _say(line: str) -> None:
    typer.echo(line, err=True)

"""`gpuvigil broker`: a real Apache Kafka for development, in the foreground."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from commands.errors import UsageError

if TYPE_CHECKING:
    from transport.broker import Broker

WATCH_SECONDS = 0.5


def broker(
    port: Annotated[
        int,
        typer.Option(
            min=1024, max=65000, help="The first node's port; the next nodes take the next."
        ),
    ] = 9092,
    data: Annotated[
        Path,
        typer.Option(
            help="The folder of records and logs; a later start goes on with what it holds."
        ),
    ] = Path("kafka-data"),
    nodes: Annotated[
        int,
        typer.Option(min=1, max=9, help="How many nodes; a folder keeps the number it began with."),
    ] = 1,
    heap: Annotated[int, typer.Option(min=64, help="Java's heap of each node, in MiB.")] = 256,
) -> None:
    """Run a real Apache Kafka on this machine for development, with no Docker and no Java.

    It listens on localhost only, without encryption, and creates no topic unasked. The first start
    fetches Kafka (45 MB), later ones need no network. Ctrl-C stops it and keeps its records.
    """
    from transport.broker import Broker
    from transport.broker_jars import BrokerError

    try:
        with (
            _interruptible(),
            Broker(data, nodes=nodes, port=port, heap_mb=heap, progress=_progress) as running,
        ):
            try:
                _announce(running)
                _watch(running)
            except KeyboardInterrupt:
                _progress("stopping")
                raise
    except KeyboardInterrupt:
        _progress(f"stopped; its records stay in {data}")
    except BrokerError as error:
        raise UsageError(str(error)) from error


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _announce(running: "Broker") -> None:
    for node in running.nodes:
        _progress(f"node {node}: process {running.pid(node)}, log {running.log(node)}")
    typer.echo(f"ready: {running.bootstrap}")


def _watch(running: "Broker") -> None:
    """Until interrupted, or until the last node ended by itself; one of several is only told."""
    left = set(running.nodes)
    while True:
        time.sleep(WATCH_SECONDS)
        ended = running.ended()
        left -= ended.keys()
        if not left:
            raise UsageError("; ".join(ended.values()))
        for line in ended.values():
            _progress(f"{line}; the others go on")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt once, to stop cleanly; the second one ends the process."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

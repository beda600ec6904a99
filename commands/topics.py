"""`topics`: makes the topics on Kafka, compares them with what they should be, shows them."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from commands.errors import UsageError
from commands.repartition import repartition
from commands.settings import Bootstrap, Config, load_settings
from commands.topic_disk import Load, disk_bytes
from schemas.topics import DEFAULT_PARTITIONS
from transport.connection import Connection
from transport.contract import TransportError
from transport.layout import (
    CLEANUP,
    MAX_MESSAGE_BYTES,
    RETENTION_MS,
    TIMESTAMP_TYPE,
    Difference,
    TopicLayout,
    differences,
    partitions_found,
    wanted_layouts,
)

T = TypeVar("T")

SAFE_REPLICATION = 3
UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))

app = typer.Typer(no_args_is_help=True, help="Make, compare and show the topics on Kafka.")

Replication = Annotated[
    int | None, typer.Option(min=1, max=100, help="Copies of each record on as many brokers.")
]


@app.command()
def create(
    partitions: Annotated[
        int, typer.Option(min=1, max=1024, help="Of each source topic; can't be changed later.")
    ] = DEFAULT_PARTITIONS,
    replication: Replication = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, to tell the disk.")] = 100,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs of each, to tell the disk.")] = 8,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two scrapes, to tell the disk.")
    ] = 1.0,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Make the topics that are missing; those that exist are compared and left as they are.

    Without --replication each record has three copies, or one on each broker where there are fewer.
    Exit code 1 means that an existing topic is not as it should be.
    """
    kafka = load_settings(config, [], None, bootstrap).kafka
    wanted, made, found = _answer(_create(kafka, partitions, replication))
    load = Load(nodes, gpus_per_node, interval)
    console = Console(soft_wrap=True, highlight=False)
    console.print(_created(wanted, made, kafka.prefix, load))
    total = sum(disk_bytes(one, kafka.prefix, load) or 0 for one in wanted)
    console.print(
        f"disk on all brokers: about {_size(total)} for {load.gpus:,} GPUs every "
        f"{interval:g} s; the other topics need little"
    )
    _tell(differences(wanted_layouts(kafka.prefix, partitions, replication), found))


@app.command()
def check(
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Of the source topics; else as gpu.telemetry has."),
    ] = None,
    replication: Replication = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Compare every topic with what it should be, and change nothing.

    Exit code 0: all are as they should be; 1: a line for each difference.
    """
    kafka = load_settings(config, [], None, bootstrap).kafka
    found = _answer(_found(kafka))
    count = partitions_found(kafka.prefix, found) if partitions is None else partitions
    wanted = wanted_layouts(kafka.prefix, count, replication)
    different = differences(wanted, found)
    if not different:
        typer.echo(f"{len(wanted)} topics are as they should be, with {count} partitions")
    _tell(different)


@app.command()
def describe(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Show the topics as they are."""
    kafka = load_settings(config, [], None, bootstrap).kafka
    found = _answer(_found(kafka))
    names = [layout.name for layout in wanted_layouts(kafka.prefix)]
    if as_json:
        typer.echo(json.dumps([_as_json(name, found.get(name)) for name in names], indent=2))
        return
    Console(soft_wrap=True, highlight=False).print(_described(names, found))


app.command()(repartition)


async def _create(
    kafka: Connection, partitions: int, replication: int | None
) -> tuple[Sequence[TopicLayout], list[str], dict[str, TopicLayout]]:
    """What is wanted, the names of those that were made, and all as they are then."""
    from transport.kafka_admin import KafkaAdmin

    async with KafkaAdmin(kafka) as admin:
        copies = replication or min(SAFE_REPLICATION, await admin.brokers())
        wanted = wanted_layouts(kafka.prefix, partitions, copies)
        names = [layout.name for layout in wanted]
        there = await admin.layouts(names)
        made = await admin.create([layout for layout in wanted if layout.name not in there])
        return wanted, made, await admin.layouts(names)


async def _found(kafka: Connection) -> dict[str, TopicLayout]:
    from transport.kafka_admin import KafkaAdmin

    async with KafkaAdmin(kafka) as admin:
        return await admin.layouts(layout.name for layout in wanted_layouts(kafka.prefix))


def _answer(asking: Coroutine[Any, Any, T]) -> T:
    """What Kafka answers.  Raises UsageError with one line."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # we tell it in our own words
    try:
        return asyncio.run(asking)
    except TransportError as error:
        raise UsageError(str(error)) from error


def _tell(different: Sequence[Difference]) -> None:
    """A line for each difference.  Raises Exit with code 1 if there is any."""
    for one in different:
        typer.echo(str(one), err=True)
    if different:
        raise typer.Exit(1)


def _created(wanted: Sequence[TopicLayout], made: Sequence[str], prefix: str, load: Load) -> Table:
    table = Table("topic", "", "partitions", "copies", "cleanup", "retention", "disk", box=None)
    for one in wanted:
        disk = disk_bytes(one, prefix, load)
        table.add_row(
            one.name,
            "created" if one.name in made else "existed",
            str(one.partitions),
            str(one.replication),
            one.config[CLEANUP],
            _time(one.config.get(RETENTION_MS)),
            "" if disk is None else _size(disk),
        )
    return table


def _described(names: Sequence[str], found: Mapping[str, TopicLayout]) -> Table:
    columns = ("topic", "partitions", "copies", "cleanup", "retention", "time", "largest message")
    table = Table(*columns, box=None)
    for name in names:
        one = found.get(name)
        if one is None:
            table.add_row(name, "missing")
            continue
        held = one.config
        keeps = held.get(RETENTION_MS) if "delete" in held.get(CLEANUP, "") else None
        table.add_row(
            name,
            str(one.partitions),
            str(one.replication),
            held.get(CLEANUP, "unknown"),
            _time(keeps),
            held.get(TIMESTAMP_TYPE, "unknown"),
            _size(int(held[MAX_MESSAGE_BYTES])) if MAX_MESSAGE_BYTES in held else "unknown",
        )
    return table


def _as_json(name: str, layout: TopicLayout | None) -> dict[str, object]:
    if layout is None:
        return {"topic": name, "exists": False}
    return {
        "topic": name,
        "exists": True,
        "partitions": layout.partitions,
        "replication": layout.replication,
        "config": dict(sorted(layout.config.items())),
    }


def _time(milliseconds: str | None) -> str:
    if milliseconds is None:
        return "latest of a key"
    left = int(milliseconds)
    if left < 0:
        return "for ever"
    unit, size = next(((u, s) for u, s in UNITS if left and left % s == 0), UNITS[-1])
    return f"{left // size} {unit}"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - what a unit is of the one before
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"

"""`state`: moves the workers' states between their topics and a file."""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Iterable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from commands.errors import UsageError
from commands.settings import Bootstrap, Config, load_settings
from transport.connection import Connection
from transport.contract import TransportError

if TYPE_CHECKING:
    from streams.engine.state_files import States

T = TypeVar("T")

STANDARD = "-"

app = typer.Typer(no_args_is_help=True, help="Move the workers' states out of Kafka and into it.")


@app.command("export")
def export_states(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - for standard output.")],
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Write every live state as a line of JSON, each as its topic holds it.

    Workers may be at work: each partition is written as its last finished checkpoint left it.  All
    states pass through this process' memory.
    """
    kafka = load_settings(config, [], None, bootstrap).kafka
    states, partitions = answered(_read(kafka))
    from streams.engine.state_files import file_lines

    lines = file_lines(
        states,
        prefix=kafka.prefix,
        partitions=partitions,
        release=installed_version("gpuvigil"),
    )
    if file == STANDARD:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    else:
        _replace(Path(file), lines)
    say(f"exported {sum(map(len, states.values()))} states of {partitions} partitions")


@app.command("import")
def import_states(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where from; - for standard input.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="End every state that is not in the file.")
    ] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Write the states of a file into the state topics, which have to be empty.

    The workers have to be stopped.  The file is looked at as a whole first: one bad line, and
    nothing is written.  If writing ends early, import again with --replace.

    The states hold offsets of the topics that they were made from.  With the same topics the
    workers go on from there.  Other topics should end below these offsets: then the workers take
    them for topics made again, keep the states and read from the beginning.  A topic that ends
    above them is read from the offset on, and what lies below is never read.
    """
    kafka = load_settings(config, [], None, bootstrap).kafka
    answered(_import(kafka, file, replace=replace))


def answered(asking: Coroutine[Any, Any, T]) -> T:
    """What comes of working with states on Kafka.  Raises UsageError with one line."""
    from streams.engine.state_files import StateFileError

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # we tell it in our own words
    try:
        return asyncio.run(asking)
    except (TransportError, StateFileError) as error:
        raise UsageError(str(error)) from error


def say(line: str) -> None:
    """Progress, beside what is written."""
    typer.echo(line, err=True)


async def _read(kafka: Connection) -> "tuple[States, int]":
    from streams.engine.state_moves import partitions_of_states, read_states

    partitions = await partitions_of_states(kafka)
    return await read_states(kafka, partitions, say), partitions


async def _import(kafka: Connection, file: str, *, replace: bool) -> None:
    from streams.engine.state_files import StateFileError, read_file
    from streams.engine.state_moves import StateWriter, partitions_of_states

    name = "standard input" if file == STANDARD else file
    header, states = read_file(_lines(file), name)
    say(f"{name} has {header.records} states of {header.partitions} partitions")
    partitions = await partitions_of_states(kafka)
    if partitions != header.partitions:
        raise StateFileError(
            f"{name} has states of {header.partitions} partitions and the state topics have "
            f"{partitions}; import it where they are equal and use `gpuvigil topics repartition`"
        )
    if header.prefix != kafka.prefix:
        say(
            f"the offsets in these states are those of the prefix {header.prefix!r}, not of "
            f"{kafka.prefix!r}: see `gpuvigil state import --help`"
        )
    await StateWriter(kafka, partitions, say).write(states, replace=replace)


def _lines(file: str) -> Iterable[bytes]:
    if file == STANDARD:
        return sys.stdin.buffer.readlines()
    try:
        return Path(file).read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file as a whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)

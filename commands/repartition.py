"""`topics repartition`: the states of an installation in new topics with other partitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from commands.errors import UsageError
from commands.settings import Bootstrap, Config, load_settings
from commands.state import answered, say
from schemas.topics import PODS, TELEMETRY, WINDOWS
from transport.connection import Connection
from transport.contract import TransportError
from transport.layout import TopicLayout, differences, wanted_layouts

if TYPE_CHECKING:
    from streams.engine.state_files import States
    from streams.repartition import Moved

SAFE_REPLICATION = 3
LEFT_SHOWN = 5


def repartition(
    partitions: Annotated[
        int, typer.Option(min=1, max=1024, help="Of each source topic from now on.")
    ],
    to: Annotated[str, typer.Option(metavar="PREFIX", help="Prefix of the new topics.")],
    replication: Annotated[
        int | None, typer.Option(min=1, max=100, help="Copies of each record of the new topics.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
) -> None:
    """Make topics with another prefix and number of partitions, and move the states there.

    Open incidents keep their ids and revisions, and everything that was learned of nodes, devices
    and workloads stays.  Not carried over: messages that were not read yet, windows that were not
    judged yet (up to two minutes of them; the detectors see a gap), alerts and dead letters that
    were sent.  The old topics stay as they are.

    Stop the agents, let the workers read what there is, stop the workers, and run this.  Then give
    agents, workers and subscribers the new prefix.
    """
    old = load_settings(config, [], None, bootstrap).kafka
    if to == old.prefix:
        raise UsageError(f"--to {to!r} is the prefix that the topics have now; give a new one")
    new = old.model_copy(update={"prefix": to})
    result, before = answered(_repartition(old, new, partitions, replication))
    say(
        f"moved {result.node_count} nodes and {result.workload_count} workloads with "
        f"{result.open_incidents} open incidents from {before} partitions of {old.prefix!r} to "
        f"{partitions} of {to!r}"
    )
    if result.left:
        shown = ", ".join(result.left[:LEFT_SHOWN])
        say(f"not moved: {len(result.left)} devices of which no node is known, such as {shown}")
    say("the detectors will see a gap where windows were not judged; they count nothing in it")
    say(f"now set kafka.prefix to {to!r} for agents, workers and whoever reads alerts")


async def _repartition(
    old: Connection, new: Connection, partitions: int, replication: int | None
) -> "tuple[Moved, int]":
    """What was moved, and the number of partitions before."""
    from streams.engine.state_moves import StateWriter, partitions_of_states, read_states
    from streams.engine.workers_group import refuse_workers
    from streams.repartition import moved

    await refuse_workers(old)
    before = await partitions_of_states(old)
    states = await read_states(old, before, say)
    result = moved(_dumped(states, "node", before), _dumped(states, "workload", before), partitions)
    if not result.node_count and not result.workload_count:
        raise UsageError(
            f"the state topics of the prefix {old.prefix!r} hold no states; use "
            "`gpuvigil topics create` with the new prefix"
        )
    await _make_topics(new, partitions, replication)
    await StateWriter(new, partitions, say).write(_states(result), replace=False)
    return result, before


async def _make_topics(new: Connection, partitions: int, replication: int | None) -> None:
    """Make what is missing.  Raises UsageError for topics that can't be begun with."""
    from transport.kafka_admin import KafkaAdmin

    async with KafkaAdmin(new) as admin:
        copies = replication or min(SAFE_REPLICATION, await admin.brokers())
        wanted = wanted_layouts(new.prefix, partitions, copies)
        there = await admin.layouts(layout.name for layout in wanted)
        _refuse_other(wanted, there)
        made = await admin.create([layout for layout in wanted if layout.name not in there])
    say(f"made {len(made)} topics; {len(there)} existed")
    if (name := new.topic(WINDOWS)) in there:
        await _refuse_used(new, name)


def _refuse_other(wanted: Sequence[TopicLayout], there: Mapping[str, TopicLayout]) -> None:
    existing = [layout for layout in wanted if layout.name in there]
    broken = [one for one in differences(existing, there) if one.breaks]
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise UsageError(f"{broken[0]}{more}")


async def _refuse_used(new: Connection, name: str) -> None:
    """Windows that somebody else has written would be judged as ours."""
    from transport.kafka import KafkaTransport

    async with KafkaTransport(new) as transport:
        for number in range(await transport.partitions(name)):
            _, end = await transport.offsets(name, number)
            if end:
                raise TransportError(
                    f"{name} was written to before; give --to a prefix that is new"
                )


def _dumped(states: "States", stage: str, partitions: int) -> list[dict[bytes, bytes]]:
    return [
        {key: stored.state for key, stored in states.get((stage, number), {}).items()}
        for number in range(partitions)
    ]


def _states(result: "Moved") -> "States":
    """As they are written: nothing of the new topics has been read."""
    return _of_stage("node", result.nodes, (TELEMETRY, PODS)) | _of_stage(
        "workload", result.workloads, (WINDOWS,)
    )


def _of_stage(
    stage: str, dumped: Sequence[Mapping[bytes, bytes]], topics: Iterable[str]
) -> "States":
    from streams.engine.state_files import Stored, newest_version

    offsets = dict.fromkeys(topics, 0)
    return {
        (stage, number): {
            key: Stored(b"", newest_version(stage, key), offsets, state)
            for key, state in held.items()
        }
        for number, held in enumerate(dumped)
    }

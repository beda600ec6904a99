"""`demo`, `replay` and `run`: producers, pipeline and sinks in one process."""

import heapq
import itertools
from pathlib import Path
from typing import Annotated

import typer

from commands.errors import UsageError
from commands.session import Session
from commands.settings import Cluster, Config, Set, load_settings
from commands.settings import duration as seconds_of
from producers.pacing import paced
from producers.recording import Recording, RecordingError
from producers.simulated import SimulatedCluster
from schemas.parameters import Price, PriceParameters

DEMO_PRICES = PriceParameters(
    table=(
        Price(device_model="H100", per_gpu_hour=3.0),
        Price(device_model="A100", per_gpu_hour=1.8),
        Price(device_model="L40S", per_gpu_hour=1.0),
    )
)
"""Illustrative: the demonstration has to show some cost."""

Json = Annotated[bool, typer.Option("--json", help="Print each alert event as one JSON line.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Column names of a log without a header, comma-separated, as nvidia-smi's."),
]
Sources = Annotated[list[Path], typer.Argument(help="Logs of nvidia-smi --query-gpu --format=csv.")]


def demo(
    as_json: Json = False,
    seed: Annotated[int, typer.Option(help="Another seed, other noise.")] = 0,
    speed: Annotated[float, typer.Option(min=0, help="Times real time; 0: unbounded.")] = 600,
    duration: Annotated[str, typer.Option(help="Simulated time, such as 2h30m.")] = "2h30m",
    overrides: Set = None,
    config: Config = None,
) -> None:
    """Watch a simulated cluster: 8 nodes, 64 GPUs, good and bad workloads.

    Nothing is needed beside this program and no file is left behind.  Prices are illustrative
    unless the settings have some.
    """
    settings = load_settings(config, overrides or [], None)
    length = seconds_of("--duration", duration)
    if not settings.parameters.prices.table:
        parameters = settings.parameters.model_copy(update={"prices": DEMO_PRICES})
        settings = settings.model_copy(update={"parameters": parameters})
    cluster = SimulatedCluster(seed=seed, duration_seconds=length)
    session = Session(settings, as_json=as_json)
    start_ms = cluster.start_ms

    def part() -> str:
        at = session.runner.event_time_ms or start_ms
        return f"{min((at - start_ms) / 10 / length, 100):.0f} %"

    session.run(paced(cluster.messages(), speed, sleep=session.stop.sleep), live=True, part=part)


def replay(
    sources: Sources,
    as_json: Json = False,
    overrides: Set = None,
    columns: Columns = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Feed recordings to the same operators and print what they would have said."""
    _watch(sources, as_json, overrides, columns, cluster, config, None)


def run(
    sources: Annotated[list[Path], typer.Option("--from", help="A recording; may be repeated.")],
    state: Annotated[Path, typer.Option(help="Folder for checkpoints.")],
    as_json: Json = False,
    overrides: Set = None,
    columns: Columns = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Producers, pipeline and sinks in one process, with checkpoints on disk.

    After a kill it goes on from the last checkpoint, at most 10 seconds old: nothing of a
    recording is lost, and events since that checkpoint come again with the same revisions.
    """
    _watch(sources, as_json, overrides, columns, cluster, config, state)


def _watch(
    sources: list[Path],
    as_json: bool,
    overrides: list[str] | None,
    columns: str | None,
    cluster: str | None,
    config: Path | None,
    state: Path | None,
) -> None:
    settings = load_settings(config, overrides or [], cluster)
    recordings = open_recordings(sources, columns, settings.cluster)
    merged = heapq.merge(*(r.messages() for r in recordings), key=lambda m: m.observed_at_ms)
    session = Session(settings, as_json=as_json, state=state)
    try:
        session.run(merged, live=False, part=lambda: f"{len(sources)} source(s)")
    except RecordingError as error:
        raise UsageError(str(error)) from error
    for recording in recordings:
        for reason, rows in itertools.chain(
            recording.skipped_rows.items(), recording.unusable_values.items()
        ):
            typer.echo(f"skipped: {rows} x {reason}", err=True)


def open_recordings(sources: list[Path], columns: str | None, cluster: str) -> list[Recording]:
    """The recordings, checked as far as their first rows.  Raises UsageError."""
    names = columns.split(",") if columns else None
    try:
        return [Recording(source, cluster=cluster, columns=names) for source in sources]
    except RecordingError as error:
        raise UsageError(str(error)) from error

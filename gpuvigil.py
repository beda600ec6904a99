"""The command line: the only place that sees producers, streams and sinks together."""

import difflib
import heapq
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from rich.console import Console
from rich.live import Live

from producers.pacing import Message, Stop, paced
from producers.recording import Recording, RecordingError
from producers.simulated import SimulatedCluster
from schemas.alerts import AlertEvent
from schemas.contract import generated
from schemas.parameters import (
    DetectorParameters,
    Price,
    PriceParameters,
    parameter_names,
    seconds,
)
from schemas.windows import WindowContribution
from sinks.jsonlines import AlertLines
from sinks.live import LiveTable, progress_line
from sinks.report import Report
from sinks.words import alert_words
from streams.checkpoints import CheckpointError
from streams.outputs import TooManyFaultsError
from streams.runner import InProcess

app = typer.Typer(
    no_args_is_help=True,
    help="Watches GPUs as streams of events and says which are wasted, hung or leaking.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

GENERATED = Path(__file__).parent / "schemas" / "generated"
DEMO_PRICES = PriceParameters(
    table=(
        Price(device_model="H100", per_gpu_hour=3.0),
        Price(device_model="A100", per_gpu_hour=1.8),
        Price(device_model="L40S", per_gpu_hour=1.0),
    )
)
"""Illustrative: the demonstration has to show some cost."""

PROGRESS_SECONDS = 2.0
INTERRUPTED = 130


class Settings(BaseSettings):
    """Settings from flags, then the environment, then the TOML file given by `--config`.

    In the environment: `GPUVIGIL_CLUSTER`, `GPUVIGIL_PARAMETERS__UNDER_USE__OPEN_AFTER`.
    """

    model_config = SettingsConfigDict(
        env_prefix="GPUVIGIL_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    cluster: str = "local"
    """Name of the cluster that the sources belong to."""
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    """Partitions of the topics in memory."""
    parameters: DetectorParameters = DetectorParameters()
    """Every constant of the detectors, with its unit: see `schemas.parameters`."""


class UsageError(Exception):
    """Something the user can put right; printed as one line, exit code 2."""


def load_settings(config: Path | None, overrides: list[str], cluster: str | None) -> Settings:
    """The settings that hold.  Raises UsageError for an unknown name or an unusable value."""

    class FileSettings(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            file = TomlConfigSettingsSource(settings_cls, toml_file=config)
            return init_settings, env_settings, file

    given: dict[str, Any] = {} if cluster is None else {"cluster": cluster}
    for override in overrides:
        _override(given, override)
    try:
        if config is not None:
            config.read_bytes()
        return FileSettings(**given)
    except OSError as error:
        raise UsageError(f"cannot read {config}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]).removeprefix("parameters.")
        if first["type"] == "extra_forbidden":
            names = [*parameter_names(), "cluster", "partitions", "parameters"]
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise UsageError(f"{name}: there is no such setting; did you mean {near}?") from None
        raise UsageError(f"{name}: {first['msg']} (given: {first['input']!r})") from None
    except SettingsError as error:  # a variable that is no JSON
        raise UsageError(f"{error}; write JSON or set each field by name") from None
    except ValueError as error:  # a file that is no TOML
        raise UsageError(f"cannot use {config}: {error}") from None


def _override(given: dict[str, Any], text: str) -> None:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: write it as NAME=VALUE, such as under_use.open_after=5m")
    names = parameter_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
        raise UsageError(f"--set {name}: there is no such parameter; did you mean {near}?")
    *groups, last = ["parameters", *name.split(".")]
    for group in groups:
        given = given.setdefault(group, {})
    try:
        given[last] = json.loads(value) if value.startswith("[") else value
    except ValueError as error:
        raise UsageError(f"--set {name}: a list has to be JSON: {error}") from None


class Session:
    """One run of the pipeline with what people see of it."""

    def __init__(self, settings: Settings, *, as_json: bool, state: Path | None = None) -> None:
        self.report = Report()
        self.runner = InProcess(
            settings.parameters, partitions=settings.partitions, state_dir=state
        )
        self._json = as_json
        self._out = Console(soft_wrap=True, highlight=False)
        self._err = Console(stderr=True, highlight=False)
        self._live_table = LiveTable(self._out, self.report)
        self._live: Live | None = None
        self._lines = AlertLines(sys.stdout)
        self._started = self._shown = time.monotonic()
        self.stop = Stop()

    def run(self, messages: Iterable[Message], *, live: bool, part: Callable[[], str]) -> None:
        """Run to the end of the messages or to an interruption, then print the summary."""
        watched = self._watched(messages, part)
        before = {n: signal.signal(n, self._interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
        interrupted = False
        try:
            if live and self._out.is_terminal and not self._json:
                with Live(console=self._out, auto_refresh=False, screen=False) as self._live:
                    self._drive(watched)
            else:
                self._drive(watched)
        except KeyboardInterrupt:
            interrupted = True
        self._live = None
        self._summary(interrupted=interrupted)
        for number, handler in before.items():
            signal.signal(number, handler)
        if interrupted:
            raise typer.Exit(INTERRUPTED)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """End after the message in hand; the same signal again ends the process at once."""
        self.stop.asked = True
        signal.signal(number, signal.SIG_DFL)

    def _drive(self, messages: Iterable[Message]) -> None:
        self.runner.run(messages, on_alert=self._alert, on_window=self._window)

    def _alert(self, event: AlertEvent) -> None:
        self.report.take_alert(event)
        if self._json:
            self._lines.write(event)
        elif event.status != "updated":
            self._out.print(alert_words(event), markup=False)

    def _window(self, message: WindowContribution) -> None:
        self.report.take_windows(message)
        self._live_table.take_windows(message)

    def _watched(self, messages: Iterable[Message], part: Callable[[], str]) -> Iterator[Message]:
        for message in messages:
            self.stop.check()
            now = time.monotonic()
            if now - self._shown >= (0.25 if self._live else PROGRESS_SECONDS):
                self._shown = now
                self._progress(now, part())
            yield message

    def _progress(self, now: float, part: str) -> None:
        samples = self.runner.counters["gpu_samples"]
        rate = samples / max(now - self._started, 0.001)
        line = progress_line(self.runner.event_time_ms, samples, rate, part)
        if self._live:
            self._live_table.progress = line
            self._live.update(self._live_table.render(), refresh=True)
        else:
            self._err.print(line, markup=False)

    def _summary(self, *, interrupted: bool) -> None:
        to = self._err if self._json else self._out
        to.print("Stopped early; the summary so far:" if interrupted else "Summary:")
        for table in self.report.render():
            to.print(table)
        odd = {k: v for k, v in self.runner.counters.items() if k != "gpu_samples" and v}
        samples = self.runner.counters["gpu_samples"]
        took = time.monotonic() - self._started
        to.print(f"{samples:,} GPU-samples in {took:.1f} s ({samples / max(took, 0.001):,.0f}/s)")
        if odd:
            to.print("counted: " + ", ".join(f"{k} {v}" for k, v in sorted(odd.items())))


def open_recordings(sources: list[Path], columns: str | None, cluster: str) -> list[Recording]:
    """The recordings, checked as far as their first rows.  Raises UsageError."""
    names = columns.split(",") if columns else None
    try:
        return [Recording(source, cluster=cluster, columns=names) for source in sources]
    except RecordingError as error:
        raise UsageError(str(error)) from error


Json = Annotated[bool, typer.Option("--json", help="Print each alert event as one JSON line.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a parameter; may be repeated."),
]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Name of the cluster.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Column names of a log without a header, comma-separated, as nvidia-smi's."),
]
Sources = Annotated[list[Path], typer.Argument(help="Logs of nvidia-smi --query-gpu --format=csv.")]


@app.command()
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
    length = _duration(duration)
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


@app.command()
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


@app.command()
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


@app.command()
def schema(
    check: Annotated[bool, typer.Option(help="Only tell whether the files are current.")] = False,
) -> None:
    """Write the JSON Schemas and the AsyncAPI document of all topics into the repository."""
    stale = [
        name
        for name, text in generated().items()
        if not (GENERATED / name).is_file() or (GENERATED / name).read_text("utf-8") != text
    ]
    if check and stale:
        raise UsageError(f"not current: {', '.join(stale)}; run `gpuvigil schema`")
    GENERATED.mkdir(exist_ok=True)
    for name in stale:
        (GENERATED / name).write_text(generated()[name], "utf-8")
    typer.echo(f"{len(generated())} files, {len(stale)} written")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"gpuvigil {installed_version('gpuvigil')}")
        raise typer.Exit


def _duration(text: str) -> float:
    try:
        value = seconds(text)
    except ValueError as error:
        raise UsageError(f"--duration: {error}") from None
    return float(str(value))


def main() -> None:
    """Run the command line; faults that the user can mend are one line and exit code 2."""
    try:
        app()
    except (UsageError, CheckpointError, TooManyFaultsError) as error:
        typer.echo(f"gpuvigil: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        typer.echo(f"gpuvigil: {error.filename or 'cannot write'}: {error.strerror}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

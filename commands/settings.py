"""Settings from flags, the environment and a file, and what a wrong one is answered with."""

import difflib
import json
from datetime import UTC, datetime
from pathlib import Path
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

from commands.errors import UsageError
from schemas.parameters import DetectorParameters, parameter_names, seconds
from transport.connection import Connection

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a parameter; may be repeated."),
]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Name of the cluster.")]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="Kafka's brokers, as host:port, comma-separated.")
]

EPOCH_MS_FROM = 100_000_000_000
"""A number from here on is milliseconds: as seconds it would lie in the year 5138."""


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
    kafka: Connection = Connection()
    """How Kafka is reached: see `transport.connection`."""


def load_settings(
    config: Path | None, overrides: list[str], cluster: str | None, bootstrap: str | None = None
) -> Settings:
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
    if bootstrap is not None:
        given["kafka"] = {"bootstrap": bootstrap}
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
            kafka = [f"kafka.{field}" for field in Connection.model_fields]
            names = [*parameter_names(), *kafka, "cluster", "partitions", "parameters", "kafka"]
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


def duration(flag: str, text: str) -> float:
    """Seconds of a duration such as 2h30m.  Raises UsageError naming the flag."""
    try:
        value = seconds(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None
    return float(str(value))


def moment_ms(flag: str, text: str) -> int:
    """Milliseconds since the epoch of a time such as 2026-09-01T06:00:00Z or 1790000000.

    A time without a zone is UTC.  Raises UsageError naming the flag.
    """
    try:
        number = float(text)
    except ValueError:
        number = None
    try:
        if number is not None:
            at_ms = round(number if abs(number) >= EPOCH_MS_FROM else number * 1000)
        else:
            at = datetime.fromisoformat(text)
            at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        at_ms = -1
    if at_ms < 0:
        raise UsageError(
            f"{flag}: {text} is no time; write it as 2026-09-01T06:00:00Z or in epoch seconds"
        )
    return at_ms

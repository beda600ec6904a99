"""Logs of a command that runs for long: lines for people or one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

Format = Annotated[LogFormat, typer.Option("--log-format", help="Lines for people, or JSON.")]
Level = Annotated[
    LogLevel, typer.Option("--log-level", help="The least that is said; debug adds the libraries.")
]

LIBRARIES = ("aiokafka", "faust", "mode", "aiohttp", "asyncio")
"""They say each fault again and again, with tracebacks; the engine says it once, in a line."""


def log_to_stderr(form: LogFormat, level: LogLevel) -> None:
    """Send the logs of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel("DEBUG" if level == "debug" else "CRITICAL")


class TextLines(logging.Formatter):
    """`2026-09-01T06:00:00.000Z warning engine: text`; one line, whatever the text holds."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        text = _one_line(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower()} {_short(record.name)}: {text}"
        return line if record.exc_info is None else f"{line}\n{self._trace(record)}"

    def _trace(self, record: logging.LogRecord) -> str:
        return "" if record.exc_info is None else self.formatException(record.exc_info)


class JsonLines(logging.Formatter):
    """One object a line with time, level, logger, message and, where there is one, the error."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _one_line(text: str) -> str:
    """Names come from the cluster: a control character in one must not begin a line of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

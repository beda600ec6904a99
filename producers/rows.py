"""The lines of a log as rows of cells, out of whatever bytes the file holds.

A file is never held whole, and a line only up to a length that no log reaches.
"""

import csv
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from producers.columns import RecordingError, is_header

LINE_LENGTH_MAX = 65_536
CUT_OFF = "cut off at the end of the file"
TOO_LONG = "line too long"

Row = list[str]


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a log as text, whatever its encoding; RecordingError if that or the reading fails."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RecordingError(f"{path}: not a regular file; give the path of a log")
        with path.open(encoding=_encoding(path), errors="replace") as file:
            yield file
    except OSError as error:
        raise RecordingError(
            f"{path}: {error.strerror or error}; give the path of a log that can be read"
        ) from error


def read_rows(file: TextIO, skipped: Counter[str]) -> Iterator[Row]:
    """Split lines into cells.  No cell spans lines: a stray quote costs its own line only."""
    before: Row = []
    for line in _lines(file, skipped):
        row = next(csv.reader((line,), skipinitialspace=True))
        if not line.endswith("\n") and _is_cut_off(row, before):
            skipped[CUT_OFF] += 1
            return
        before = row
        yield row


def fitted(row: Row, width: int) -> Row | None:
    """Give the row if it has the width, empty cells at its end aside."""
    if len(row) == width:
        return row
    return row[:width] if len(row) > width and not any(map(str.strip, row[width:])) else None


def _lines(file: TextIO, skipped: Counter[str]) -> Iterator[str]:
    whole = True
    for line in iter(partial(file.readline, LINE_LENGTH_MAX), ""):
        begins, whole = whole, line.endswith("\n")
        if begins and (whole or len(line) < LINE_LENGTH_MAX):
            if not line.isspace():
                yield line
        elif begins:
            skipped[TOO_LONG] += 1


def _is_cut_off(row: Row, before: Row) -> bool:
    """Whether the last cell lacks the unit, or a part of the name, that the row before it had."""
    if len(row) != len(before) or is_header(before):
        return False
    rest, rest_before = (cells[-1].strip().lstrip("0123456789.+- ") for cells in (row, before))
    return len(rest) < len(rest_before)


def _encoding(path: Path) -> str:
    """UTF-16 is what `>` of Windows' PowerShell writes; it says so in its first bytes."""
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"

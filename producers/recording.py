"""Replays a log of `nvidia-smi --query-gpu=... --format=csv` as the telemetry of one node.

People keep such logs with and without header and units, with one GPU or eight, cut off where the
disk was full.  What can be read is passed on, what cannot is counted; only a file of which nothing
can be made is an error.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TextIO

from producers.cells import TEXT_LENGTH_MAX
from producers.columns import SUGGESTED_COLUMNS, Layout, RecordingError, is_header
from producers.rows import Row, fitted, opened, read_rows
from schemas import telemetry
from schemas.hot import struct_of

if TYPE_CHECKING:
    from schemas.telemetry import DeviceSample, NodeTelemetry
else:
    NodeTelemetry = struct_of(telemetry.NodeTelemetry)

__all__ = ["Recording", "RecordingError"]

BOOT_ID = "recording"
HEADER_SOUGHT_IN_ROWS = 20
INTERVAL_FROM_SCRAPES = 50
INTERVAL_OF_A_LONE_SCRAPE_SECONDS = 1.0
INTERVAL_LEAST_SECONDS = 0.1
INTERVAL_MOST_SECONDS = 3600.0
SCRAPE_SPAN_MS = 2_000
"""nvidia-smi asks one GPU after the other; with eight of them the last row is up to this late."""
DEVICES_MAX = 1024

BEFORE_HEADER = "before the header"
NO_TIME = "no readable time"
HEADER = "header amid the rows"
WRONG_WIDTH = "wrong number of columns"


@dataclass(slots=True)
class _Scrape:
    """Rows of different devices that belong together, by device."""

    time_ms: int
    rows: dict[str, tuple[Layout, Row]] = field(default_factory=dict)

    def takes(self, time_ms: int, device: str) -> bool:
        near = abs(time_ms - self.time_ms) <= SCRAPE_SPAN_MS
        return near and device not in self.rows and len(self.rows) < DEVICES_MAX

    def samples(self) -> "tuple[DeviceSample, ...]":
        rows = enumerate(self.rows.items())
        return tuple([layout.sample(row, uuid, at) for at, (uuid, (layout, row)) in rows])


class Recording:
    """A log file as a source of telemetry.

    `node` is the file's name without its ending unless given.  A device is known by its uuid; in a
    log without, it is `<file stem>/<index>`, else `<file stem>/<PCI bus id>`, and without these
    `<file stem>/<place among the rows of the same time>`: the same in each reading of the file.

    `columns` names the columns of a file without header (a list, or one string with commas) and
    overrides a header.

    The first rows are read at once: RecordingError if the file or its layout is not usable.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        cluster: str = "local",
        node: str | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.cluster = self._name(cluster)
        self._stem = self._name(self.path.stem)
        self.node = self._stem if node is None else self._name(node)
        self.skipped_rows: Counter[str] = Counter()
        """Rows that were left out in the latest reading, by reason."""
        self.unusable_values: Counter[str] = Counter()
        """Impossible or unreadable cells that became None in the latest reading, by column."""
        self._columns = columns.split(",") if isinstance(columns, str) else columns
        self._first_row = 0
        self._layout = self._find_layout()
        self.skipped_rows.clear()

    def messages(self, start_at: int = 0) -> "Iterator[NodeTelemetry]":
        """Read the scrapes in the order of the file, as they are asked for.

        The first `start_at` of them are passed over; the others keep the sequence numbers that they
        have in a whole reading.  A time that steps back is passed on: who joins and windows counts
        late samples.  RecordingError if the file holds no scrape or cannot be read on.
        """
        self.skipped_rows.clear()
        self.unusable_values.clear()
        with opened(self.path) as file:
            scrapes = self._scrapes(file)
            first = list(islice(scrapes, INTERVAL_FROM_SCRAPES))
            if not first:
                raise RecordingError(self._nothing_read())
            interval_seconds = _interval_seconds(first)
            for sequence, scrape in enumerate(chain(first, scrapes)):
                if sequence >= start_at:
                    yield self._message(sequence, scrape, interval_seconds)

    def _message(self, sequence: int, scrape: _Scrape, interval_seconds: float) -> "NodeTelemetry":
        return NodeTelemetry(
            cluster=self.cluster,
            node=self.node,
            boot_id=BOOT_ID,
            sequence=sequence,
            observed_at_ms=scrape.time_ms,
            interval_seconds=interval_seconds,
            clock="data",
            devices=scrape.samples(),
        )

    def _scrapes(self, file: TextIO) -> Iterator[_Scrape]:
        scrape: _Scrape | None = None
        for layout, time_ms, row in self._readings(file):
            known = layout.device(row)
            place = len(scrape.rows) if scrape is not None and scrape.time_ms == time_ms else 0
            device = known or f"{self._stem}/{place}"
            if scrape is None or not scrape.takes(time_ms, device):
                if scrape is not None:
                    yield scrape
                scrape = _Scrape(time_ms)
                device = known or f"{self._stem}/0"
            scrape.rows[device] = (layout, row)
        if scrape is not None:
            yield scrape

    def _readings(self, file: TextIO) -> Iterator[tuple[Layout, int, Row]]:
        """Yield the rows that have a time, with it and the layout that holds for them."""
        layout = self._layout
        for number, row in enumerate(read_rows(file, self.skipped_rows)):
            if number < self._first_row:
                if number < self._first_row - 1:
                    self.skipped_rows[BEFORE_HEADER] += 1
                continue
            whole = fitted(row, layout.width)
            time_ms = None if whole is None else layout.time_ms(whole)
            if whole is None or time_ms is None:
                layout = self._layout_after(row, layout)
                continue
            yield layout, time_ms, whole

    def _layout_after(self, row: Row, layout: Layout) -> Layout:
        """Count a row that is no reading; a header amid the rows (`>> log`) begins a new layout."""
        header = self._layout_of(row) if is_header(row) else None
        fits = fitted(row, layout.width) is not None
        self.skipped_rows[HEADER if header else NO_TIME if fits else WRONG_WIDTH] += 1
        if header is None or self._columns is not None or header.headings == layout.headings:
            return layout
        return header

    def _layout_of(self, row: Row) -> Layout | None:
        try:
            return self._new_layout(row)
        except RecordingError:
            return None

    def _name(self, text: str) -> str:
        """Make a name that a message can carry; a file's name may hold bytes that are no text."""
        if len(text) > TEXT_LENGTH_MAX:
            raise RecordingError(
                f"{self.path}: cluster or node name longer than {TEXT_LENGTH_MAX} characters; "
                "give a shorter one"
            )
        return text.encode("utf-8", "replace").decode("utf-8")

    def _find_layout(self) -> Layout:
        with opened(self.path) as file:
            rows = list(islice(read_rows(file, self.skipped_rows), HEADER_SOUGHT_IN_ROWS))
        if not rows:
            raise RecordingError(
                f"{self.path}: holds no lines; log with "
                f"nvidia-smi --query-gpu={SUGGESTED_COLUMNS} --format=csv"
            )
        return self._header(rows) if self._columns is None else self._named(self._columns, rows)

    def _header(self, rows: list[Row]) -> Layout:
        headers = [number for number, row in enumerate(rows) if is_header(row)]
        for number in headers:
            layout = self._layout_of(rows[number])
            if layout is not None:
                self._first_row = number + 1
                return layout
        if headers:
            return self._new_layout(rows[headers[0]])
        raise RecordingError(
            f"{self.path}: no header; the first line is {', '.join(rows[0])[:120]!r}; name its "
            f"columns ({len(rows[0])}) in order with --columns timestamp,utilization.gpu,..."
        )

    def _named(self, columns: Sequence[str], rows: list[Row]) -> Layout:
        if all(fitted(row, len(columns)) is None for row in rows):
            raise RecordingError(
                f"{self.path}: {len(columns)} columns named, but {len(rows[0])} found in "
                f"{', '.join(rows[0])[:120]!r}; name each of them in order with --columns"
            )
        return self._new_layout(columns)

    def _new_layout(self, headings: Sequence[str]) -> Layout:
        return Layout(str(self.path), headings, f"{self._stem}/", self.unusable_values)

    def _nothing_read(self) -> str:
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.skipped_rows.most_common())
        return (
            f"{self.path}: no row could be read ({reasons or 'there is only a header'}); "
            "check that the columns' names and order are those of the file"
        )


def _interval_seconds(scrapes: Sequence[_Scrape]) -> float:
    """Estimate the usual time between two samples of the same device."""
    last_ms: dict[str, int] = {}
    gaps_ms: list[int] = []
    for scrape in scrapes:
        for device in scrape.rows:
            gaps_ms.append(scrape.time_ms - last_ms.get(device, scrape.time_ms))
            last_ms[device] = scrape.time_ms
    usual_seconds = median([gap for gap in gaps_ms if gap > 0] or [0]) / 1000
    if usual_seconds == 0:
        return INTERVAL_OF_A_LONE_SCRAPE_SECONDS
    return min(max(usual_seconds, INTERVAL_LEAST_SECONDS), INTERVAL_MOST_SECONDS)

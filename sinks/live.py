"""A live view for a terminal: progress, who uses which device, and what is wrong."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sinks.words import NO_POD, clean, subject_words, waste_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from schemas.alerts import AlertEvent
    from schemas.windows import SeriesWindow, WindowContribution
    from sinks.report import Report

GIB = 2**30
LINES_AROUND = 10
"""Lines that headings and borders take."""


class LiveTable:
    """Keeps the newest window of each series; `render` draws as much as the terminal holds."""

    def __init__(self, console: "Console", report: "Report") -> None:
        self._console = console
        self._report = report
        self._series: dict[tuple[str, str | None], tuple[str, SeriesWindow]] = {}
        self.progress = ""

    def take_windows(self, message: "WindowContribution") -> None:
        """Note the newest window of each series, drop those that ended."""
        for workload in message.workloads:
            for end in workload.ended:
                self._series.pop((end.device_uuid, end.pod_uid), None)
            name = f"{workload.namespace or NO_POD}/{workload.kind or 'device'}/{workload.name}"
            for series in workload.series:
                self._series[series.device_uuid, series.pod_uid] = (name, series)

    def render(self) -> "RenderableType":
        """The whole picture."""
        room = max(self._console.height - LINES_AROUND, 6)
        alerts = self._report.open_alerts[-max(room // 4, 3) :]
        devices = room - 3 * len(alerts)
        return Group(Text(self.progress), self._devices(max(devices, 3)), self._alerts(alerts))

    def _devices(self, room: int) -> Table:
        table = Table(title="Devices, the least used first", title_justify="left", expand=True)
        for column in ("workload", "pod", "node", "device"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for column in ("use %", "memory GiB", "power W"):
            table.add_column(column, justify="right", no_wrap=True)
        rows = sorted(self._series.values(), key=_least_used)
        for name, series in rows[:room]:
            table.add_row(
                Text(clean(name)),
                Text(clean(series.pod or "")),
                Text(clean(series.node)),
                Text(clean(series.device_model or series.device_uuid)),
                _number(series.use_mean_percent, 0),
                _number(None if (b := series.memory_used_bytes) is None else b / GIB, 1),
                _number(series.power_mean_watts, 0),
            )
        if len(rows) > room:
            table.caption = f"and {len(rows) - room} more"
        return table

    def _alerts(self, alerts: "list[AlertEvent]") -> Table:
        table = Table(
            title=f"Open alerts: {len(self._report.open_alerts)}", title_justify="left", expand=True
        )
        table.add_column("kind", no_wrap=True, style="bold red")
        table.add_column("subject", no_wrap=True, overflow="ellipsis")
        table.add_column("evidence", ratio=1)
        table.add_column("wasted", no_wrap=True)
        for event in alerts:
            table.add_row(
                event.kind,
                Text(subject_words(event.subject)),
                Text(clean(event.summary)),
                Text(waste_words(event.waste)),
            )
        return table


def progress_line(event_time_ms: int | None, gpu_samples: int, rate: float, part: str) -> str:
    """How far a run is: event time, GPU-samples and their rate, and a part of the whole."""
    at = (
        "waiting for data"
        if event_time_ms is None
        else f"{datetime.fromtimestamp(event_time_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}Z"
    )
    return f"{at}  {part}  {gpu_samples:,} GPU-samples  {rate:,.0f}/s"


def _least_used(row: "tuple[str, SeriesWindow]") -> tuple[float, str]:
    use = row[1].use_mean_percent
    return (1000.0 if use is None else use, row[1].device_uuid)


def _number(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}f}"

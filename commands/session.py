"""One run of the pipeline in this process with what people see of it."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console
from rich.live import Live

from commands.settings import Settings
from producers.pacing import Message, Stop
from schemas.alerts import AlertEvent
from schemas.windows import WindowContribution
from sinks.jsonlines import AlertLines
from sinks.live import LiveTable, progress_line
from sinks.report import Report
from sinks.words import alert_words
from streams.runner import InProcess

PROGRESS_SECONDS = 2.0
INTERRUPTED = 130


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

"""A whole installation as processes of its own: broker, workers, a simulated agent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.delivery.reference import START_MS

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30.0
PROGRESS = "gpuvigil_worker_progress_timestamp_seconds"
LIVE = "gpuvigil_worker_live_partitions"


class TookOver(NamedTuple):
    """A worker said that it takes the records of these partitions."""

    at: float
    """Seconds since the epoch."""
    worker: int
    stage: str
    partitions: frozenset[int]


class WorkerProcess:
    """`gpuvigil worker`, which may be killed, frozen and started again."""

    def __init__(self, number: int, bootstrap: str, folder: Path, *options: str) -> None:
        self.number = number
        self.log = folder / f"worker-{number}.log"
        self.port = free_port()
        self._command = [
            sys.executable, "-m", "gpuvigil", "worker", "--bootstrap", bootstrap,
            "--log-format", "json", "--web-port", str(self.port), *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log goes on."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stderr=log)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`, also of one that is frozen."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def ended(self) -> int | None:
        """Its exit code, if it has ended by itself."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> float:
        """SIGTERM; seconds until it had ended.  It has to end in order."""
        assert self._process is not None
        begun = time.monotonic()
        self.signal(signal.SIGTERM)
        assert self._process.wait(STOP_SECONDS) == 0, self.log.read_text()[-3000:]
        return time.monotonic() - begun

    def metrics(self) -> dict[tuple[str, str, str], float]:
        """Values by name, stage and partition; none while it can't be asked."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
                text = answer.read().decode()
        except (URLError, OSError):
            return {}
        return {
            (s.name, s.labels.get("stage", ""), s.labels.get("partition", "")): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
        }

    def took_over(self) -> Iterator[TookOver]:
        """Every time that it said so."""
        for line in self.log.read_text().splitlines():
            said = json.loads(line)
            words = said["message"].split()
            if words[:2] == ["took", "over"]:
                at = datetime.fromisoformat(said["time"]).timestamp()
                parts = frozenset(map(int, words[3].split(",")))
                yield TookOver(at, self.number, words[2], parts)


def agent(bootstrap: str, folder: Path, *, seed: int, seconds: float, speed: float) -> "Agent":
    """The simulated agent, started."""
    return Agent(
        [
            sys.executable, "-m", "gpuvigil", "agent", "--simulated", "--bootstrap", bootstrap,
            "--seed", str(seed), "--speed", str(speed), "--duration", f"{seconds:.0f}s",
            "--start", str(START_MS),
        ],
        folder / "agent.log",
    )  # fmt: skip


class Agent:
    """`gpuvigil agent --simulated`."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=out)

    def running(self) -> bool:
        """Whether it has not come to its end."""
        return self._process.poll() is None

    def delivered(self) -> bool:
        """Whether it ended and Kafka has everything."""
        return self._process.poll() == 0

    def kill(self) -> None:
        """End it at once."""
        if self.running():
            self._process.kill()
            self._process.wait(STOP_SECONDS)


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

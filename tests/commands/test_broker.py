"""`gpuvigil broker` as a person runs it."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transport.broker_properties import layout

COMMAND = str(Path(sys.executable).with_name("gpuvigil"))


def free_port() -> int:
    return layout(1, None, {}).ports["PLAINTEXT"][1]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command from its start to its end; a test that fails leaves no broker behind."""
    command = [COMMAND, "broker", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


@pytest.mark.kafka
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_is_ready_and_stops_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    port = free_port()
    for _ in range(2):  # the second time on the same data
        with started("--port", str(port), "--data", str(tmp_path)) as process:
            assert first_line(process) == f"ready: localhost:{port}\n"
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said
        assert said.endswith(f"stopping\nstopped; its records stay in {tmp_path}\n")
        assert (tmp_path / "node-1" / "storage" / ".kafka_cleanshutdown").exists()


@pytest.mark.kafka
def test_what_can_be_mended_is_one_line(tmp_path: Path) -> None:
    port = str(free_port())
    with started("--port", port, "--data", str(tmp_path / "one")) as running:
        assert first_line(running).startswith("ready")
        for arguments, word in (
            (("--data", str(tmp_path / "one")), "another broker runs in"),
            (("--port", port, "--data", str(tmp_path / "two")), f"port {port} is taken"),
        ):
            with started(*arguments) as refused:
                _, said = refused.communicate(timeout=30)
            assert refused.returncode == 2
            assert len(said.splitlines()) == 1
            assert said.startswith("gpuvigil: ")
            assert word in said
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)


@pytest.mark.kafka
def test_a_broker_that_dies_is_told(tmp_path: Path) -> None:
    with started("--port", str(free_port()), "--data", str(tmp_path)) as process:
        assert first_line(process).startswith("ready")
        assert process.stderr
        for line in process.stderr:
            if java := re.search(r"node 1: process (\d+),", line):
                subprocess.run(["kill", "-9", java[1]], check=True)
                break
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert re.fullmatch(r"gpuvigil: node 1 ended by SIGKILL \(log: .*kafka\.log\)\n", said)

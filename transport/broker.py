"""A real Apache Kafka in a folder, for development and tests: no Docker, no Java of the system.

The folder holds `cluster.json` (the cluster's id and number of nodes) and for each node a folder
with its storage, its properties and its log.  A broker started on a folder that already holds one
goes on with its records; its ports may differ each time.
"""

import base64
import contextlib
import fcntl
import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from transport.broker_jars import BrokerError, Progress, broker_jars
from transport.broker_jvm import (
    FORMAT_HEAP_MB,
    GuardedProcess,
    format_storage,
    java_command,
    java_program,
    last_word,
)
from transport.broker_properties import (
    PLAIN,
    layout,
    node_properties,
    port_is_free,
    properties_text,
)
from transport.broker_ready import known_nodes

HEAP_MB = 256
START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05


class Broker:
    """One Kafka cluster of combined nodes on loopback; synchronous, for one thread at a time.

    `port` is the first node's, the next nodes take the next ones; without it free ports are taken.
    `listeners` adds listeners by name with their security protocol, each on free ports; what they
    need (certificates, mechanisms) comes by `overrides`, and users by `format_args`, which the
    storage tool takes when the folder is new.
    """

    def __init__(  # noqa: PLR0913 - all but the folder by name, all with defaults
        self,
        data: Path,
        *,
        nodes: int = 1,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_args: Sequence[str] = (),
        heap_mb: int = HEAP_MB,
        jars: Sequence[Path] | None = None,
        progress: Progress = lambda _line: None,
    ) -> None:
        self.data = data.absolute()
        self._layout = layout(nodes, port, listeners or {})
        self._overrides = dict(overrides or {})
        self._format_args = tuple(format_args)
        self._heap_mb = heap_mb
        self._jars = jars
        self._progress = progress
        self._running: dict[int, GuardedProcess] = {}
        self._log_starts: dict[int, int] = {}
        self._lock: IO[str] | None = None

    @property
    def bootstrap(self) -> str:
        """The nodes' addresses on the plain listener."""
        return self.addresses(PLAIN)

    def addresses(self, listener: str) -> str:
        """The nodes' addresses on a listener, `localhost:port` with commas between."""
        return self._layout.addresses(listener)

    @property
    def nodes(self) -> list[int]:
        """The numbers of all nodes, from 1."""
        return self._layout.nodes

    def log(self, node: int) -> Path:
        """The file into which a node logs."""
        return self._folder(node) / "kafka.log"

    def pid(self, node: int) -> int:
        """The process id of a started node.  Raises KeyError if it isn't started."""
        return self._running[node].pid

    def start(self) -> None:
        """Start every node and return when each knows all others.

        Raises BrokerError if that can't be; no process of it is then left.
        """
        java_program()
        self._claim()
        try:
            self._check_ports(self.nodes)
            self._jars = self._jars or broker_jars(progress=self._progress)
            self._format_new()
            for node in self.nodes:
                self._launch(node)
            self._wait_ready(self.nodes)
        except BaseException:
            self.stop()
            raise

    def start_node(self, node: int) -> None:
        """Start one node anew after `kill` or `stop_node`, and wait until it is ready.

        After a kill that takes 9 s: Kafka waits for the end of the killed one's session
        (`broker.session.timeout.ms`).
        Without a majority of nodes none can become ready: start several by `start_nodes`.
        """
        self.start_nodes([node])

    def start_nodes(self, nodes: Sequence[int]) -> None:
        """Start several nodes anew and wait until all are ready."""
        for node in nodes:
            self._launch(node)
        self._wait_ready(nodes)

    def kill(self, node: int) -> None:
        """Kill -9 of one node; its records stay in the folder."""
        self._running.pop(node).kill()

    def stop_node(self, node: int) -> None:
        """Stop one node cleanly, or by force after 15 s."""
        self._end([node])

    def stop(self) -> None:
        """Stop every node and free the folder; a broker that isn't running is left alone."""
        self._end(list(self._running))
        if self._lock:
            self._lock.close()
            self._lock = None

    def ended(self) -> dict[int, str]:
        """The nodes that have ended by themselves since the last call, with their last words."""
        codes = {node: process.exit_code() for node, process in self._running.items()}
        gone = {
            node: self._obituary(node, code) for node, code in codes.items() if code is not None
        }
        self._end(list(gone))
        return gone

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _folder(self, node: int) -> Path:
        return self.data / f"node-{node}"

    def _claim(self) -> None:
        """Take the folder for this process alone and see that it is ours or empty."""
        if "," in str(self.data):
            raise BrokerError(f"{self.data}: Kafka takes no folder with a comma in its name")
        with self._writable():
            self.data.mkdir(parents=True, exist_ok=True)
            strangers = {path.name for path in self.data.iterdir()} - {".lock"}
            if strangers and not self._cluster_file.exists():
                raise BrokerError(f"{self.data} holds something else; give an empty folder")
            lock = (self.data / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise BrokerError(f"another broker runs in {self.data}") from error
        self._lock = lock

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BrokerError(
                f"{error.filename or self.data} can't be written ({error.strerror}); "
                "give a folder that can"
            ) from error

    @property
    def _cluster_file(self) -> Path:
        return self.data / "cluster.json"

    def _cluster_id(self) -> str:
        """The id of the folder's cluster, made when the folder is new."""
        if not self._cluster_file.exists():
            fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
            cluster = {"id": f"0{fresh[1:]}", "nodes": len(self.nodes)}  # "-" would be an option
            draft = self._cluster_file.with_suffix(".new")
            draft.write_text(json.dumps(cluster), encoding="ascii")
            draft.replace(self._cluster_file)
        try:
            cluster = json.loads(self._cluster_file.read_text(encoding="ascii"))
            identity, nodes = str(cluster["id"]), int(cluster["nodes"])
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerError(f"{self._cluster_file} is damaged; give another folder") from error
        if nodes != len(self.nodes):
            raise BrokerError(
                f"{self.data} holds a cluster of {nodes} nodes, not {len(self.nodes)}; "
                f"start it with {nodes}, or give another folder"
            )
        return identity

    def _format_new(self) -> None:
        """Write every node's properties, and format the storage of nodes that have none."""
        with self._writable():
            identity = self._cluster_id()
            for node in self.nodes:
                storage = self._folder(node) / "storage"
                storage.mkdir(parents=True, exist_ok=True)
                told = node_properties(node, self._layout, storage, self._overrides)
                self._properties(node).write_text(properties_text(told), encoding="ascii")
        new = [n for n in self.nodes if not (self._folder(n) / "storage/meta.properties").exists()]
        if new:
            self._progress(f"formatting {self.data}")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda node: self._format(node, identity), new))

    def _format(self, node: int, identity: str) -> None:
        arguments = ("-t", identity, "-c", str(self._properties(node)), *self._format_args)
        tool = ("kafka.tools.StorageTool", "format", *arguments)
        log = self._folder(node) / "format.log"
        format_storage(java_command(self._jars or (), FORMAT_HEAP_MB, log, *tool))

    def _properties(self, node: int) -> Path:
        return self._folder(node) / "server.properties"

    def _console(self, node: int) -> Path:
        return self._folder(node) / "console.log"

    def _check_ports(self, nodes: Sequence[int]) -> None:
        for port in (port for node in nodes for port in self._layout.node_ports(node)):
            if not port_is_free(port):
                raise BrokerError(
                    f"port {port} is taken; choose another, or stop what listens there"
                )

    def _launch(self, node: int) -> None:
        if node in self._running:
            raise BrokerError(f"node {node} is already running")
        self._check_ports([node])
        log = self.log(node)
        self._log_starts[node] = log.stat().st_size if log.exists() else 0
        main = ("kafka.Kafka", str(self._properties(node)))
        command = java_command(self._jars or (), self._heap_mb, log, *main)
        self._running[node] = GuardedProcess(command, self._console(node))

    def _wait_ready(self, nodes: Sequence[int]) -> None:
        """Return when each of the nodes answers and knows as many nodes as run."""
        end = time.monotonic() + START_SECONDS
        waiting = list(nodes)
        while waiting := [node for node in waiting if not self._ready(node)]:
            if ended := self.ended():
                raise BrokerError("; ".join(ended.values()))
            if time.monotonic() > end:
                raise BrokerError(
                    f"node {waiting[0]} is not ready after {START_SECONDS:.0f} s; "
                    f"its log is {self.log(waiting[0])}"
                )
            time.sleep(POLL_SECONDS)

    def _ready(self, node: int) -> bool:
        return known_nodes(self._layout.ports[PLAIN][node]) >= len(self._running)

    def _end(self, nodes: Sequence[int]) -> None:
        """Ask all to stop, then wait; the last ones of a cluster can't hand over to anybody."""
        ending = {node: self._running.pop(node) for node in nodes if node in self._running}
        for process in ending.values():
            process.terminate()
        end = time.monotonic() + STOP_SECONDS
        for process in ending.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    def _obituary(self, node: int, code: int) -> str:
        """Why a node ended, in one line."""
        if code < 0:
            why = f"ended by {signal.Signals(-code).name}"
        else:
            why = f"ended with code {code}: {last_word(self._said(node))}"
        return f"node {node} {why} (log: {self.log(node)})"

    def _said(self, node: int) -> str:
        """What a node logged and printed since its start."""
        with contextlib.suppress(OSError):
            console = self._console(node).read_bytes()
            log = self.log(node).read_bytes() if self.log(node).exists() else b""
            start = self._log_starts[node]
            since = log[start:] if start <= len(log) else log  # a new file was begun meanwhile
            return (console + since).decode("utf-8", errors="replace")
        return ""

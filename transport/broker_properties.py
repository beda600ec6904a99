"""The configuration of a development broker's nodes: Kafka's defaults, but for what few nodes need.

Each node is broker and controller at once (KRaft) and listens on loopback only.  Extra listeners,
such as SASL_SSL, come beside the plain one, through which the nodes talk to each other.
"""

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from transport.broker_jars import BrokerError

HOST = "127.0.0.1"
PLAIN, CONTROLLER = "PLAINTEXT", "CONTROLLER"

# Below the ports that systems hand to outgoing connections: a client that tries to reach a stopped
# node could otherwise be given that node's own port, and the node would not start again.
FREE_PORTS = range(20_000, 32_000)
REPLICAS_MAX = 3

SMALL = {
    # The default, 128 MiB, is half of a development broker's memory.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    # Kafka waits 3 s for more members before a group's first assignment; here they come together.
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class Layout(NamedTuple):
    """Where each node listens, by listener and node number from 1."""

    ports: Mapping[str, Mapping[int, int]]
    protocols: Mapping[str, str]
    """The security protocol of each listener."""

    @property
    def nodes(self) -> list[int]:
        """The numbers of the nodes."""
        return list(self.ports[PLAIN])

    def addresses(self, listener: str) -> str:
        """Every node's address on a listener, as clients take it."""
        return ",".join(f"localhost:{port}" for port in self.ports[listener].values())

    def node_ports(self, node: int) -> list[int]:
        """Every port of a node."""
        return [ports[node] for ports in self.ports.values()]


def layout(nodes: int, port: int | None, extra: Mapping[str, str]) -> Layout:
    """A port for every listener of every node: from `port` on for the plain one, else free."""
    numbers = range(1, nodes + 1)
    names = [PLAIN, CONTROLLER, *extra]
    ports: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for name in names:
        if name == PLAIN and port is not None:
            ports[name] = {node: port + node - 1 for node in numbers}
        else:
            ports[name] = {node: _free_port(taken) for node in numbers}
        taken.update(ports[name].values())
    return Layout(ports, {PLAIN: "PLAINTEXT", CONTROLLER: "PLAINTEXT", **extra})


def port_is_free(port: int) -> bool:
    """Whether a node could listen there; connections that are only fading do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port(taken: set[int]) -> int:
    for _ in range(1000):
        port = FREE_PORTS.start + secrets.randbelow(len(FREE_PORTS))
        if port not in taken and port_is_free(port):
            taken.add(port)
            return port
    raise BrokerError(f"no port is free between {FREE_PORTS.start} and {FREE_PORTS.stop - 1}")


def node_properties(
    node: int, where: Layout, storage: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Everything that a node is told; `overrides` have the last word."""
    outward = {name: ports[node] for name, ports in where.ports.items() if name != CONTROLLER}
    voters = where.ports[CONTROLLER].items()
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{port}" for n, port in voters),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAIN,
        "listeners": _listeners({**outward, CONTROLLER: where.ports[CONTROLLER][node]}),
        "advertised.listeners": _listeners(outward),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in where.protocols.items()
        ),
        "log.dirs": str(storage),
        **_replication(len(where.nodes)),
        **SMALL,
        **overrides,
    }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _replication(nodes: int) -> dict[str, str]:
    """Kafka's own topics by default want three nodes."""
    replicas = str(min(REPLICAS_MAX, nodes))
    in_sync = str(max(1, min(REPLICAS_MAX, nodes) - 1))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """As Java reads it: backslashes doubled, what is not ASCII as UTF-16 escapes."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    pieces = (value.replace("\\", "\\\\").replace("\n", "\\n")).encode("utf-16-be")
    units = (int.from_bytes(pieces[i : i + 2]) for i in range(0, len(pieces), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)  # noqa: PLR2004

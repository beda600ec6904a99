"""The development broker: a real Kafka that starts, stops, dies and goes on."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from transport.broker import Broker
from transport.broker_jars import BrokerError
from transport.broker_jvm import last_word
from transport.broker_properties import layout, node_properties, properties_text
from transport.kafka_closing import closed

DEFAULT_SOURCE = 5
"""What DescribeConfigs says of a setting that nobody set."""

SHORT_SESSION = {"broker.session.timeout.ms": "3000"}
"""A killed node may come back after this time; by default after 9 s."""

NEVER_STARTED = (Path("no.jar"),)
STARTS_AND_HANGS = """
import sys, time
from pathlib import Path
from transport.broker import Broker
broker = Broker(Path(sys.argv[1]), nodes=1)
broker.start()
print(broker.pid(1), flush=True)
time.sleep(600)
"""


async def create(broker: Broker, topic: str, replicas: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, replicas)])
    await admin.close()


async def write(broker: Broker, topic: str, *values: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    await producer.start()
    for value in values:
        await producer.send_and_wait(topic, value)
    await producer.stop()


async def read(broker: Broker, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    (end,) = (await consumer.end_offsets([partition])).values()
    values: list[bytes] = []
    while len(values) < end:
        values += [r.value for r in (await consumer.getmany(timeout_ms=1000)).get(partition, [])]
    await closed(consumer)
    return values


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that the test may kill."""
    with Broker(tmp_path / "data", overrides=SHORT_SESSION) as running:
        yield running


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for_end(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


async def test_the_shared_broker_takes_records(kafka: Broker) -> None:
    await create(kafka, "shared-broker")
    await write(kafka, "shared-broker", b"one")
    assert await read(kafka, "shared-broker") == [b"one"]


async def test_the_shared_broker_has_kafkas_defaults(kafka: Broker) -> None:
    """But for addresses, one node, memory and unasked topics it is what users have."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")])
    await admin.close()
    (resource,) = answer.resources
    changed = {entry[0] for entry in resource[-1] if entry[3] != DEFAULT_SOURCE}
    own = {"node.id", "process.roles", "log.dirs", "listeners", "advertised.listeners"}
    assert own < changed
    assert changed - own == {
        "auto.create.topics.enable",
        "broker.id",  # Kafka derives it from node.id
        "controller.listener.names",
        "controller.quorum.voters",
        "default.replication.factor",
        "group.initial.rebalance.delay.ms",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "log.cleaner.dedupe.buffer.size",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }


@pytest.mark.kafka
async def test_a_stopped_broker_goes_on_with_its_records(tmp_path: Path) -> None:
    with Broker(tmp_path) as first:
        await create(first, "kept")
        await write(first, "kept", b"one", b"two")
        log = first.log(1)
    assert "shutting down" in log.read_text(encoding="utf-8")
    assert (tmp_path / "node-1" / "storage" / ".kafka_cleanshutdown").exists()
    with Broker(tmp_path) as second:  # on other ports
        await write(second, "kept", b"three")
        assert await read(second, "kept") == [b"one", b"two", b"three"]


@pytest.mark.kafka
async def test_a_killed_broker_goes_on_with_its_records(broker: Broker) -> None:
    await create(broker, "kept")
    await write(broker, "kept", *(b"%d" % number for number in range(100)))
    before = broker.pid(1)
    broker.kill(1)
    assert not alive(before)
    broker.start_node(1)
    assert await read(broker, "kept") == [b"%d" % number for number in range(100)]


@pytest.mark.kafka
@pytest.mark.slow
async def test_a_cluster_survives_the_loss_of_a_node(tmp_path: Path) -> None:
    with Broker(tmp_path, nodes=3, overrides=SHORT_SESSION) as cluster:
        await create(cluster, "copied", replicas=3)
        await write(cluster, "copied", b"before")
        cluster.kill(1)
        await write(cluster, "copied", b"without")
        cluster.start_node(1)
        await write(cluster, "copied", b"after")
        assert await read(cluster, "copied") == [b"before", b"without", b"after"]


@pytest.mark.kafka
def test_no_broker_outlives_its_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_AND_HANGS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        java = int(parent.stdout.readline())
        assert alive(java)
        parent.kill()
    assert wait_for_end(java, seconds=5)


@pytest.mark.kafka
def test_a_broker_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    async def in_a_thread() -> Broker:
        broker = Broker(tmp_path)
        await asyncio.to_thread(broker.start)
        return broker

    broker = asyncio.run(in_a_thread())  # ends the thread with its loop
    with contextlib.closing(socket.create_connection(("127.0.0.1", int(broker.bootstrap[10:])))):
        assert broker.ended() == {}
    broker.stop()


@pytest.mark.kafka
def test_who_ends_by_itself_is_told(broker: Broker) -> None:
    os.kill(broker.pid(1), signal.SIGKILL)
    end = time.monotonic() + 5
    while not (ended := broker.ended()) and time.monotonic() < end:
        time.sleep(0.05)
    assert "node 1 ended by SIGKILL" in ended[1]
    assert broker.ended() == {}


@pytest.mark.kafka
def test_a_refused_start_says_why_in_one_line(tmp_path: Path) -> None:
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "missing.pem")}
    broker = Broker(tmp_path / "data", listeners={"SSL": "SSL"}, overrides=tls)
    with pytest.raises(BrokerError, match=r"ended with code 1: .*missing\.pem.*kafka\.log") as told:
        broker.start()
    assert "\n" not in str(told.value)


@pytest.mark.kafka
def test_two_brokers_in_one_folder_are_refused(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="another broker runs in"):
        Broker(broker.data).start()


@pytest.mark.kafka
def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path):
        pass
    with pytest.raises(BrokerError, match="holds a cluster of 1 nodes, not 2"):
        Broker(tmp_path, nodes=2).start()


def test_a_taken_port_is_told_before_anything_is_fetched_or_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} is taken"):
            Broker(tmp_path, port=port, jars=NEVER_STARTED).start()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious", encoding="ascii")
    with pytest.raises(BrokerError, match="holds something else"):
        Broker(tmp_path, jars=NEVER_STARTED).start()


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(BrokerError, match="can't be written"):
        Broker(tmp_path / "file" / "data", jars=NEVER_STARTED).start()


def test_a_damaged_cluster_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}", encoding="ascii")
    with pytest.raises(BrokerError, match=r"cluster\.json is damaged"):
        Broker(tmp_path, jars=NEVER_STARTED).start()


def test_a_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="comma"):
        Broker(tmp_path / "a,b", jars=NEVER_STARTED).start()


def test_every_listener_of_every_node_has_its_own_port() -> None:
    where = layout(3, 9092, {"SASL_SSL": "SASL_SSL"})
    assert where.addresses("PLAINTEXT") == "localhost:9092,localhost:9093,localhost:9094"
    ports = [port for node in where.nodes for port in where.node_ports(node)]
    assert len(set(ports)) == 9
    told = node_properties(2, where, Path("storage"), {})
    sasl = where.ports["SASL_SSL"][2]
    assert told["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:9093,SASL_SSL://127.0.0.1:{sasl}"
    assert "SASL_SSL:SASL_SSL" in told["listener.security.protocol.map"]


def test_overrides_have_the_last_word() -> None:
    told = node_properties(1, layout(1, None, {}), Path("s"), {"log.segment.bytes": "1048576"})
    assert told["log.segment.bytes"] == "1048576"


def test_properties_are_escaped_as_java_reads_them() -> None:
    assert properties_text({"log.dirs": "C:\\é😀"}) == "log.dirs=C:\\\\\\u00e9\\ud83d\\ude00\n"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ('Exception in thread "main" a.B: no\n\tat a.b(C.java:1)\n', "a.B: no"),
        ("x\nCaused by: a.B: first\n\tat z\nCaused by: a.B: root\n\t... 3 more\ny", "a.B: root"),
        ("WARNING: old\n2026-01-01T00:00:00,000 INFO started (X)\n", "it said nothing"),
    ],
)
def test_the_last_word_is_the_reason(said: str, word: str) -> None:
    assert last_word(said) == word

"""`gpuvigil worker` as a process: what it says, serves, and how it ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest
from prometheus_client.parser import text_string_to_metric_families

from streams.engine.metrics import COUNTERS, GAUGES, PREFIX
from tests.delivery.cluster import free_port
from tests.kafka_topics import create
from transport.broker import Broker
from transport.connection import Connection
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
TRANSACTIONAL_ID, PREFIXED, WRITE, ALLOW = 5, 4, 4, 3
"""As Kafka's protocol numbers them."""


@contextmanager
def worker(
    bootstrap: str, prefix: str, *options: str, port: int = 0
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "gpuvigil", "worker", "--bootstrap", bootstrap,
            "--web-port", str(port), *options,
        ],
        cwd=ROOT,
        env={**os.environ, "GPUVIGIL_KAFKA__PREFIX": prefix},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def refused(bootstrap: str, prefix: str, *options: str, port: int = 0) -> str:
    """The last line of a worker that ends by itself, with exit code 2 and without a traceback."""
    with worker(bootstrap, prefix, *options, port=port) as process:
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    return said.splitlines()[-1]


def make_topics(bootstrap: str, prefix: str, partitions: int = 2) -> None:
    async def make() -> None:
        async with KafkaAdmin(Connection(bootstrap=bootstrap)) as admin:
            await admin.create(wanted_layouts(prefix, partitions, 1))

    asyncio.run(make())


def answer(port: int, path: str) -> tuple[int, str]:
    """Status and text; 0 while nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as got:
            return got.status, got.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until_ready(port: int, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while answer(port, "/readyz")[0] != 200:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)


def test_it_serves_is_ready_and_ends_in_order(kafka: Broker) -> None:
    make_topics(kafka.bootstrap, "orderly.")
    port = free_port()
    with worker(
        kafka.bootstrap, "orderly.", "--log-format", "json", "--session", "6s", port=port
    ) as process:
        until_ready(port, process)
        assert answer(port, "/livez") == (200, "alive\n")
        assert answer(port, "/anything")[0] == 404
        _, text = answer(port, "/metrics")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert time.monotonic() - begun < 5
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"time", "level", "logger", "message"} == set(lines[0])
    assert lines[-1]["message"] == "stopped"
    served = {family.name for family in text_string_to_metric_families(text)}
    assert {PREFIX + one.name for one in COUNTERS} <= served
    assert {PREFIX + one.name for one in GAUGES} <= served


def test_a_session_below_the_brokers_minimum(kafka: Broker) -> None:
    make_topics(kafka.bootstrap, "short.")
    line = refused(kafka.bootstrap, "short.", "--session", "3s")
    assert line.startswith("gpuvigil: the broker refuses sessions of 3 s; give --session")


def test_topics_that_are_missing(kafka: Broker) -> None:
    line = refused(kafka.bootstrap, "nothing.")
    assert "nothing.gpu.telemetry: is missing" in line
    assert "11 more: `gpuvigil topics check`" in line


def test_topics_of_different_partitions(kafka: Broker) -> None:
    asyncio.run(create(kafka.bootstrap, "uneven.pod.events", partitions=3))
    make_topics(kafka.bootstrap, "uneven.")
    line = refused(kafka.bootstrap, "uneven.")
    assert "uneven.pod.events: partitions is 3, should be 2" in line


def test_a_port_that_is_taken(kafka: Broker) -> None:
    make_topics(kafka.bootstrap, "port.")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(kafka.bootstrap, "port.", port=port)
    assert f"cannot serve metrics on 127.0.0.1:{port} (Address already in use)" in line


def test_a_broker_that_is_not_there_is_tried_again_until_a_signal() -> None:
    with worker(f"127.0.0.1:{free_port()}", "") as process:
        assert process.stderr is not None
        assert "trying again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_missing_acl_ends_it_with_one_line(tmp_path: Path) -> None:
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(tmp_path, overrides=overrides) as broker:
        make_topics(broker.bootstrap, "theirs.")
        asyncio.run(only_for("User:somebody", "theirs.", broker.bootstrap))
        line = refused(broker.bootstrap, "theirs.")
    assert line.startswith("gpuvigil: this client may not")
    assert "transactional id theirs.gpuvigil-" in line


async def only_for(user: str, prefix: str, bootstrap: str) -> None:
    """Nobody else may write transactions whose ids begin so."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    request = CreateAclsRequest(TRANSACTIONAL_ID, prefix, PREFIXED, user, "*", WRITE, ALLOW)
    answered = await client.send(client.get_random_node(), request)
    await client.close()
    assert answered.to_object()["creation_responses"][0]["error_code"] == 0

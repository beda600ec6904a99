"""`gpuvigil topics` on a real Kafka, and the disk that it tells."""

import asyncio
import json
import socket

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from typer.testing import CliRunner, Result

from commands.errors import UsageError
from commands.topic_disk import Load, disk_bytes
from commands.topics import app
from tests.kafka_topics import create, widen
from transport.broker import Broker
from transport.layout import wanted_layouts


@pytest.fixture
def prefix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test has topics of its own."""
    name = f"{request.node.name.removeprefix('test_')}."
    monkeypatch.setenv("GPUVIGIL_KAFKA__PREFIX", name)
    monkeypatch.setenv("COLUMNS", "200")
    return name


def topics(kafka: Broker, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--bootstrap", kafka.bootstrap])
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code in {0, 1}, result.exception
    return result


def described(kafka: Broker) -> dict[str, dict[str, object]]:
    return {one["topic"]: one for one in json.loads(topics(kafka, "describe", "--json").stdout)}


def test_create_check_describe(kafka: Broker, prefix: str) -> None:
    missing = topics(kafka, "check")
    assert missing.exit_code == 1
    assert len(missing.stderr.splitlines()) == 12
    assert f"{prefix}gpu.telemetry: is missing; run" in missing.stderr
    assert not any(one["exists"] for one in described(kafka).values())

    made = topics(kafka, "create", "--partitions", "3")
    assert made.exit_code == 0, made.output
    assert made.stdout.count("created") == 12
    assert "disk on all brokers: about" in made.stdout

    equal = topics(kafka, "check")
    assert (equal.exit_code, equal.stderr) == (0, "")
    assert equal.stdout == "12 topics are as they should be, with 3 partitions\n"

    found = described(kafka)
    telemetry = found[f"{prefix}gpu.telemetry"]
    assert (telemetry["partitions"], telemetry["replication"]) == (3, 1)
    config = telemetry["config"]
    assert isinstance(config, dict)
    assert config["message.timestamp.type"] == "LogAppendTime"
    shown = topics(kafka, "describe").stdout
    assert f"{prefix}gpu.alerts" in shown
    assert "30 d" in shown
    assert "latest of a key" in shown
    assert "8 MiB" in shown


def test_create_again_changes_nothing(kafka: Broker, prefix: str) -> None:
    topics(kafka, "create", "--partitions", "2")
    before = described(kafka)
    again = topics(kafka, "create", "--partitions", "2")
    assert again.exit_code == 0
    assert again.stdout.count("existed") == 12
    other = topics(kafka, "create", "--partitions", "4")
    assert other.exit_code == 1
    assert f"{prefix}gpu.telemetry: partitions is 2, should be 4" in other.stderr
    assert described(kafka) == before


def test_each_kind_of_difference_is_told(kafka: Broker, prefix: str) -> None:
    topics(kafka, "create", "--partitions", "2")
    asyncio.run(spoil(kafka.bootstrap, prefix))
    told = topics(kafka, "check", "--replication", "2")
    assert told.exit_code == 1
    lines = [
        line for line in told.stderr.splitlines() if "replication is 1, should be 2" not in line
    ]
    assert len(told.stderr.splitlines()) == len(lines) + 11
    expected = {
        "gpu.alerts: retention.ms is 1000, should be 2592000000",
        "gpu.demand: is missing",
        "gpu.signals: cleanup.policy is delete, should be compact",
        "gpu.windows: message.timestamp.type is CreateTime, should be LogAppendTime",
        "pod.events: partitions is 3, should be 2",
    }
    assert {line.removeprefix(prefix).split(";")[0] for line in lines} == expected
    again = topics(kafka, "check")
    assert again.stderr.splitlines() == lines, "check mends nothing"


async def spoil(bootstrap: str, prefix: str) -> None:
    changes = {
        "gpu.alerts": ("retention.ms", "1000"),
        "gpu.signals": ("cleanup.policy", "delete"),
        "gpu.windows": ("message.timestamp.type", "CreateTime"),
    }
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    kept = {one.name: dict(one.config) for one in wanted_layouts(prefix)}
    altered = [
        ConfigResource(
            ConfigResourceType.TOPIC, prefix + name, {**kept[prefix + name], setting: value}
        )
        for name, (setting, value) in changes.items()
    ]
    await admin.alter_configs(altered)
    await admin.delete_topics([f"{prefix}gpu.demand"])
    await admin.close()
    await widen(bootstrap, f"{prefix}pod.events", 3)


def test_source_topics_of_different_partitions(kafka: Broker, prefix: str) -> None:
    names = [one.name for one in wanted_layouts(prefix)]
    asyncio.run(create(kafka.bootstrap, *names[:2], partitions=5))
    told = topics(kafka, "check", "--partitions", "7").stderr
    assert f"{prefix}gpu.telemetry: partitions is 5, should be 7" in told
    assert f"{prefix}pod.events: partitions is 5, should be 7" in told


def test_too_many_copies_is_one_line(kafka: Broker, prefix: str) -> None:
    with pytest.raises(UsageError, match=f"could not create {prefix}.*[Rr]eplication") as caught:
        topics(kafka, "create", "--replication", "3")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["create", "check", "describe"])
def test_nobody_there_is_one_line(command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(app, [command, "--bootstrap", server])
    assert isinstance(result.exception, UsageError)
    assert f"no Kafka at {server}" in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.output == ""


def test_the_disk_grows_with_gpus_copies_and_the_rate() -> None:
    def disk(name: str, load: Load, copies: int = 1) -> int:
        layout = next(one for one in wanted_layouts("", 48, copies) if one.name == name)
        return disk_bytes(layout, "", load) or 0

    small, large = Load(10, 8, 1.0), Load(100, 8, 1.0)
    telemetry = disk("gpu.telemetry", small)
    # 10 nodes, 6 KB a second each, a day and an eighth of one, 2.3 times smaller by lz4
    assert telemetry == pytest.approx(10 * 6000 * 86_400 * 1.125 / 2.3, rel=0.001)
    assert disk("gpu.telemetry", large) == pytest.approx(10 * telemetry, rel=0.001)
    assert disk("gpu.telemetry", small, 3) == pytest.approx(3 * telemetry, rel=0.001)
    assert disk("gpu.telemetry", Load(10, 8, 2.0)) == pytest.approx(telemetry / 2, rel=0.001)
    assert disk("gpu.windows", large) > disk("gpu.windows", small) > 0
    assert disk("gpu.state.node", large) > disk("gpu.state.node", small) > 0
    assert disk("gpu.alerts", large) == 0

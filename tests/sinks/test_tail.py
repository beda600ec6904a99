"""The tail on a real broker: everything once, whatever happens to the broker meanwhile."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from commands.alerts import tail
from commands.errors import UsageError
from schemas.alerts import AlertEvent, Subject, moment
from schemas.codec import encode
from sinks.tail import AlertTail, Start, alert_consumer
from tests.kafka_topics import create, widen
from transport.broker import Broker
from transport.contract import UnknownPartitionError
from transport.kafka_closing import closed

VALID_MS = 1_800_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def event(revision: int, incident: str = "one", at_ms: int | None = None) -> AlertEvent:
    at_ms = now_ms() if at_ms is None else at_ms
    return AlertEvent.model_validate(
        {
            "cluster": "c",
            "detector": "under_use",
            "incident_id": incident,
            "revision": revision,
            "valid_until": moment(at_ms + VALID_MS),
            "kind": "idle",
            "status": "firing" if revision == 1 else "updated",
            "tier": "ticket",
            "quality": "exact",
            "subject": Subject(cluster="c", namespace="team", workload="Job/train"),
            "onset": moment(at_ms),
            "opened_at": moment(at_ms),
            "updated_at": moment(at_ms),
            "summary": "does nothing",
            "evidence": {},
            "parameters": {},
        }
    )


async def send(bootstrap: str, topic: str, *sent: tuple[int, AlertEvent | bytes]) -> None:
    """Each value to its partition."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for partition, value in sent:
        raw = value if isinstance(value, bytes) else encode(value)
        await producer.send_and_wait(topic, raw, key=b"k", partition=partition)
    await producer.stop()


@dataclass
class Seen:
    """What a tail showed and said."""

    shown: list[tuple[str, int, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, one: AlertEvent) -> None:
        self.shown.append((one.incident_id, one.revision, one.reason or one.status))


@asynccontextmanager
async def tailing(
    bootstrap: str,
    topic: str,
    *,
    start: Start = "beginning",
    once: bool = False,
    clock_ms: Callable[[], int] = now_ms,
) -> AsyncIterator[Seen]:
    """A tail that runs beside the test; with `once` it has ended when the test goes on."""
    seen = Seen()
    consumer = alert_consumer({"bootstrap_servers": bootstrap})
    await consumer.start()
    following = AlertTail(consumer, topic, seen.show, seen.said.append, clock_ms=clock_ms)
    running: asyncio.Task[None] | None = None
    try:
        await following.open(start)
        running = asyncio.create_task(following.run(seen.stop, once=once))
        if once:
            await running
        yield seen
    finally:
        seen.stop.set()
        if running is not None:
            await running
        await closed(consumer)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition belongs to other code
            await asyncio.sleep(0.05)


async def test_all_partitions_are_read_once_and_repetitions_are_left_out(kafka: Broker) -> None:
    await create(kafka.bootstrap, "tail-all")
    await send(
        kafka.bootstrap,
        "tail-all",
        (0, event(1)),
        (0, event(2)),
        (0, event(2)),
        (0, event(1)),
        (1, b"{"),
        (1, event(1, "two")),
        (3, b'{"type":"node_telemetry"}'),
    )
    async with tailing(kafka.bootstrap, "tail-all", once=True) as seen:
        assert sorted(seen.shown) == [
            ("one", 1, "firing"),
            ("one", 2, "updated"),
            ("two", 1, "firing"),
        ]
        assert len(seen.said) == 2
        assert all(line.startswith("left out: gpu.alerts[") for line in seen.said)


async def test_an_empty_topic_ends_at_once(kafka: Broker) -> None:
    await create(kafka.bootstrap, "tail-empty")
    async with tailing(kafka.bootstrap, "tail-empty", once=True) as seen:
        assert (seen.shown, seen.said) == ([], [])


async def test_a_missing_topic_is_told_and_not_made(kafka: Broker) -> None:
    for _ in range(2):
        with pytest.raises(UnknownPartitionError, match="topics create"):
            async with tailing(kafka.bootstrap, "tail-absent", once=True):
                pass


async def test_it_begins_at_the_end_or_at_a_time(kafka: Broker) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await create(kafka.bootstrap, "tail-from", config=stamped)
    await send(kafka.bootstrap, "tail-from", (0, event(1)))
    await asyncio.sleep(0.05)
    between_ms = now_ms()
    await asyncio.sleep(0.05)
    await send(kafka.bootstrap, "tail-from", (0, event(2)))
    async with tailing(kafka.bootstrap, "tail-from", start=between_ms, once=True) as seen:
        assert seen.shown == [("one", 2, "updated")]
    async with tailing(kafka.bootstrap, "tail-from", start="end") as seen:
        await asyncio.sleep(1)
        await send(kafka.bootstrap, "tail-from", (0, event(3)), (2, event(1, "two")))
        await until(lambda: len(seen.shown) == 2)
        assert sorted(seen.shown) == [("one", 3, "updated"), ("two", 1, "firing")]


async def test_what_nobody_repeats_ends_as_stale(kafka: Broker) -> None:
    await create(kafka.bootstrap, "tail-stale")
    await send(kafka.bootstrap, "tail-stale", (0, event(1)), (1, event(1, "two")))
    ahead_ms = 0

    def clock_ms() -> int:
        return now_ms() + ahead_ms

    async with tailing(kafka.bootstrap, "tail-stale", clock_ms=clock_ms) as seen:
        await until(lambda: len(seen.shown) == 2)
        await asyncio.sleep(1)
        assert len(seen.shown) == 2
        ahead_ms = VALID_MS + 60_000
        await until(lambda: len(seen.shown) == 4)
        assert sorted(seen.shown[2:]) == [("one", 1, "stale"), ("two", 1, "stale")]
        await send(kafka.bootstrap, "tail-stale", (0, event(2, at_ms=clock_ms())))
        await until(lambda: seen.shown[-1] == ("one", 2, "updated"))


@pytest.mark.slow
async def test_new_partitions_are_followed(kafka: Broker) -> None:
    await create(kafka.bootstrap, "tail-grows", partitions=1)
    async with tailing(kafka.bootstrap, "tail-grows") as seen:
        await send(kafka.bootstrap, "tail-grows", (0, event(1)))
        await until(lambda: len(seen.shown) == 1)
        await widen(kafka.bootstrap, "tail-grows", 3)
        await send(kafka.bootstrap, "tail-grows", (2, event(1, "two")))
        await until(lambda: len(seen.shown) == 2, seconds=40)
        await send(kafka.bootstrap, "tail-grows", (0, event(2)))
        await until(lambda: len(seen.shown) == 3)
        assert seen.shown[1:] == [("two", 1, "firing"), ("one", 2, "updated")]
        assert seen.said == ["tail-grows has 3 partitions now; all are followed"]


@pytest.mark.slow
async def test_an_outage_is_said_once_and_nothing_is_missed(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        await create(broker.bootstrap, "tail-outage")
        async with tailing(broker.bootstrap, "tail-outage") as seen:
            await send(broker.bootstrap, "tail-outage", (0, event(1)))
            await until(lambda: len(seen.shown) == 1)
            broker.kill(1)
            await until(lambda: bool(seen.said), seconds=30)
            await asyncio.sleep(3)
            await asyncio.to_thread(broker.start_node, 1)
            await send(broker.bootstrap, "tail-outage", (0, event(2)), (3, event(1, "two")))
            await until(lambda: len(seen.shown) == 3, seconds=30)
            await until(lambda: len(seen.said) == 2)
    assert sorted(seen.shown) == [("one", 1, "firing"), ("one", 2, "updated"), ("two", 1, "firing")]
    assert "following on when it is back" in seen.said[0]
    assert seen.said[1] == "Kafka answers again"


def test_the_command_prints_json_lines_or_words(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUVIGIL_KAFKA__PREFIX", "told-")
    asyncio.run(create(kafka.bootstrap, "told-gpu.alerts"))
    asyncio.run(send(kafka.bootstrap, "told-gpu.alerts", (0, event(1)), (1, b"?")))
    tail(as_json=True, begin="beginning", once=True, bootstrap=kafka.bootstrap)
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["incident_id"] == "one"
    assert printed.err.splitlines()[-1] == "1 alerts are open; 1 records unreadable"
    tail(begin="beginning", once=True, bootstrap=kafka.bootstrap)
    assert "FIRING" in capsys.readouterr().out


@pytest.mark.parametrize("begin", ["yesterday", "", "-1"])
def test_a_start_that_is_no_time_is_one_line(begin: str) -> None:
    with pytest.raises(UsageError, match="--from"):
        tail(begin=begin)

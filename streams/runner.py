"""Both stages in one process, over topics in memory.

The demonstration, replay, `gpuvigil run` and most tests use it.  It publishes what producers say,
feeds each partition in the order of its offsets, and hands on what comes out.
"""

import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from schemas.alerts import AlertEvent
from schemas.codec import Decoder, encode
from schemas.topics import ALERTS, DEADLETTER, PODS, TELEMETRY, WINDOWS, node_key, partition_of
from schemas.windows import WindowContribution
from streams.checkpoints import Checkpoint, CheckpointStore
from streams.outputs import TooManyFaultsError
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from transport.memory import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from schemas.parameters import DetectorParameters
    from schemas.pods import PodEvent
    from schemas.telemetry import NodeTelemetry
    from streams.outputs import Output
    from transport.contract import Record

BATCH_MESSAGES = 256
BATCH_SECONDS = 0.1
"""A batch ends after this much time on the wall, so that alerts come out while a paced source runs.
What comes out does not depend on where batches end."""

CHECKPOINT_SECONDS = 10.0
READ_AT_ONCE = 4096
KEPT_DEAD_LETTERS = 1000


class InProcess:
    """Producers, pipeline and sinks in one process.

    With `state_dir` it keeps checkpoints there and goes on from the last one.  What is lost by a
    kill is what a live source said since then; a source that can be read again loses nothing.
    Events since the checkpoint come out again with the revisions that they had.
    """

    def __init__(
        self,
        parameters: "DetectorParameters",
        *,
        partitions: int = 4,
        state_dir: "Path | None" = None,
    ) -> None:
        self.event_time_ms: int | None = None
        self._partitions = partitions
        topics = dict.fromkeys((TELEMETRY, PODS, WINDOWS, ALERTS, DEADLETTER), partitions)
        self.transport = MemoryTransport(topics, clock=lambda: self.event_time_ms or 0)
        self._one = [StageOne(p, partitions, parameters) for p in range(partitions)]
        self._two = [StageTwo(p, partitions, parameters) for p in range(partitions)]
        self._positions: Counter[tuple[str, int]] = Counter()
        self._taken = 0
        self._alerts = Decoder(AlertEvent, ALERTS)
        self._windows = Decoder(WindowContribution, WINDOWS)
        self._on_alert: Callable[[AlertEvent], None] = lambda _: None
        self._on_window: Callable[[WindowContribution], None] | None = None
        self._store = CheckpointStore(state_dir, partitions) if state_dir else None
        self._saved_at = time.monotonic()
        if self._store:
            self._restore(self._store.load())

    @property
    def counters(self) -> "Counter[str]":
        """What was counted so far, over all partitions."""
        total: Counter[str] = Counter()
        for counted in [s.counters for s in self._one] + [s.counters for s in self._two]:
            total.update(counted)
        return total

    def run(
        self,
        messages: "Iterable[NodeTelemetry | PodEvent]",
        *,
        on_alert: "Callable[[AlertEvent], None]",
        on_window: "Callable[[WindowContribution], None] | None" = None,
    ) -> None:
        """Take messages to their end and call the sinks as events come out.

        The first messages are passed over that a checkpoint says were taken before.
        """
        self._on_alert, self._on_window = on_alert, on_window
        try:
            self._take_all(messages)
        except TooManyFaultsError:
            raise  # nothing that it would still say can be trusted
        except BaseException:
            self.finish()
            raise
        self.finish()

    def finish(self) -> None:
        """The input has ended or was interrupted: save, then close every window.

        The checkpoint comes first, so that a run that goes on later has not closed windows early.
        """
        self._step()
        self._save()
        for one in self._one:
            self._give_up_pods(one)
            self._send(one.finish())
        last = max((one.state.marked_ms for one in self._one), default=0)
        for one in self._one:
            end = last + one.silent_ms + 1
            self._send(one.tick(end, end))
        self._judge()

    def publish_raw(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Put bytes on a source topic as they are, for producers of foreign messages."""
        self.transport.append(topic, partition, key, value)

    def dead_letters(self) -> list[tuple[bytes | None, dict[str, bytes]]]:
        """The newest dead letters as (value, headers)."""
        letters = []
        for partition in range(self._partitions):
            first, end = self.transport.bounds(DEADLETTER, partition)
            records = self.transport.slice(DEADLETTER, partition, first, end - first)
            letters += [(record.value, dict(record.headers)) for record in records]
        return letters

    def _take_all(self, messages: "Iterable[NodeTelemetry | PodEvent]") -> None:
        """Publish in batches; a slow source is not waited for."""
        waiting, stepped_at = 0, time.monotonic()
        for message in islice(messages, self._taken, None):
            self._publish(message)
            waiting += 1
            if waiting >= BATCH_MESSAGES or time.monotonic() - stepped_at >= BATCH_SECONDS:
                self._step()
                waiting, stepped_at = 0, time.monotonic()

    def _publish(self, message: "NodeTelemetry | PodEvent") -> None:
        now = self.event_time_ms
        at = message.observed_at_ms
        self.event_time_ms = at if now is None else max(now, at)
        key = node_key(message.cluster, message.node)
        topic = TELEMETRY if message.type == "node_telemetry" else PODS
        self.transport.append(topic, partition_of(key, self._partitions), key, encode(message))
        self._taken += 1

    def _step(self) -> None:
        for one in self._one:
            self._feed(one)
        self._judge()
        if self._store and time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self._save()

    def _feed(self, one: StageOne) -> None:
        """All new messages of a source partition, pod events first, then the time."""
        for topic in (PODS, TELEMETRY):
            while records := self._read(topic, one.partition):
                self._send(one.process(records))
        self._give_up_pods(one)
        if self.event_time_ms is not None:
            others = max((two.newest_mark_ms for two in self._two), default=0)
            self._send(one.tick(self.event_time_ms, others))

    def _give_up_pods(self, one: StageOne) -> None:
        """Both topics are read to their ends, so what samples still wait for is lost."""
        if one.waits_for_pods:
            self._send(one.give_up_pods())

    def _judge(self) -> None:
        for two in self._two:
            while records := self._read(WINDOWS, two.partition):
                if self._on_window:
                    for record in records:
                        self._on_window(
                            self._windows.decode(
                                record.value, partition=record.partition, offset=record.offset
                            )
                        )
                self._send(two.process(records))
        for partition in range(self._partitions):
            for record in self._read(ALERTS, partition):
                event = self._alerts.decode(
                    record.value, partition=record.partition, offset=record.offset
                )
                self._on_alert(event)
        self._trim()

    def _read(self, topic: str, partition: int) -> "list[Record]":
        position = self._positions[topic, partition]
        records = list(self.transport.slice(topic, partition, position, READ_AT_ONCE))
        self._positions[topic, partition] = position + len(records)
        return records

    def _send(self, outputs: "list[Output]") -> None:
        for out in outputs:
            self.transport.append(out.topic, out.partition, out.key, out.value, out.headers)

    def _trim(self) -> None:
        """Drop what nobody has to read again."""
        for topic, partition, offset in self._resume_points():
            self.transport.trim(topic, partition, offset)
        for partition in range(self._partitions):
            _, end = self.transport.bounds(DEADLETTER, partition)
            self.transport.trim(DEADLETTER, partition, end - KEPT_DEAD_LETTERS)

    def _resume_points(self) -> "list[tuple[str, int, int]]":
        points = [
            (topic, one.partition, offset)
            for one in self._one
            for topic, offset in one.resume_offsets().items()
        ]
        points += [(WINDOWS, two.partition, two.resume_offsets()[WINDOWS]) for two in self._two]
        points += [(ALERTS, p, self._positions[ALERTS, p]) for p in range(self._partitions)]
        return points

    def _save(self) -> None:
        if not self._store:
            return
        tail = []
        for topic, partition, offset in self._resume_points():
            _, end = self.transport.bounds(topic, partition)
            records = self.transport.slice(topic, partition, offset, end - offset)
            tail.append((topic, partition, offset, list(records)))
        for one in self._one:
            one.forget()
        for two in self._two:
            two.forget()
        self._store.save(
            Checkpoint(
                partitions=self._partitions,
                taken=self._taken,
                event_time_ms=self.event_time_ms,
                stage_one=[one.dump() for one in self._one],
                stage_two=[two.dump() for two in self._two],
                tail=tail,
            )
        )
        self._saved_at = time.monotonic()

    def _restore(self, saved: Checkpoint | None) -> None:
        if saved is None:
            return
        self._taken, self.event_time_ms = saved.taken, saved.event_time_ms
        for one, states in zip(self._one, saved.stage_one, strict=True):
            one.load(states)
        for two, states in zip(self._two, saved.stage_two, strict=True):
            two.load(states)
        for topic, partition, offset, records in saved.tail:
            self.transport.restore(topic, partition, offset, records)
            self._positions[topic, partition] = offset

"""Stage one: the nodes of one source partition, from telemetry and pod events to windows."""

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import Struct

from schemas.codec import DecodeError, Decoder
from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry
from schemas.topics import PODS, TELEMETRY, node_key, partition_of
from streams.clock import AheadOfBrokerError
from streams.contributions import contributions
from streams.node import NodeState, NodeStream
from streams.outputs import Output, Quarantine, WrongPartitionError, buried
from streams.states import NewerStateError, checked_version
from streams.windows import WINDOW_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from schemas.parameters import DetectorParameters
    from transport.contract import Record

PARTITION_KEY = b"partition"
NEVER = 1 << 62


class PartitionState(Struct):
    """What a source partition remembers beside its nodes."""

    VERSION: ClassVar[int] = 1

    version: int = 1
    marked_ms: int = 0
    """Every window that ends at or before this has been handed on."""
    now_ms: int = 0
    """Newest append time, or newest event time of streams whose clock is `data`."""
    seen: dict[str, int] = {}
    """Next offset of each topic that was not counted yet."""
    resume: dict[str, int] = {}
    """First offset of each topic that a successor has to read."""
    host_clock: bool = False
    """Whether a node came here whose clock is a real one: then the broker's clock goes on for it
    while it is silent.  A partition of simulated or imported streams, or of none, goes with the
    others."""


class StageOne:
    """The operator of one source partition.  A batch in, a list of outputs out."""

    def __init__(self, partition: int, partitions: int, parameters: "DetectorParameters") -> None:
        self.partition = partition
        self.counters: Counter[str] = Counter()
        self.state = PartitionState()
        self._partitions = partitions
        self._time = parameters.time
        self.silent_ms = round(self._time.silent_after * 1000)
        self._gone_ms = round(self._time.gone_after * 1000)
        self._forget_ms = round(self._time.forget_node_after * 1000)
        self._nodes: dict[str, NodeStream] = {}
        self._forgotten: set[str] = set()
        self._silent: set[str] = set()
        self._silence_due_ms = NEVER
        self._quarantine = Quarantine()
        self._telemetry = Decoder(NodeTelemetry, TELEMETRY)
        self._pods = Decoder(PodEvent, PODS)
        self._outputs: list[Output] = []
        self._positions: Counter[str] = Counter()
        """Next offset of each topic to be taken; below `seen` while a successor reads again."""

    @property
    def progress_ms(self) -> int:
        """Event time up to which every window was handed on."""
        return self.state.marked_ms

    # Batches

    def process(self, records: "Iterable[Record]") -> list[Output]:
        """Take records in the order of each topic; the outputs that follow from them."""
        for record in records:
            self._take(record)
        self._hand_on(self._complete_ms())
        return self._drain()

    def tick(self, broker_ms: int, others_ms: int) -> list[Output]:
        """The partition is read to its end, and the broker's clock stands at `broker_ms`.

        `others_ms` is the newest progress of any source partition: the time of one that has no
        clock of its own.
        """
        self._note_time(broker_ms if self.state.host_clock else others_ms)
        self._hand_on(self._complete_ms())
        return self._drain()

    def give_up_pods(self, before: int = NEVER) -> list[Output]:
        """Pod events are lost that samples below the offset `before` wait for.

        They would lie below an end of their topic that was asked for after those samples came.
        """
        for key, node in list(self._nodes.items()):
            while self._nodes[key] is node and node.waits_for_pods_since < before:
                self._guarded(key, node.give_up_pods)
        self._hand_on(self._complete_ms())
        return self._drain()

    @property
    def waits_for_pods(self) -> bool:
        """Whether a sample refers to pod events that have not come yet."""
        return any(node.waits_for_pods for node in self._nodes.values())

    def finish(self) -> list[Output]:
        """The input has ended: every window is complete."""
        last = self.state.marked_ms
        for key, node in list(self._nodes.items()):
            self._guarded(key, node.flush)
            last = max(last, *(w + WINDOW_MS for w in node.state.windows.closed), 0)
        self._hand_on(last)
        return self._drain()

    # State

    def resume_offsets(self) -> dict[str, int]:
        """For each topic the first offset that a successor has to read."""
        telemetry, pods = self._positions[TELEMETRY], self._positions[PODS]
        for node in self._nodes.values():
            telemetry = min(telemetry, node.resume_telemetry(telemetry))
            pods = min(pods, node.resume_pods(pods))
        return {TELEMETRY: telemetry, PODS: pods}

    def reposition(self, topic: str, offset: int) -> None:
        """The topic begins anew at `offset`: it was made again, or retention cut it.

        What was counted stays; what waits to be counted came from the old topic and stays too.
        """
        is_cut = offset > self._positions[topic]  # then the counted stays counted
        seen = self.state.seen.get(topic, 0)
        self.state.seen[topic] = max(seen, offset) if is_cut else offset
        self._positions[topic] = offset

    def dump(self) -> dict[bytes, bytes | None]:
        """The state by key; None for a key that has ended."""
        self.state.resume = self.resume_offsets()
        states: dict[bytes, bytes | None] = {PARTITION_KEY: msgspec.json.encode(self.state)}
        for key, node in self._nodes.items():
            states[key.encode()] = msgspec.json.encode(node.state)
        states.update({key.encode(): None for key in self._forgotten})
        self._forgotten = set()
        return states

    @staticmethod
    def state_version(key: bytes) -> int:
        """Version of the form in which `dump` writes a key."""
        return PartitionState.VERSION if key == PARTITION_KEY else NodeState.VERSION

    def load(self, states: "Mapping[bytes, bytes | None]") -> None:
        """Take over what `dump` gave.  Raises NewerStateError for a state of a later release."""
        for key, value in states.items():
            if value is None:
                continue
            if key == PARTITION_KEY:
                checked_version(key, value, PartitionState.VERSION)
                self.state = msgspec.json.decode(value, type=PartitionState)
                self._positions.update(self.state.resume)
            else:
                checked_version(key, value, NodeState.VERSION)
                state = msgspec.json.decode(value, type=NodeState)
                self._nodes[key.decode()] = NodeStream(state, self._time, self.counters, again=True)
        for key_, node in self._nodes.items():
            if self.state.now_ms - node.state.seen_ms > self.silent_ms:
                self._silent.add(key_)
        self._silence_due_ms = self._next_silence()

    # One record

    def _take(self, record: "Record") -> None:
        self._positions[record.topic] = record.offset + 1
        again = record.offset < self.state.seen.get(record.topic, 0)
        if not again:
            self.state.seen[record.topic] = record.offset + 1
        try:
            if record.topic == TELEMETRY:
                self._take_sample(record, again=again)
            else:
                self._take_pods(record, again=again)
        except (DecodeError, AheadOfBrokerError, WrongPartitionError) as error:
            reason = error.reason if isinstance(error, DecodeError) else str(error)
            if not again:
                self._bury(record, reason)
        except NewerStateError:
            raise
        except Exception as error:  # noqa: BLE001 - an operator's fault ends its key, not the worker
            self._isolate((record.key or b"").decode(errors="replace"), error, record)

    def _take_sample(self, record: "Record", *, again: bool) -> None:
        sample = self._telemetry.decode(
            record.value, partition=record.partition, offset=record.offset, key=record.key
        )
        data = sample.clock == "data"
        if not again:
            self.state.host_clock |= not data
            self._note_time(sample.observed_at_ms if data else record.append_time_ms)
        key = f"{sample.cluster}/{sample.node}"
        node = self._nodes.get(key) or self._new_node(key, sample.cluster, sample.node)
        node.add(record.offset, record.append_time_ms, sample, again=again)
        if not again:
            self._silent.discard(key)
            due = node.state.seen_ms + self.silent_ms
            self._silence_due_ms = min(self._silence_due_ms, due)

    def _take_pods(self, record: "Record", *, again: bool) -> None:
        event = self._pods.decode(
            record.value, partition=record.partition, offset=record.offset, key=record.key
        )
        if not again and event.clock == "host":
            self.state.host_clock = True
            self._note_time(record.append_time_ms)
        key = f"{event.cluster}/{event.node}"
        node = self._nodes.get(key) or self._new_node(key, event.cluster, event.node)
        node.add_pods(record.offset, event)

    def _new_node(self, key: str, cluster: str, name: str) -> NodeStream:
        self._check_place(cluster, name)
        state = NodeState(cluster=cluster, node=name)
        node = self._nodes[key] = NodeStream(state, self._time, self.counters)
        self._silent.add(key)  # until its first sample: pod events alone hold nobody up
        return node

    def _check_place(self, cluster: str, name: str) -> None:
        place = partition_of(node_key(cluster, name), self._partitions)
        if place != self.partition:
            raise WrongPartitionError(
                f"{cluster}/{name} belongs in partition {place}, not {self.partition}"
            )

    def _bury(self, record: "Record", reason: str) -> None:
        self.counters["dead_letters"] += 1
        self._outputs.append(buried(record, reason))

    def _isolate(self, key: str, error: Exception, record: "Record | None" = None) -> None:
        """A key's operator raised: bury the message, end the key's series, start it anew."""
        self.counters["quarantined"] += 1
        reason = self._quarantine.note(key, self.state.now_ms, error)
        if record is not None:
            self._bury(record, reason)
        broken = self._nodes.get(key)
        if broken is None:
            return
        old = broken.state
        fresh = NodeState(
            cluster=old.cluster,
            node=old.node,
            seen_ms=old.seen_ms,
            newest_ms=old.newest_ms,
            applied_ms=old.newest_ms,
        )
        broken.windows.end_all("state lost", old.applied_ms)
        fresh.windows.ended = old.windows.ended
        self._nodes[key] = NodeStream(fresh, self._time, self.counters)

    def _guarded(self, key: str, action: "Callable[[], None]") -> None:
        """Do something to a node that no single message stands for."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - as in _take
            self._isolate(key, error)

    # Time

    def _note_time(self, now_ms: int) -> None:
        if self.state.host_clock:
            self._excuse(now_ms - self.state.now_ms)
        self.state.now_ms = max(self.state.now_ms, now_ms)
        if self.state.now_ms > self._silence_due_ms:
            self._leave_silent()

    def _excuse(self, gap_ms: int) -> None:
        """Kafka was away for so long that nobody could say anything: that is nobody's silence.

        What the agents kept meanwhile comes in any order of the nodes.  While Kafka is there, the
        time goes on in small steps, by records or by ticks.
        """
        if not self.state.now_ms or gap_ms <= self.silent_ms // 2:
            return
        for key, node in self._nodes.items():
            if key not in self._silent:
                node.state.seen_ms += gap_ms
        self._silence_due_ms = self._next_silence()

    def _leave_silent(self) -> None:
        """Nodes that said nothing for long hold nobody up; what they had counts as complete."""
        for key, node in list(self._nodes.items()):
            if key in self._silent or self.state.now_ms - node.state.seen_ms <= self.silent_ms:
                continue
            self._silent.add(key)
            self.counters["silent_nodes"] += 1
            self._guarded(key, node.flush)
        self._silence_due_ms = self._next_silence()

    def _next_silence(self) -> int:
        return min(
            (
                n.state.seen_ms + self.silent_ms
                for k, n in self._nodes.items()
                if k not in self._silent
            ),
            default=NEVER,
        )

    def _complete_ms(self) -> int:
        """Up to where the partition knows everything."""
        progress = [n.progress_ms for k, n in self._nodes.items() if k not in self._silent]
        return min(progress, default=self.state.now_ms - self.silent_ms)

    def _hand_on(self, complete_ms: int) -> None:
        """Give each finished window to stage two, in order, then a mark of the progress."""
        upto = complete_ms - complete_ms % WINDOW_MS
        if upto <= self.state.marked_ms:
            return
        for start in self._due(upto):
            self._emit(start, start + WINDOW_MS)
            self.state.marked_ms = start + WINDOW_MS
        if upto > self.state.marked_ms:
            self._emit(upto - WINDOW_MS, upto)
            self.state.marked_ms = upto

    def _due(self, upto: int) -> list[int]:
        """Starts of the windows to hand on; what came after its window was handed on is late."""
        starts: set[int] = set()
        for key, node in self._nodes.items():
            if key in self._silent and not node.state.gone:
                gone_at = self._gone_window(node)
                if gone_at + WINDOW_MS <= upto:
                    starts.add(max(gone_at, self.state.marked_ms))
            ends = {max(e.start_ms, self.state.marked_ms) for e in node.state.windows.ended}
            starts |= {start for start in ends if start + WINDOW_MS <= upto}
            closed = node.state.windows.closed
            for start in [one for one in closed if one + WINDOW_MS <= upto]:
                if start < self.state.marked_ms:
                    self.counters["late_windows"] += 1
                    del closed[start]
                else:
                    starts.add(start)
        return sorted(starts)

    def _emit(self, start_ms: int, end_ms: int) -> None:
        """One message to each target partition, the nodes' parts in the order of their names."""
        parts = []
        for key in sorted(self._nodes):
            node = self._nodes[key]
            self._retire(key, node, end_ms)
            parts += [(key, part) for part in node.windows.take(start_ms)]
        window = max(start_ms, 0), end_ms
        self._outputs += contributions(self.partition, self._partitions, window, parts)

    def _retire(self, key: str, node: NodeStream, end_ms: int) -> None:
        """A node that has been silent for long is gone."""
        if key not in self._silent or node.state.gone:
            return
        if self._gone_window(node) + WINDOW_MS <= end_ms:
            node.leave()
            self.counters["gone_nodes"] += 1

    def _gone_window(self, node: NodeStream) -> int:
        """Start of the window in which a silent node ends, whenever it is looked at."""
        at = node.state.newest_ms + self._gone_ms
        return at - at % WINDOW_MS

    def forget(self) -> None:
        """Drop the nodes that were gone for a day; call before `dump`."""
        for key, node in list(self._nodes.items()):
            if node.state.gone and self.state.now_ms - node.state.seen_ms > self._forget_ms:
                del self._nodes[key]
                self._silent.discard(key)
                self._forgotten.add(key)

    def _drain(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

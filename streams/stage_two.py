"""Stage two: the workloads of one target partition, judged when every source has reported."""

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
from msgspec import Struct, field

from schemas import hot
from schemas.cloud_events import alert_headers
from schemas.codec import DecodeError, Decoder, encode
from schemas.topics import ALERTS, WINDOWS, partition_of
from schemas.windows import WindowContribution
from streams.contributions import merged
from streams.incidents import IncidentLife, IncidentsState, alert_key
from streams.leak import Leak, LeakState
from streams.outputs import Output, Quarantine, buried
from streams.prices import Prices
from streams.stage_one import PARTITION_KEY
from streams.states import checked_version
from streams.under_use import UnderUse, UnderUseState
from streams.workload_use import series_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.alerts import AlertEvent
    from schemas.parameters import DetectorParameters
    from schemas.windows import WorkloadWindow
    from streams.verdicts import Detector
    from transport.contract import Record


class WorkloadState(Struct):
    """Everything about a workload, or a device whose pods are not known."""

    VERSION: ClassVar[int] = 1

    version: int = 1
    last_ms: int = 0
    """End of the last window in which it had a series."""
    live: dict[str, str] = {}
    """Node of each series that has not ended, by `device uuid|pod uid`."""
    under_use: UnderUseState = field(default_factory=UnderUseState)
    incidents: IncidentsState = field(default_factory=IncidentsState)
    leak: LeakState = field(default_factory=LeakState)
    leak_incidents: IncidentsState = field(default_factory=IncidentsState)

    @property
    def open_incidents(self) -> int:
        """How many alerts of the workload are open."""
        lives = self.incidents, self.leak_incidents
        return sum(
            one.resolved_at_ms is None
            for life in lives
            for incidents in life.subjects.values()
            for one in incidents
        )


class Watch(NamedTuple):
    """A detector of one workload with the life of its alerts."""

    detector: "Detector"
    life: IncidentLife


class Workload:
    """The detectors and the alerts of one workload."""

    def __init__(self, key: str, state: WorkloadState, parameters: "DetectorParameters") -> None:
        self.key = key
        self.state = state
        prices = Prices(parameters.prices)
        # A further detector is a line here and its two states in WorkloadState.
        self._watches = (
            Watch(
                UnderUse(parameters.under_use, prices, state.under_use),
                IncidentLife(parameters.alerts, state.incidents),
            ),
            Watch(
                Leak(parameters.leak, state.leak),
                IncidentLife(parameters.alerts, state.leak_incidents),
            ),
        )

    def judge(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> "list[AlertEvent]":
        """The events that follow from a window with all the workload's series."""
        for end in window.ended:
            self.state.live.pop(series_key(end), None)
        for series in window.series:
            self.state.live[series_key(series)] = series.node
        if not self.state.live:
            return self._end(window, start_ms, end_ms)
        if not window.series:
            return []
        self.state.last_ms = end_ms
        whole = self._with_missing(window)
        return [
            event
            for detector, life in self._watches
            for event in life.step(
                self.key,
                detector.update(whole, start_ms, end_ms),
                end_ms,
                detector.describe,
                detector.close_reason,
            )
        ]

    def lose(self, now_ms: int) -> "list[AlertEvent]":
        """Its operator raised: what is open ends."""
        return [
            e for watch in self._watches for e in watch.life.end(self.key, now_ms, "state lost")
        ]

    def _end(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> "list[AlertEvent]":
        """The last series has ended, for the reason that the window gives."""
        reason = str(window.ended[-1].reason) if window.ended else "recovered"
        events: list[AlertEvent] = []
        for detector, life in self._watches:
            detector.update(window, start_ms, end_ms)
            events += life.end(self.key, end_ms, reason)
        return events

    def _with_missing(self, window: "WorkloadWindow") -> "WorkloadWindow":
        """A series that is live but says nothing in this window is unknown, not absent."""
        if len(window.series) >= len(self.state.live):
            return window
        seen = {series_key(one) for one in window.series}
        silent = tuple(
            hot.SeriesWindow(
                node=node,
                device_uuid=key.partition("|")[0],
                pod_uid=key.partition("|")[2] or None,
                coverage_seconds=0.0,
                interval_seconds=0.0,
            )
            for key, node in self.state.live.items()
            if key not in seen
        )
        return msgspec.structs.replace(window, series=window.series + silent)  # type: ignore[type-var]


class StageTwoState(Struct):
    """What a target partition remembers beside its workloads."""

    VERSION: ClassVar[int] = 1

    version: int = 1
    marks: dict[int, int] = {}
    """Watermark of each source partition."""
    judged_ms: int = 0
    """Every window that ends at or before this has been judged."""
    seen: int = 0
    """Next offset of `gpu.windows` that was not counted yet."""
    resume: int = 0
    """First offset that was not judged at the last dump."""


class StageTwo:
    """The operator of one target partition.  A batch in, a list of outputs out."""

    def __init__(self, partition: int, sources: int, parameters: "DetectorParameters") -> None:
        self.partition = partition
        self.counters: Counter[str] = Counter()
        self.state = StageTwoState()
        self._sources = sources
        self._parameters = parameters
        self._forget_ms = round(parameters.time.forget_workload_after * 1000)
        self._workloads: dict[str, Workload] = {}
        self._waiting: dict[int, list[tuple[int, int, WindowContribution]]] = {}
        """By end of the window: (source partition, offset, contribution)."""
        self._taken: dict[int, tuple[int, int]] = {}
        """By source: the end and part of its newest contribution that waits here or was judged."""
        self._position = 0
        """Next offset to be taken; below `seen` while a successor reads again."""
        self._forgotten: set[str] = set()
        self._quarantine = Quarantine()
        self._decoder = Decoder(WindowContribution, WINDOWS)

    @property
    def newest_mark_ms(self) -> int:
        """Progress of the source partition that is furthest."""
        return max(self.state.marks.values(), default=0)

    @property
    def progress_ms(self) -> int:
        """Event time up to which every window was judged."""
        return self.state.judged_ms

    def process(self, records: "Iterable[Record]") -> list[Output]:
        """Take contributions and judge every window that all sources have passed."""
        outputs: list[Output] = []
        for record in records:
            self._position = record.offset + 1
            again = record.offset < self.state.seen
            self.state.seen = max(self.state.seen, record.offset + 1)
            try:
                self._take(record, again=again)
            except DecodeError as error:
                if again:
                    continue
                self.counters["dead_letters"] += 1
                outputs.append(buried(record, error.reason))
        read_again = self._position >= self.state.seen
        if read_again and len(self.state.marks) == self._sources:
            self._judge_up_to(min(self.state.marks.values()), outputs)
        return outputs

    def resume_offsets(self) -> dict[str, int]:
        """For its topic the first offset that a successor has to read."""
        waiting = [offset for parts in self._waiting.values() for _, offset, _ in parts]
        return {WINDOWS: min([*waiting, self._position])}

    def reposition(self, topic: str, offset: int) -> None:
        """The topic begins anew at `offset`: it was made again, or retention cut it."""
        del topic
        is_cut = offset > self._position  # then what was counted before the restart stays counted
        self.state.seen = max(self.state.seen, offset) if is_cut else offset
        self._position = offset

    def dump(self) -> dict[bytes, bytes | None]:
        """The state by key; None for a key that has ended."""
        self.state.resume = self.resume_offsets()[WINDOWS]
        states: dict[bytes, bytes | None] = {PARTITION_KEY: msgspec.json.encode(self.state)}
        for key, workload in self._workloads.items():
            states[key.encode()] = msgspec.json.encode(workload.state)
        states.update({key.encode(): None for key in self._forgotten})
        self._forgotten = set()
        return states

    @staticmethod
    def state_version(key: bytes) -> int:
        """Version of the form in which `dump` writes a key."""
        return StageTwoState.VERSION if key == PARTITION_KEY else WorkloadState.VERSION

    def load(self, states: "Mapping[bytes, bytes | None]") -> None:
        """Take over what `dump` gave.  Raises NewerStateError for a state of a later release."""
        for key, value in states.items():
            if value is None:
                continue
            if key == PARTITION_KEY:
                checked_version(key, value, StageTwoState.VERSION)
                self.state = msgspec.json.decode(value, type=StageTwoState)
                self._position = self.state.resume
            else:
                checked_version(key, value, WorkloadState.VERSION)
                state = msgspec.json.decode(value, type=WorkloadState)
                name = key.decode()
                self._workloads[name] = Workload(name, state, self._parameters)

    def forget(self) -> None:
        """Drop workloads without a device for long; call before `dump`."""
        for key, workload in list(self._workloads.items()):
            state = workload.state
            if not state.live and self.state.judged_ms - state.last_ms > self._forget_ms:
                del self._workloads[key]
                self._forgotten.add(key)

    def _take(self, record: "Record", *, again: bool) -> None:
        message = self._decoder.decode(
            record.value, partition=record.partition, offset=record.offset
        )
        source = message.source_partition
        place = message.end_ms, message.part
        mark = self.state.marks.get(source, 0)
        if place <= self._taken.get(source, (0, 0)) or (not again and message.end_ms <= mark):
            # Its writer was followed by another one, which said it again.
            self.counters["repeated_windows"] += not again
            return
        self._taken[source] = place
        self.state.marks[source] = max(mark, message.watermark_ms)
        if not message.workloads:
            return
        if message.end_ms <= self.state.judged_ms:
            self.counters["late_windows"] += not again
            return
        self._waiting.setdefault(message.end_ms, []).append((source, record.offset, message))

    def _judge_up_to(self, complete_ms: int, outputs: list[Output]) -> None:
        for end_ms in sorted(end for end in self._waiting if end <= complete_ms):
            parts = sorted(self._waiting.pop(end_ms), key=lambda part: part[:2])
            self._judge_window(end_ms, parts, outputs)
        self.state.judged_ms = max(self.state.judged_ms, complete_ms)

    def _judge_window(
        self, end_ms: int, parts: list[tuple[int, int, WindowContribution]], outputs: list[Output]
    ) -> None:
        grouped: dict[str, list[WorkloadWindow]] = {}
        start_ms = parts[0][2].start_ms
        for _, _, message in parts:
            for workload in message.workloads:
                grouped.setdefault(_subject(workload), []).append(workload)
        for key in sorted(grouped):
            for event in self._judge_workload(key, merged(grouped[key]), start_ms, end_ms):
                name = alert_key(event)
                place = partition_of(name, self._sources)
                outputs.append(Output(ALERTS, place, name, encode(event), alert_headers(event)))

    def _judge_workload(
        self, key: str, window: "WorkloadWindow", start_ms: int, end_ms: int
    ) -> "list[AlertEvent]":
        workload = self._workloads.get(key)
        if workload is None:
            workload = Workload(key, WorkloadState(), self._parameters)
            self._workloads[key] = workload
        try:
            return workload.judge(window, start_ms, end_ms)
        except Exception as error:  # noqa: BLE001 - an operator's fault ends its key, not the worker
            self.counters["quarantined"] += 1
            self._quarantine.note(key, end_ms, error)
            del self._workloads[key]
            return workload.lose(end_ms)


def _subject(window: "WorkloadWindow") -> str:
    if window.kind is None:
        return f"{window.cluster}//{window.name}"
    return f"{window.cluster}/{window.namespace}/{window.kind}/{window.name}"

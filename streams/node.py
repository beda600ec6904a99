"""One node: its samples are put in order, wait for their pods, and are counted once."""

import heapq
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from streams.clock import ClockState, effective_ms
from streams.join import PodJoin, PodState
from streams.node_windows import NodeWindows, WindowsState

if TYPE_CHECKING:
    from collections import Counter

    from schemas.parameters import TimeParameters
    from schemas.pods import PodEvent
    from schemas.telemetry import NodeTelemetry

LONGEST_COVER = 1.5
"""Intervals that a sample covers at most when the next one is missing."""

RECENT = 32
"""Samples by which a repetition is told from a late sample."""

NEVER = 1 << 62


class NodeState(Struct):
    """Everything about a node that outlives a restart.

    Samples that wait to be ordered are not in it: a successor reads them again from the topic.
    """

    VERSION: ClassVar[int] = 1

    cluster: str
    node: str
    version: int = 1
    clock: ClockState = field(default_factory=ClockState)
    pods: PodState = field(default_factory=PodState)
    windows: WindowsState = field(default_factory=WindowsState)
    newest_ms: int = 0
    """Newest effective time."""
    first_ms: int = 0
    """Earliest effective time before anything was counted."""
    applied_ms: int = 0
    """Everything before this has been counted."""
    seen_ms: int = 0
    """Append time of its newest message; the newest effective time where its clock is `data`."""
    recent: list[tuple[str, int]] = []
    gone: bool = False


Held = tuple[int, str, int, int, "NodeTelemetry"]
"""(effective time, boot id, sequence, offset, sample): the order in which samples count."""


class NodeStream:
    """The operator of one node; feed it messages in topic order."""

    def __init__(
        self, state: NodeState, parameters: "TimeParameters", counters: "Counter[str]"
    ) -> None:
        self.state = state
        self.windows = NodeWindows(state.cluster, state.node, state.windows, state.pods)
        self.waits_for_pods = False
        self._join = PodJoin(state.pods)
        self._held: list[Held] = []
        self._identities = set(state.recent)
        """Of the samples that are held or were counted last: one of these is a repetition."""
        self._counters = counters
        self._lateness_ms = round(parameters.lateness * 1000)
        self._tolerance_ms = round(parameters.skew_tolerance * 1000)

    def add(self, offset: int, append_ms: int, sample: "NodeTelemetry", *, again: bool) -> None:
        """Take a scrape.  `again`: it was taken before a restart, so it is only put in order.

        Raises AheadOfBrokerError for one that lies ahead of the broker's clock.
        """
        state = self.state
        effective = self._time_of(sample, append_ms, again=again)
        if not again:
            seen = effective if sample.clock == "data" else append_ms
            state.seen_ms = max(state.seen_ms, seen)
            state.gone = False
        if not self._is_new(sample, effective, again=again):
            return
        state.newest_ms = max(state.newest_ms, effective)
        state.first_ms = min(state.first_ms or effective, effective)
        heapq.heappush(self._held, (effective, sample.boot_id, sample.sequence, offset, sample))
        self._identities.add((sample.boot_id, sample.sequence))
        self._release()

    def add_pods(self, offset: int, event: "PodEvent") -> None:
        """Take a pod event in topic order."""
        self._join.add(offset, event)
        self._release()

    def give_up_pods(self) -> None:
        """The pod events that the first sample waits for are lost: count it with what there is."""
        if self.waits_for_pods:
            self._counters["lost_pod_events"] += 1
            self._join.give_up()
            self._apply_first()
            self._release()

    @property
    def progress_ms(self) -> int:
        """Windows that end at or before this are complete."""
        state = self.state
        return min(state.newest_ms - self._lateness_ms, state.applied_ms or state.first_ms)

    def resume_telemetry(self, default: int) -> int:
        """First telemetry offset that a successor has to read again."""
        return min((item[3] for item in self._held), default=default)

    def resume_pods(self, default: int) -> int:
        """First pod event that a successor has to read again."""
        return self._join.waiting[0][0] if self._join.waiting else default

    @property
    def waits_for_pods_since(self) -> int:
        """Offset of the sample that waits for pod events; NEVER where none does."""
        return self._held[0][3] if self.waits_for_pods and self._held else NEVER

    def flush(self) -> None:
        """Count what is held and close the window in progress: nothing more is expected."""
        while self._held:
            first = self._held[0]
            if not self._join.advance(first[4].pod_version, first[0]):
                self._counters["lost_pod_events"] += 1
                self._join.give_up()
            self._apply_first()
        self.windows.close()

    def leave(self) -> None:
        """The node is gone: its series end."""
        self.flush()
        self.windows.end_all("node silent")
        self.state.gone = True

    def _time_of(self, sample: "NodeTelemetry", append_ms: int, *, again: bool) -> int:
        if sample.clock == "data":
            return sample.observed_at_ms
        clock = self.state.clock
        if again:
            return sample.observed_at_ms + clock.shift_ms
        before = clock.shift_ms
        effective = effective_ms(clock, sample.observed_at_ms, append_ms, self._tolerance_ms)
        if clock.shift_ms and not before:
            self._counters["skewed_nodes"] += 1
        return effective

    def _is_new(self, sample: "NodeTelemetry", effective: int, *, again: bool) -> bool:
        repeated = (sample.boot_id, sample.sequence) in self._identities
        if not repeated and effective >= self.state.applied_ms:
            return True
        if not again:
            self._counters["repeated" if repeated else "late"] += 1
        return False

    def _release(self) -> None:
        """Count every sample whose successor is certain: it covers the time up to that one."""
        certain = self.state.newest_ms - self._lateness_ms
        while self._successor_ms() <= certain:
            first = self._held[0]
            self.waits_for_pods = not self._join.advance(first[4].pod_version, first[0])
            if self.waits_for_pods:
                return
            self._apply_first()

    def _successor_ms(self) -> int:
        """Time of the second sample in order; NEVER where there is none."""
        held = self._held
        if len(held) <= 2:  # noqa: PLR2004 - a heap's second is one of the root's two children
            return held[1][0] if len(held) > 1 else NEVER
        return min(held[1][0], held[2][0])

    def _apply_first(self) -> None:
        """Count the first sample up to the next one, at most 1.5 intervals."""
        start, boot_id, sequence, _, sample = heapq.heappop(self._held)
        self.waits_for_pods = False
        state = self.state
        state.recent.append((boot_id, sequence))
        if len(state.recent) > RECENT:
            self._identities.discard(state.recent.pop(0))
        longest = start + round(sample.interval_seconds * 1000 * LONGEST_COVER)
        upto = self._held[0][0] if self._held else longest
        start = max(start, state.applied_ms)
        self._counters["gpu_samples"] += len(sample.devices)
        self.windows.cover(sample, start, min(upto, longest))
        state.applied_ms = max(state.applied_ms, upto)
        self.windows.close_before(state.applied_ms)

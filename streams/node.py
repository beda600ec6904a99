"""One node: its samples are put in order, wait for their pods, and are counted window by window."""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct, field

from streams.clock import AheadOfBrokerError, ClockState, effective_ms
from streams.join import PodJoin, PodState
from streams.node_windows import NodeWindows, WindowsState
from streams.windows import WINDOW_MS

if TYPE_CHECKING:
    from collections import Counter

    from schemas.parameters import TimeParameters
    from schemas.pods import PodEvent
    from schemas.telemetry import NodeTelemetry

LONGEST_COVER = 1.5
"""Intervals that a sample covers at most when the next one is missing."""

RECENT = 32
"""Samples by which a repetition is told from a late sample."""

REFUSED = 64
"""Refused samples that a successor is told of; it reads far fewer again."""

NEVER = 1 << 62


class NodeState(Struct):
    """Everything about a node that outlives a restart.

    Samples that are not counted yet are not in it: a successor reads them again from the topic, and
    with them the last one or two that were counted, which the next window still looks back at.
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
    """Identities of the last samples that nothing needs any more."""
    kept: list[tuple[str, int]] = []
    """Identities of the counted samples that the next window looks back at."""
    refused: list[int] = []
    """Telemetry offsets of the last samples that lay ahead of the broker's clock."""
    gone: bool = False


class Held(NamedTuple):
    """A sample, in the order in which samples count."""

    effective_ms: int
    boot_id: str
    sequence: int
    offset: int
    sample: "NodeTelemetry"
    longest_ms: int
    """Time up to which it counts at most."""


class Due(NamedTuple):
    """A window that can be counted: the samples from `first` to before `last`."""

    end_ms: int
    first: int
    last: int


class NodeStream:
    """The operator of one node; feed it messages in topic order."""

    def __init__(
        self,
        state: NodeState,
        parameters: "TimeParameters",
        counters: "Counter[str]",
        *,
        again: bool = False,
    ) -> None:
        """`again`: the state comes from before a restart, and messages will come a second time."""
        self.state = state
        self.windows = NodeWindows(state.cluster, state.node, state.windows, state.pods)
        self.waits_for_pods_since = NEVER
        """Offset of the newest sample that holds up its window for pod events; NEVER if none."""
        self._again = again
        self._join = PodJoin(state.pods)
        self._held: list[Held] = []
        """In order; the first one may be counted already, and the next in part."""
        self._end_ms = NEVER
        """End of the first window that is not counted; before it nothing has to be looked at."""
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
        if again and offset in state.refused:
            return
        effective = self._time_of(offset, sample, append_ms, again=again)
        if not again:
            seen = effective if sample.clock == "data" else append_ms
            state.seen_ms = max(state.seen_ms, seen)
            state.gone = False
        if not self._is_new(sample, effective, again=again):
            return
        state.newest_ms = max(state.newest_ms, effective)
        state.first_ms = min(state.first_ms or effective, effective)
        boot_id, sequence = sample.boot_id, sample.sequence
        longest = effective + round(sample.interval_seconds * 1000 * LONGEST_COVER)
        insort(self._held, Held(effective, boot_id, sequence, offset, sample, longest))
        self._identities.add((boot_id, sequence))
        self._end_ms = min(self._end_ms, effective - effective % WINDOW_MS + WINDOW_MS)
        self._again &= again
        self._release()

    def add_pods(self, offset: int, event: "PodEvent") -> None:
        """Take a pod event in topic order."""
        self._join.add(offset, event)
        self._release()

    def give_up_pods(self) -> None:
        """The pod events that a window waits for are lost: count it with what there is."""
        self.waits_for_pods_since = NEVER
        if due := self._due():
            self._count(due)
            self._release()

    @property
    def waits_for_pods(self) -> bool:
        """Whether a window can't be counted because pod events have not come yet."""
        return self.waits_for_pods_since != NEVER

    @property
    def progress_ms(self) -> int:
        """Windows that end at or before this are complete."""
        state = self.state
        return min(state.newest_ms - self._lateness_ms, state.applied_ms or state.first_ms)

    def resume_telemetry(self, default: int) -> int:
        """First telemetry offset that a successor has to read again."""
        return min((held.offset for held in self._held), default=default)

    def resume_pods(self, default: int) -> int:
        """First pod event that a successor has to read again."""
        return self._join.waiting[0][0] if self._join.waiting else default

    def flush(self) -> None:
        """Count everything that is held: nothing more is expected."""
        while (first := self._first()) < len(self._held):
            end = self._window_end(first)
            self._count(Due(end, first, bisect_left(self._held, (end,), first)))
        self._retire(len(self._held))

    def leave(self) -> None:
        """The node is gone: its series end."""
        self.flush()
        self.windows.end_all("node silent")
        self.state.gone = True

    def _time_of(self, offset: int, sample: "NodeTelemetry", append_ms: int, *, again: bool) -> int:
        if sample.clock == "data":
            return sample.observed_at_ms
        clock = self.state.clock
        if again:
            return sample.observed_at_ms + clock.shift_ms
        before = clock.shift_ms
        try:
            effective = effective_ms(clock, sample.observed_at_ms, append_ms, self._tolerance_ms)
        except AheadOfBrokerError:
            self.state.refused = [*self.state.refused, offset][-REFUSED:]
            raise
        if clock.shift_ms and not before:
            self._counters["skewed_nodes"] += 1
        return effective

    def _is_new(self, sample: "NodeTelemetry", effective: int, *, again: bool) -> bool:
        identity = sample.boot_id, sample.sequence
        repeated = identity in self._identities
        if not repeated and (
            effective >= self.state.applied_ms or (again and identity in self.state.kept)
        ):
            return True
        if not again:
            self._counters["repeated" if repeated else "late"] += 1
        return False

    # Windows

    def _release(self) -> None:
        """Count every window whose samples are certain, and who held its devices then.

        Not before everything is read again that was read before a restart: what was certain then
        is counted, and what is missing now would not be waited for.
        """
        while not self._again and (due := self._due()):
            self.waits_for_pods_since = self._missing_pods(due)
            if self.waits_for_pods:
                return
            self._count(due)

    def _due(self) -> Due | None:
        """The next window, if no sample of it can come any more.

        Its last sample counts up to the one after it, so that one has to be certain, too.
        """
        held, certain = self._held, self.state.newest_ms - self._lateness_ms
        if self._end_ms > certain:
            return None
        first = self._first()
        if first >= len(held):
            return None
        end = self._end_ms = self._window_end(first)
        if end > certain:
            return None
        last = bisect_left(held, (end,), first)
        if last == len(held) or held[last].effective_ms > certain:
            return None
        return Due(end, first, last)

    def _first(self) -> int:
        """The first sample that is not wholly counted."""
        return 1 if self._held and self._upto(0) <= self.state.applied_ms else 0

    def _upto(self, index: int) -> int:
        """Time up to which a sample counts: to the next one, or as long as it can."""
        longest = self._held[index].longest_ms
        if index + 1 == len(self._held):
            return longest
        return min(self._held[index + 1].effective_ms, longest)

    def _window_end(self, first: int) -> int:
        start = max(self._held[first].effective_ms, self.state.applied_ms)
        return start - start % WINDOW_MS + WINDOW_MS

    def _missing_pods(self, due: Due) -> int:
        """The newest offset among the window's samples that wait for pod events, else NEVER."""
        missing, version, reached = NEVER, None, True
        for held in self._held[due.first : due.last]:
            if held.sample.pod_version != version:
                version = held.sample.pod_version
                reached = version is None or self._join.can_reach(version)
            if not reached:
                missing = held.offset if missing == NEVER else max(missing, held.offset)
        return missing

    def _count(self, due: Due) -> None:
        """Count a window, with the pods as they were at each sample."""
        held, state, samples = self._held, self.state, 0
        self.waits_for_pods_since = NEVER
        self.windows.begin(held[due.first - 1].sample if due.first else None)
        for index in range(due.first, due.last):
            one = held[index]
            if not self._join.advance(one.sample.pod_version, one.effective_ms):
                self._counters["lost_pod_events"] += 1
                self._join.give_up()
            start = max(one.effective_ms, state.applied_ms)
            self.windows.cover(one.sample, start, min(self._upto(index), due.end_ms) - start)
            if one.effective_ms == start:  # else the window before has counted it
                samples += len(one.sample.devices)
        self._counters["gpu_samples"] += samples
        self.windows.close(due.end_ms - WINDOW_MS)
        upto = self._upto(due.last - 1)
        reaches_on = upto > due.end_ms
        if reaches_on:
            state.applied_ms = due.end_ms
        else:
            state.applied_ms = held[due.last].effective_ms if due.last < len(held) else upto
        self._retire(due.last - 2 if reaches_on else due.last - 1)
        self._end_ms = due.end_ms  # of the next one at the earliest: it is found when that is near

    def _retire(self, count: int) -> None:
        """Drop the first samples, which nothing needs any more."""
        for one in self._held[: max(0, count)]:
            self.state.recent.append((one.boot_id, one.sequence))
            if len(self.state.recent) > RECENT:
                self._identities.discard(self.state.recent.pop(0))
        del self._held[: max(0, count)]
        counted = [h for h in self._held[:2] if h.effective_ms < self.state.applied_ms]
        self.state.kept = [(one.boot_id, one.sequence) for one in counted]

"""Memory that grows until the card is full, for a workload over all its devices.

A leak's end is what a user wants to know in time; what tells it from healthy growth is asked in
`leak_gates`, of the floors that `floors` keeps.
"""

from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from streams import leak_evidence
from streams.floor_trend import Slope, mann_kendall, theil_sen
from streams.floors import BUCKET_SECONDS, STEP_BYTES, Floors
from streams.leak_gates import LEAST_FLOORS, Room, rising
from streams.workload_use import known_memory_bytes, series_key

if TYPE_CHECKING:
    from schemas.alerts import AlertKind
    from schemas.parameters import LeakParameters
    from schemas.windows import SeriesWindow, WorkloadWindow
    from streams.verdicts import Verdict

EVIDENCE_Z = 2.0
"""Score at which an open leak still counts as going on: once certain, it need not be so again."""
FULL_FRACTION = 0.97
"""Of the limit, from which a leak can't grow any more and is no less one."""
RELEASED_SECONDS = 30.0
RELEASED_OF_LEVEL, RELEASED_OF_LIMIT = 0.5, 0.1
"""A process has ended where memory is below both parts, of its level and of the limit, so long."""
RAN_OUT_FRACTION = 0.9
"""What ended below this part of its limit did not end for want of memory: if it grows again, then
no higher than before is a tooth of a saw."""
LIMIT_CHANGE = 0.01
"""A limit that differs by more than this part is another device's, such as a new MIG layout's."""
HIGHEST_FILL = 1.05
"""More than this part of the memory is no reading."""


class OpenLeak(Struct, array_like=True):
    """A leak that was found in a series."""

    onset_ms: int
    scale: int
    floor_then: int
    """In steps, as all floors here."""
    floor_opened: int
    evidence_ms: int
    """When it last looked like one."""
    z: float
    slope: Slope
    """In steps from one bucket to the next."""


class LeakSeries(Struct, array_like=True):
    """What is remembered of one series."""

    limit_bytes: int
    ready_ms: int
    """When its warm-up is over."""
    room: int = 0
    """What it may still take, in steps, at the newest floor: less than its limit leaves where
    others hold the device too."""
    floors: Floors = field(default_factory=Floors)
    released_seconds: float = 0.0
    restarts: int = 0
    closed_floor: int = 0
    """The floor at which a leak stopped growing; 0 before any did."""
    open: OpenLeak | None = None


class LeakState(Struct, omit_defaults=True):
    """All that the detector remembers of a workload."""

    VERSION: ClassVar[int] = 1

    series: dict[str, LeakSeries] = {}
    """By `device uuid|pod uid`."""
    close_reason: str = "recovered"
    not_observable_windows: int = 0
    """Windows of series that were sampled too rarely."""


class Leak:
    """The leak detector of one workload, or of one device whose pods are not known."""

    name = "leak"

    def __init__(self, parameters: "LeakParameters", state: LeakState | None = None) -> None:
        self.state = state if state is not None else LeakState()
        self._parameters = parameters
        self._window: WorkloadWindow | None = None
        self._end_ms = 0

    @property
    def close_reason(self) -> str:
        """Why the trouble that `update` no longer reports has ended."""
        return self.state.close_reason

    def update(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> "AlertKind | None":
        """`memory_leak` while a series of the workload leaks."""
        self._window, self._end_ms = window, end_ms
        known = self.state.series
        for end in window.ended:
            gone = known.pop(series_key(end), None)
            if gone is not None and gone.open:
                self.state.close_reason = str(end.reason)
        is_open = False
        for one in window.series:
            key = series_key(one)
            series = known.get(key)
            if one.memory_used_bytes is not None:
                series = self._watch(key, series, one, start_ms)
            is_open = is_open or (series is not None and series.open is not None)
        return "memory_leak" if is_open else None

    def describe(self) -> "Verdict":
        """The open trouble in full; see `Detector.describe`."""
        leaks = {key: one for key, one in self.state.series.items() if one.open}
        if self._window is None or not leaks:
            raise RuntimeError("describe() needs an update() before it that returned a kind")
        return leak_evidence.verdict(leaks, self._window, self._end_ms, self._parameters)

    def _watch(
        self, key: str, series: LeakSeries | None, one: "SeriesWindow", start_ms: int
    ) -> LeakSeries | None:
        """Count a window of a series in which its memory is known."""
        limit = one.memory_limit_bytes or one.memory_total_bytes
        used, least = known_memory_bytes(one), one.memory_min_bytes
        if not limit or used is None or least is None or used > HIGHEST_FILL * limit:
            return series
        if one.interval_seconds > self._parameters.longest_interval:
            self.state.not_observable_windows += 1
            return series
        if series is None or abs(limit - series.limit_bytes) > LIMIT_CHANGE * limit:
            series = self._begin(limit, start_ms, 0)
            self.state.series[key] = series
        self._note_release(series, used, one.coverage_seconds, start_ms)
        if start_ms < series.ready_ms:
            return series
        ended = series.floors.add(start_ms, min(least, used))
        if ended:
            room = limit - used if one.memory_free_bytes is None else one.memory_free_bytes
            series.room = max(0, min(room, limit - used)) // STEP_BYTES
            self._judge(series, ended, start_ms)
        return series

    def _begin(self, limit_bytes: int, start_ms: int, restarts: int) -> LeakSeries:
        """A process that is new here.  One that started long before it was seen has warmed up."""
        started = self._window.started_at_ms if self._window and not restarts else None
        since = start_ms if started is None else min(started, start_ms)
        ready_ms = since + round(self._parameters.warm_up * 1000)
        return LeakSeries(limit_bytes=limit_bytes, ready_ms=ready_ms, restarts=restarts)

    def _note_release(self, series: LeakSeries, used: int, seconds: float, start_ms: int) -> None:
        """Begin anew where the process has ended and given back what it held."""
        if used >= RELEASED_OF_LIMIT * series.limit_bytes:
            series.released_seconds = 0.0
            return
        level = series.floors.level_bytes
        if level is None or used >= RELEASED_OF_LEVEL * level:
            return
        series.released_seconds += seconds
        if series.released_seconds >= RELEASED_SECONDS:
            if series.open:
                self.state.close_reason = "memory released"
            fresh = self._begin(series.limit_bytes, start_ms, series.restarts + 1)
            series.ready_ms, series.restarts = fresh.ready_ms, fresh.restarts
            ran_out = level >= RAN_OUT_FRACTION * series.limit_bytes
            series.floors = fresh.floors if ran_out else series.floors.emptied(start_ms)
            series.open, series.released_seconds, series.closed_floor = None, 0.0, 0

    def _judge(self, series: LeakSeries, ended: int, now_ms: int) -> None:
        """New floors are there at the first `ended` scales."""
        if series.open:
            self._follow(series, series.open, ended, now_ms)
            return
        room = Room(series.limit_bytes / STEP_BYTES, series.room, series.closed_floor)
        for scale in range(ended):
            trend = rising(series.floors, scale, room, self._parameters)
            if trend is not None:
                series.open = OpenLeak(
                    onset_ms=now_ms - trend.buckets * BUCKET_SECONDS[scale] * 1000,
                    scale=scale,
                    floor_then=trend.floor_then,
                    floor_opened=trend.floor_now,
                    evidence_ms=now_ms,
                    z=trend.z,
                    slope=trend.slope,
                )
                return

    def _follow(self, series: LeakSeries, leak: OpenLeak, ended: int, now_ms: int) -> None:
        """Whether what is open still goes on."""
        if ended <= min(leak.scale, 1):
            return
        newest = series.floors.newest
        if newest is not None and newest <= leak.floor_then:
            series.open, self.state.close_reason = None, "memory released"
            return
        if leak.scale < ended:
            self._note_evidence(series, leak, now_ms)
        silence = max(self._parameters.close_after, 2 * BUCKET_SECONDS[leak.scale])
        if now_ms - leak.evidence_ms >= silence * 1000:
            series.open, self.state.close_reason = None, "recovered"
            series.closed_floor = newest or leak.floor_opened

    def _note_evidence(self, series: LeakSeries, leak: OpenLeak, now_ms: int) -> None:
        floors = series.floors.scales[leak.scale].values()[-LEAST_FLOORS:]
        z = mann_kendall(floors)
        full = series.room * STEP_BYTES <= (1 - FULL_FRACTION) * series.limit_bytes
        if z >= EVIDENCE_Z or full:
            leak.evidence_ms = now_ms
            leak.z = z
            leak.slope = leak.slope if full else theil_sen(floors)

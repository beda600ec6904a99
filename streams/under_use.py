"""Allocated GPUs that are paid for and not used, for a workload over all its devices.

Three questions, each with a score that is a time: is the use low (`low_use.LowUse`), does a high
gpu_util hide low activity (`low_use.HiddenLowUse`), does the job hang (`stall.Stall`).  What is
innocent holds or resets the scores: the time after a start, the workload's own quiet hours and
gaps, what was not seen.
"""

from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from schemas.alerts import AlertKind
from streams import under_use_evidence
from streams.low_use import HiddenLowUse, LowUse
from streams.quiet_hours import HOUR_MS, QuietHours
from streams.spells import Spell
from streams.stall import Stall, is_still
from streams.workload_use import WorkloadUse, most_memory_bytes, workload_use

if TYPE_CHECKING:
    from schemas.parameters import UnderUseParameters
    from schemas.windows import WorkloadWindow
    from streams.prices import Prices
    from streams.verdicts import Verdict

CHANGE_AFTER_SECONDS = 600.0
"""Seconds for which the trouble must be of another kind before an open incident becomes one."""
HYSTERESIS = 2.0
"""Factor by which a value must cross its threshold to change the kind of an open incident."""


class UnderUseState(Struct, omit_defaults=True):
    """All that the detector remembers of a workload."""

    VERSION: ClassVar[int] = 1

    last_end_ms: int = 0
    measure: str = ""
    former_measure: str = ""
    """The measure before the last change, "" where it never changed."""
    started_at_ms: int = -1
    """The newest start seen; -1 where none is known."""
    starting_from_ms: int = 0
    """When that start counts from: not later than it was first seen, whatever its clock said."""
    used_since_start: bool = False
    low: LowUse = field(default_factory=LowUse)
    hidden: HiddenLowUse = field(default_factory=HiddenLowUse)
    stall: Stall = field(default_factory=Stall)
    quiet: QuietHours = field(default_factory=QuietHours)
    kind: AlertKind | None = None
    """What is open."""
    changing_seconds: float = 0.0
    """Time for which it has looked like another kind."""
    not_observable_windows: int = 0
    """Windows that were sampled too rarely to be judged."""
    close_reason: str = "recovered"


class UnderUse:
    """The under-use detector of one workload, or of one device whose pods are not known.

    Feed it every window in order; windows that are missing are gaps and add nothing.
    """

    name = "under_use"

    def __init__(
        self,
        parameters: "UnderUseParameters",
        prices: "Prices",
        state: UnderUseState | None = None,
    ) -> None:
        self.state = state if state is not None else UnderUseState()
        self._parameters = parameters
        self._prices = prices
        self._window: WorkloadWindow | None = None
        self._end_ms = 0
        self._quiet_for: tuple[int, int] | None = None
        self._is_quiet = False

    @property
    def close_reason(self) -> str:
        """Why the trouble that `update` no longer reports has ended."""
        return self.state.close_reason

    @property
    def hold_seconds(self) -> float:
        """Seconds at zero use before an alert opens, as the workload's own gaps ask for."""
        return self._hold(self._window)

    def update(self, window: "WorkloadWindow", start_ms: int, end_ms: int) -> AlertKind | None:
        """The kind that is open after this window, None when nothing is wrong."""
        state = self.state
        self._window, self._end_ms = window, end_ms
        if not window.series:
            if window.ended:
                self._restart(str(window.ended[-1].reason))
            return state.kind
        if start_ms - state.last_end_ms > self._parameters.longest_gap * 1000:
            state.low.gap_seconds = 0.0  # nobody saw how it went on, so nothing is learned of it
        state.last_end_ms = end_ms
        self._note_start(window, start_ms)
        window_seconds = (end_ms - start_ms) / 1000
        seen = workload_use(window, window_seconds, self._parameters)
        if seen is None:
            self._count_unobservable(window)
        still = self._judge_stall(window, start_ms, window_seconds)
        if seen is not None:
            self._note_measure(seen)
            self._judge_use(window, seen, start_ms, hung=still is True)
        self._settle(seen.seconds if seen else window_seconds)
        return state.kind

    def describe(self) -> "Verdict":
        """The open trouble in full; see `Detector.describe`."""
        state, window = self.state, self._window
        spell = self._spell()
        if window is None or state.kind is None or spell is None:
            raise RuntimeError("describe() needs an update() before it that returned a kind")
        hour = self._end_ms // HOUR_MS
        return under_use_evidence.verdict(
            under_use_evidence.Facts(
                kind=state.kind,
                spell=spell,
                state=state,
                window=window,
                end_ms=self._end_ms,
                hold_seconds=self._hold(window),
                quiet_now=self._quiet(hour),
                hour_use_percent=state.quiet.learned_use_percent(hour),
            ),
            self._parameters,
            self._prices,
        )

    def _hold(self, window: "WorkloadWindow | None") -> float:
        parameters = self._parameters
        notebook = window is not None and window.notebook
        least = parameters.notebook_open_after if notebook else parameters.open_after
        learned = parameters.gap_factor * self.state.low.longest_gap_seconds
        return max(least, min(parameters.open_after_max, learned))

    def _note_start(self, window: "WorkloadWindow", start_ms: int) -> None:
        """A newer start begins everything anew but what is the workload's nature."""
        started = window.started_at_ms
        if started is None or started <= self.state.started_at_ms:
            return
        self._restart("restarted")
        self.state.started_at_ms = started
        self.state.starting_from_ms = min(started, start_ms)
        self.state.used_since_start = False

    def _note_measure(self, seen: WorkloadUse) -> None:
        """Figures of different measures are never compared, so a change begins everything anew."""
        state = self.state
        if not seen.complete or seen.measure == state.measure:
            return
        if state.measure:
            self._restart("measure changed")
            state.former_measure = state.measure
            state.low, state.quiet = LowUse(), QuietHours()
        state.measure = seen.measure

    def _restart(self, reason: str) -> None:
        self.state.low.restart()
        self.state.hidden, self.state.stall = HiddenLowUse(), Stall()
        self.state.kind, self.state.changing_seconds = None, 0.0
        self.state.close_reason = reason

    def _count_unobservable(self, window: "WorkloadWindow") -> None:
        longest = self._parameters.longest_interval
        if any(series.interval_seconds > longest for series in window.series):
            self.state.not_observable_windows += 1

    def _judge_stall(
        self, window: "WorkloadWindow", start_ms: int, window_seconds: float
    ) -> bool | None:
        stall = self.state.stall
        still = is_still(window, self._parameters)
        covered = (s.coverage_seconds for s in window.series if s.coverage_seconds > 0)
        seconds = min(window_seconds, min(covered, default=0.0))
        stall.update(still=still, seconds=seconds, stalled_after=self._parameters.stalled_after)
        if still:
            stall.spell = stall.spell or Spell(onset_ms=start_ms)
            stall.spell.charge(window, seconds, self._prices)
        return still

    def _judge_use(
        self, window: "WorkloadWindow", seen: WorkloadUse, start_ms: int, *, hung: bool
    ) -> None:
        """`hung`: the window counts as a stall, so low activity in it is not counted again."""
        if self._is_starting(window, seen, start_ms):
            return
        state, parameters = self.state, self._parameters
        state.quiet.add(start_ms, seen.use_percent, seen.seconds)
        held = hung or self._quiet(start_ms // HOUR_MS)
        state.low.update(seen, held=held, start_ms=start_ms, hold_seconds=self._hold(window))
        if state.low.spell and seen.low_rate > 0 and (state.low.open or not held):
            state.low.spell.charge(window, seen.seconds, self._prices)
        if not hung:
            state.hidden.update(
                seen,
                start_ms=start_ms,
                activity_percent=parameters.activity_percent,
                util_percent=parameters.activity_util_percent,
                after_seconds=parameters.activity_after,
            )
        if state.hidden.spell and seen.use_percent < parameters.activity_percent:
            state.hidden.spell.charge(window, seen.seconds, self._prices)
        if state.stall.spell:
            state.stall.spell.add(seen)

    def _is_starting(self, window: "WorkloadWindow", seen: WorkloadUse, start_ms: int) -> bool:
        state = self.state
        if state.used_since_start or state.started_at_ms < 0:
            return False
        grace = window.starting_grace_seconds or self._parameters.starting_grace
        state.used_since_start = (
            seen.low_rate <= 0 or start_ms >= state.starting_from_ms + grace * 1000
        )
        return not state.used_since_start

    def _quiet(self, hour: int) -> bool:
        """Whether this hour is quiet; asked once an hour and once the profile has grown."""
        key = (hour, self.state.quiet.hours_learned)
        if key != self._quiet_for:
            self._quiet_for = key
            self._is_quiet = self.state.quiet.is_quiet(hour, self._parameters)
        return self._is_quiet

    def _settle(self, seconds: float) -> None:
        """What is open now.  An open incident becomes another kind only after a while."""
        state = self.state
        kind = self._looks_like()
        if kind == state.kind:
            state.changing_seconds = 0.0
            return
        if kind is not None and state.kind is not None:
            state.changing_seconds += seconds
            if state.changing_seconds < CHANGE_AFTER_SECONDS:
                return
        state.kind, state.changing_seconds = kind, 0.0
        state.close_reason = "recovered"

    def _looks_like(self) -> AlertKind | None:
        state = self.state
        if state.stall.open:
            return "busy_stalled"
        if state.low.open:
            return self._kind_of_low()
        return "low_use" if state.hidden.open else None

    def _kind_of_low(self) -> AlertKind:
        """Idle, idle with memory held, or low use; what is open is given the benefit of doubt."""
        state, idle = self.state, self._parameters.idle_percent
        if state.kind == "low_use":
            idle /= HYSTERESIS
        elif state.kind is not None:
            idle *= HYSTERESIS
        if state.low.recent_use_percent >= idle:
            return "low_use"
        return "idle_held" if self._holds_memory() else "idle"

    def _holds_memory(self) -> bool:
        """By the last value, or at opening by the mean; not known changes nothing."""
        kind, threshold = self.state.kind, float(self._parameters.held_bytes)
        last = most_memory_bytes(self._window) if self._window else None
        if kind == "idle_held":
            return last is None or last >= threshold / HYSTERESIS
        mean = self.state.low.spell.memory_mean_bytes if self.state.low.spell else None
        values = (last,) if kind == "idle" else (last, mean)
        return any(value is not None and value >= threshold for value in values)

    def _spell(self) -> Spell | None:
        state = self.state
        if state.kind == "busy_stalled":
            return state.stall.spell or state.low.spell or state.hidden.spell
        if state.low.open:
            return state.low.spell
        return state.hidden.spell or state.low.spell or state.stall.spell

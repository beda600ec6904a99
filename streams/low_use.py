"""Low use over time, seen or hidden behind a high gpu_util.

Scores are in seconds at zero use, so that a threshold reads as a time.
"""

from msgspec import Struct

from streams.spells import Spell
from streams.workload_use import WorkloadUse

FADE_SECONDS = 300.0
"""Time over which the recent use forgets."""
CLOSE_FRACTION = 0.5
"""An incident closes when this part of its hold is left: a score just below the hold would flap,
and one that had to reach zero would take minutes of full use, or hours of light use, to end."""
WORK_STEP_BYTES = 256 * 2**20
"""A change of memory from window to window that only a process which comes or goes makes."""


class LowUse(Struct, omit_defaults=True):
    """The CUSUM.  `score_seconds` grows by a second for each second at zero use."""

    score_seconds: float = 0.0
    open: bool = False
    opened_at_score_seconds: float = 0.0
    """The hold at opening: a gap that is learned later must not close what is open."""
    spell: Spell | None = None
    """Since the score last left zero, which is the best guess of the onset."""
    recent_use_percent: float = 0.0
    gap_seconds: float = 0.0
    """Low time in a row that is still going on, or 0."""
    longest_gap_seconds: float = 0.0
    """The longest low time that ended by itself, so it belongs to the workload's nature."""
    memory_bytes: int | None = None
    """What the device that holds most held last, but for a rise that may still be short."""

    def update(self, seen: WorkloadUse, *, held: bool, start_ms: int, hold_seconds: float) -> None:
        """Count a window.  `held`: low use has an innocent reason, so the score does not grow."""
        low = seen.low_rate > 0
        self._learn_gap(seen.seconds, low=low, held=held)
        if self._saw_work(seen):
            self.restart()
        if not (low and held):
            self.score_seconds = max(0.0, self.score_seconds + seen.low_rate * seen.seconds)
        most = self.opened_at_score_seconds if self.open else hold_seconds
        self.score_seconds = min(self.score_seconds, most)
        if self.score_seconds <= 0:
            self.spell = None
        else:
            self.spell = self.spell or Spell(onset_ms=start_ms)
            self.spell.add(seen)
        self._open_or_close(hold_seconds)
        weight = seen.seconds / (FADE_SECONDS + seen.seconds)
        self.recent_use_percent += weight * (seen.use_percent - self.recent_use_percent)

    def restart(self) -> None:
        """Forget the run in progress, which did not end by itself; keep the learned gap."""
        self.score_seconds, self.gap_seconds = 0.0, 0.0
        self.open, self.spell = False, None

    def _saw_work(self, seen: WorkloadUse) -> bool:
        """Whether a process came, or one that computed came or left.

        Short jobs show so little use that the score hardly falls.  The memory of a process that
        came must have been there all the window, or the short context of a monitor would count; a
        process that leaves unused memory behind it proves no work.
        """
        before, now, least = self.memory_bytes, seen.memory_bytes, seen.memory_min_bytes
        if now is None or least is None:
            return False
        if before is None:
            self.memory_bytes = now
            return False
        came = least - before >= WORK_STEP_BYTES
        changed = abs(now - before) >= WORK_STEP_BYTES
        worked = came or (seen.peaked and changed)
        if worked or now - before < WORK_STEP_BYTES:
            self.memory_bytes = now  # else the next window tells whether it is there to stay
        return worked

    def _learn_gap(self, seconds: float, *, low: bool, held: bool) -> None:
        if low:
            self.gap_seconds += 0.0 if held else seconds
            return
        self.longest_gap_seconds = max(self.longest_gap_seconds, self.gap_seconds)
        self.gap_seconds = 0.0

    def _open_or_close(self, hold_seconds: float) -> None:
        if self.open:
            self.open = self.score_seconds > CLOSE_FRACTION * self.opened_at_score_seconds
        elif self.spell and self.score_seconds >= hold_seconds:
            self.open, self.opened_at_score_seconds = True, hold_seconds
            self.recent_use_percent = self.spell.use_mean_percent or 0.0


class HiddenLowUse(Struct, omit_defaults=True):
    """High gpu_util with hardly an active multiprocessor, for hours: the costliest waste."""

    score_seconds: float = 0.0
    open: bool = False
    spell: Spell | None = None

    def update(
        self,
        seen: WorkloadUse,
        *,
        start_ms: int,
        activity_percent: float,
        util_percent: float,
        after_seconds: float,
    ) -> None:
        """Count a window.  Only a measure of activity can tell; gpu_util is what hides it."""
        if "gpu_util" in seen.measure:
            return
        if seen.use_percent >= activity_percent:
            excess = seen.use_percent / activity_percent - 1 if activity_percent else after_seconds
            self.score_seconds = max(0.0, self.score_seconds - excess * seen.seconds)
        elif seen.complete and (seen.gpu_util_percent or 0.0) >= util_percent:
            self.score_seconds = min(after_seconds, self.score_seconds + seen.seconds)
        if self.score_seconds <= 0:
            self.spell = None
        else:
            self.spell = self.spell or Spell(onset_ms=start_ms)
            self.spell.add(seen)
        if self.open:
            self.open = self.score_seconds > CLOSE_FRACTION * after_seconds
        else:
            self.open = self.score_seconds >= after_seconds

"""Compares what was said of labelled signals with what is true of them.

An alert inside an episode, up to its end, finds it, and a second one there is a flap.  An alert
before it, or in a signal that holds none, is a false alarm.  One after it counts as nothing: the
memory is full by then, and whether to speak of it is a matter of taste.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.detection.signal import Signal

Span = tuple[float, float]
"""Begin and end of an alert, in seconds since the signal's start."""

RESAMPLED = 500
DAY = 86_400


@dataclass(slots=True)
class Outcome:
    """What one contender said of one signal."""

    shape: str
    seed: int
    days: float
    has_episode: bool
    false_alarms: int = 0
    found_seconds: float | None = None
    """From the begin of the episode to the first right alert."""
    lead_seconds: float | None = None
    """From that alert to the end of the episode."""
    flaps: int = 0


@dataclass(slots=True)
class Score:
    """The figures of one contender over many signals, with 95 % intervals by bootstrap."""

    outcomes: list[Outcome] = field(default_factory=list)

    def figure(self, of: Callable[[Sequence[Outcome]], float]) -> tuple[float, float, float]:
        """The figure with its interval; signals are drawn anew, shapes stay as they are."""
        chance = np.random.default_rng(0)
        count = len(self.outcomes)
        drawn = [
            of([self.outcomes[at] for at in chance.integers(0, count, size=count)])
            for _ in range(RESAMPLED)
        ]
        low, high = np.nanpercentile(drawn, [2.5, 97.5])
        return of(self.outcomes), float(low), float(high)


def outcome(signal: Signal, spans: Iterable[Span]) -> Outcome:
    """Judge one signal."""
    episode = signal.episode
    made = Outcome(signal.shape, signal.seed, signal.duration_seconds / DAY, episode is not None)
    for begin, _ in spans:
        if episode is None or not episode.begin_seconds <= begin <= episode.end_seconds:
            made.false_alarms += episode is None or begin < episode.begin_seconds
        elif made.found_seconds is None:
            made.found_seconds = begin - episode.begin_seconds
            made.lead_seconds = episode.end_seconds - begin
        else:
            made.flaps += 1
    return made


def recall(outcomes: Sequence[Outcome]) -> float:
    """Part of the episodes that were found."""
    there = [one for one in outcomes if one.has_episode]
    return _ratio(sum(one.found_seconds is not None for one in there), len(there))


def precision(outcomes: Sequence[Outcome]) -> float:
    """Part of the alerts that were right; flaps count as neither."""
    right = sum(one.found_seconds is not None for one in outcomes)
    return _ratio(right, right + sum(one.false_alarms for one in outcomes))


def f1(outcomes: Sequence[Outcome]) -> float:
    """The harmonic mean of both."""
    both = precision(outcomes), recall(outcomes)
    return _ratio(2 * both[0] * both[1], sum(both))


def false_alarms_a_day(outcomes: Sequence[Outcome]) -> float:
    """For each GPU."""
    return _ratio(sum(one.false_alarms for one in outcomes), sum(one.days for one in outcomes))


def flaps(outcomes: Sequence[Outcome]) -> float:
    """For each episode that was found."""
    found = [one for one in outcomes if one.found_seconds is not None]
    return _ratio(sum(one.flaps for one in found), len(found))


def lead_minutes(outcomes: Sequence[Outcome]) -> float:
    """Median time from the alert to the end of the episode."""
    leads = [one.lead_seconds for one in outcomes if one.lead_seconds is not None]
    return statistics.median(leads) / 60 if leads else float("nan")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")

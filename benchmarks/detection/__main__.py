"""How right the leak detector is, beside the rules that people write in Prometheus.

python -m benchmarks.detection              # the judging seeds: figures to publish
python -m benchmarks.detection --tuning     # the tuning seeds: constants may be chosen by these
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.detection import judge, leak_rules, leak_shapes
from benchmarks.detection.signal import JUDGING_SEEDS, TUNING_SEEDS
from schemas.parameters import LeakParameters
from streams.device_windows import DeviceWindow
from streams.leak import Leak

SEEDS_EACH = 40
TOTAL_BYTES = leak_shapes.TOTAL_GIB * 2**30
WANTED = {
    "precision": (judge.precision, ">=", 0.93),
    "recall": (judge.recall, ">=", 0.95),
    "F1": (judge.f1, ">=", 0.94),
    "false alarms a GPU-day": (judge.false_alarms_a_day, "<=", 0.10),
    "median lead, minutes": (judge.lead_minutes, ">=", 100.0),
    "flaps an episode": (judge.flaps, "<=", 0.05),
}
CONTENDERS = ("gpuvigil", *leak_rules.RULES)

Job = tuple[str, int]


def main() -> int:
    """Print the figures of each contender and each shape; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tuning", action="store_true", help="the tuning seeds")
    parser.add_argument("--seeds", type=int, default=SEEDS_EACH, help="of each shape")
    given = parser.parse_args()
    seeds = (TUNING_SEEDS if given.tuning else JUDGING_SEEDS)[: given.seeds]
    jobs = [(name, seed) for name in leak_shapes.SHAPES for seed in seeds]
    scores = {name: judge.Score() for name in CONTENDERS}
    with ProcessPoolExecutor() as pool:
        for number, outcomes in enumerate(pool.map(judged, jobs, chunksize=8), 1):
            for name, one in zip(CONTENDERS, outcomes, strict=True):
                scores[name].outcomes.append(one)
            if number % 100 == 0:
                print(f"{number} of {len(jobs)} signals", file=sys.stderr)
    days = sum(one.days for one in scores["gpuvigil"].outcomes)
    print(f"leak: {len(jobs)} signals of {len(leak_shapes.SHAPES)} shapes, {days:.0f} GPU-days")
    for name, score in scores.items():
        _print_score(name, score)
    _print_shapes(scores["gpuvigil"].outcomes)
    ours = scores["gpuvigil"].outcomes
    missed = [
        name
        for name, (of, sign, wanted) in WANTED.items()
        if not (of(ours) >= wanted if sign == ">=" else of(ours) <= wanted)
    ]
    print("targets: " + (f"MISSED {', '.join(missed)}" if missed else "reached"))
    return 1 if missed else 0


def judged(job: Job) -> Sequence[judge.Outcome]:
    """What each contender says of one signal."""
    signal = leak_shapes.signal_of(*job)
    at: list[float] = []
    held: list[float] = []
    spans: list[judge.Span] = []
    leak = Leak(LeakParameters())
    last = None
    begin_ms = signal.starts_at_seconds * 1000
    for start_ms, window in signal.windows():
        if isinstance(window, DeviceWindow):
            raise TypeError("a leak's signal has windows of workloads")
        kind = leak.update(window, start_ms, start_ms + 10_000)
        seconds = (start_ms + 10_000 - begin_ms) / 1000
        if kind and not last:
            spans.append((seconds, float("inf")))
        last = kind
        used = window.series[0].memory_used_bytes
        if used is not None and seconds % leak_rules.SCRAPED_EVERY == 0:
            at.append(seconds)
            held.append(float(used))
    series = np.array(at), np.array(held)
    rules = [leak_rules.firing(r, series, TOTAL_BYTES) for r in leak_rules.RULES.values()]
    return [judge.outcome(signal, one) for one in (spans, *rules)]


def _print_score(name: str, score: judge.Score) -> None:
    rule = leak_rules.RULES.get(name)
    print(f"\n{rule.expression if rule else name}")
    for label, (of, sign, wanted) in WANTED.items():
        value, low, high = score.figure(of)
        print(f"  {label:24} {value:8.3f}  [{low:.3f}, {high:.3f}]   wanted {sign} {wanted:g}")


def _print_shapes(outcomes: Sequence[judge.Outcome]) -> None:
    print(f"\n{'gpuvigil by shape':24} {'found':>8} {'false':>8} {'flaps':>8}   seeds to look at")
    for shape in leak_shapes.SHAPES:
        own = [one for one in outcomes if one.shape == shape]
        there = sum(one.has_episode for one in own)
        found = sum(one.found_seconds is not None for one in own)
        odd = [
            one.seed
            for one in own
            if one.false_alarms or (one.has_episode and one.found_seconds is None)
        ]
        print(
            f"{shape:24} {f'{found}/{there}' if there else '-':>8} "
            f"{sum(one.false_alarms for one in own):8} {sum(one.flaps for one in own):8}   "
            f"{', '.join(map(str, odd[:6]))}"
        )


if __name__ == "__main__":
    sys.exit(main())

"""The long ordeal: `python -m tests.delivery`, or `make kills`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.delivery.ordeal import SESSION_SECONDS, WORKERS, Ordeal
from tests.delivery.schedule import seeded


def say(line: str) -> None:
    """Progress for people."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def main() -> int:
    """Exit code 1 where anything differs."""
    parser = argparse.ArgumentParser(description="Kill, freeze and starve two workers on Kafka.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=9000.0, help="simulated time")
    parser.add_argument("--speed", type=float, default=20.0, help="times real time")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--freezes", type=int, default=2)
    parser.add_argument("--outage", type=float, default=120.0, help="seconds without a broker")
    parser.add_argument("--folder", type=Path, help="keeps broker data and logs; else thrown away")
    options = parser.parse_args()
    faults = seeded(
        options.seed,
        workers=WORKERS,
        seconds=options.seconds / options.speed,
        kills=options.kills,
        freezes=options.freezes,
        outages=(options.outage,) if options.outage else (),
        session_seconds=SESSION_SECONDS,
    )
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = Ordeal(folder, say).run(
            faults, seed=options.seed, seconds=options.seconds, speed=options.speed
        )
    print(outcome)
    return 1 if outcome.differences() else 0


if __name__ == "__main__":
    sys.exit(main())

"""What happens to the workers and the broker, and when: the same for the same seed."""

import random
from typing import Literal, NamedTuple

FaultKind = Literal["kill", "freeze", "outage"]


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at_seconds: float
    """After the agent began."""
    kind: FaultKind
    worker: int = 0
    lasts_seconds: float = 0.0
    """Until a killed worker is started again, a frozen one goes on, the broker is back."""


def seeded(  # noqa: PLR0913 - how much of each
    seed: int,
    *,
    workers: int,
    seconds: float,
    kills: int,
    freezes: int,
    outages: tuple[float, ...],
    session_seconds: float,
) -> list[Fault]:
    """Faults at random moments; one frozen or killed is left alone until it is back."""
    chance = random.Random(seed)  # noqa: S311 - a schedule, no secret
    free_at = dict.fromkeys(range(workers), 0.0)
    faults = []
    kinds: list[FaultKind] = [*["kill"] * kills, *["freeze"] * freezes]  # type: ignore[list-item]
    chance.shuffle(kinds)
    begin, length = 0.05 * seconds, 0.85 * seconds
    for number, kind in enumerate(kinds):
        at = begin + length * (number + chance.random()) / len(kinds)
        worker = chance.randrange(workers)
        at = max(at, free_at[worker])
        over = session_seconds + chance.uniform(2, 5) if kind == "freeze" else chance.uniform(0, 4)
        free_at[worker] = at + over + 1
        faults.append(Fault(at, kind, worker, over))
    faults += [
        Fault(begin + length * chance.uniform(0.2, 0.6), "outage", 0, lasts) for lasts in outages
    ]
    return sorted(faults)

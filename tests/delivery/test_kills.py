"""Kills, a freeze and an outage change nothing in what comes out.

`python -m tests.delivery` is the long form, with ten kills and an outage of two minutes.
"""

from pathlib import Path

import pytest

from tests.delivery.ordeal import SESSION_SECONDS, WORKERS, Ordeal
from tests.delivery.schedule import seeded

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.alone]

SEED = 4
SECONDS = 9000.0
SPEED = 200.0


def test_kills_a_freeze_and_an_outage_change_nothing(tmp_path: Path) -> None:
    faults = seeded(
        SEED, workers=WORKERS, seconds=SECONDS / SPEED, kills=2, freezes=1, outages=(5.0,),
        session_seconds=SESSION_SECONDS,
    )  # fmt: skip
    outcome = Ordeal(tmp_path).run(faults, seed=SEED, seconds=SECONDS, speed=SPEED)
    assert sum(map(len, outcome.reference.alerts.values())) > 30
    assert not outcome.differences(), str(outcome)
    assert max(outcome.stops) < 5.0

"""A worker that is killed is replaced soon, also with much state."""

from pathlib import Path

import pytest

from tests.delivery.takeovers import SESSION_SECONDS, measured

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.alone]

MOST_BEYOND_SESSION = 8.0
"""The promise is session + 4 s on a machine with nothing else to do; a test machine has."""


def test_takeover_with_50_megabytes_of_state(tmp_path: Path) -> None:
    (took,) = measured(tmp_path, 50.0, 1)
    assert 0 < took < SESSION_SECONDS + MOST_BEYOND_SESSION

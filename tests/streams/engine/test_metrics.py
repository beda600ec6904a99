"""Everything that is counted is told, and nothing else."""

import re
from pathlib import Path

import pytest

from streams.engine.metrics import COUNTERS, GAUGES

STREAMS = Path(__file__).parents[3] / "streams"
COUNTED = re.compile(r"counters\[(.+?)\]")
NAME = re.compile(r'"([a-z_]+)"')
NOT_OF_A_WORKER = {"runner.py", "checkpoints.py"}


def counted() -> set[str]:
    """The names under which operators and engine count."""
    return {
        name
        for path in STREAMS.rglob("*.py")
        if path.name not in NOT_OF_A_WORKER
        for place in COUNTED.findall(path.read_text(encoding="utf-8"))
        for name in NAME.findall(place)
    }


def test_every_counter_is_told_and_every_metric_is_counted() -> None:
    assert {one.counter for one in COUNTERS} == counted()


@pytest.mark.parametrize("name", [one.name for one in (*COUNTERS, *GAUGES)])
def test_names_keep_to_prometheus_conventions(name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_kib"))


def test_names_are_unique() -> None:
    names = [one.name for one in (*COUNTERS, *GAUGES)]
    assert len(names) == len(set(names))

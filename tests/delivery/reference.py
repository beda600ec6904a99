"""What the same operators say in one process, without Kafka and without a fault."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from producers.agent import with_boot
from producers.simulated import SimulatedCluster
from schemas.parameters import DetectorParameters
from schemas.topics import ALERTS
from streams.runner import InProcess
from streams.stage_one import PARTITION_KEY, StageOne
from transport.contract import Headers

if TYPE_CHECKING:
    from streams.stage_two import StageTwo

PARTITIONS = 4
START_MS = 1_790_000_000_000
CLUSTER = "local"
MOST_STEPS = 10
OFFSETS = {"seen", "resume"}
"""Where a partition's topics were read to: a producer that had to repeat itself moves them."""

Said = dict[bytes, list[bytes]]
"""Alert events by key, each key's in their order, repeated revisions dropped."""

States = dict[tuple[str, int, bytes], Any]
"""By stage, partition and key."""


class Reference(NamedTuple):
    """What has to come out."""

    alerts: Said
    states: States
    progress_ms: dict[tuple[str, int], int]
    """By stage and partition: event time up to which all is done."""


def in_process(seed: int, seconds: float) -> Reference:
    """Run until nothing more follows, as a worker that waits for further input."""
    runner = InProcess(DetectorParameters(), partitions=PARTITIONS)
    alerts: Said = {}
    append = runner.transport.append

    def heard(
        topic: str, place: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        if topic == ALERTS and key is not None and value is not None:
            alerts.setdefault(key, []).append(value)
        return append(topic, place, key, value, headers)

    runner.transport.append = heard  # type: ignore[assignment, method-assign]
    cluster = SimulatedCluster(seed, cluster=CLUSTER, start_ms=START_MS, duration_seconds=seconds)
    runner._take_all(with_boot(cluster.messages(), str(START_MS)))
    for _ in range(MOST_STEPS):
        runner._step()
    stages: dict[str, list[StageOne] | list[StageTwo]] = {
        "node": runner._one,
        "workload": runner._two,
    }
    states: States = {}
    progress: dict[tuple[str, int], int] = {}
    for stage, operators in stages.items():
        for operator in operators:
            progress[stage, operator.partition] = operator.progress_ms
            operator.forget()
            for key, value in operator.dump().items():
                if value is not None:
                    states[stage, operator.partition, key] = comparable(key, value)
    return Reference(
        {key: deduplicated(values) for key, values in alerts.items()}, states, progress
    )


def comparable(key: bytes, state: bytes) -> Any:  # noqa: ANN401 - any JSON
    """A state without the offsets that a repetition on the way moves."""
    decoded = msgspec.json.decode(state)
    if key == PARTITION_KEY:
        return {name: value for name, value in decoded.items() if name not in OFFSETS}
    return decoded


def deduplicated(values: Iterable[bytes]) -> list[bytes]:
    """As a reader does it: a revision not larger than the one it has is ignored."""
    newest: dict[str, int] = {}
    kept = []
    for value in values:
        event = msgspec.json.decode(value)
        if event["revision"] > newest.get(event["incident_id"], 0):
            newest[event["incident_id"]] = event["revision"]
            kept.append(value)
    return kept

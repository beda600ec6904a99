"""Everything that a worker tells Prometheus, in one list."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streams.engine.operators import STAGES, Place

if TYPE_CHECKING:
    from streams.engine.engine import Engine


class Counted(NamedTuple):
    """A counter of the engine or of an operator, summed over all that this process has held."""

    name: str
    """Without `gpuvigil_worker_` and `_total`."""
    counter: str
    """As the code counts it."""
    help: str


class Gauged(NamedTuple):
    """A value of this moment, one sample for each of its labels' values."""

    name: str
    """Without `gpuvigil_worker_`."""
    labels: tuple[str, ...]
    help: str


PREFIX: Final = "gpuvigil_worker_"
BY_PLACE: Final = ("topic", "partition")
BY_SEAT: Final = ("stage", "partition")

COUNTERS: Final = (
    Counted("records", "records", "Records taken from Kafka."),
    Counted("gpu_samples", "gpu_samples", "Scrapes counted, one for each of their GPUs."),
    Counted("replayed_records", "replayed", "Records read again that were taken before."),
    Counted("late_samples", "late", "Scrapes that came after the lateness and changed nothing."),
    Counted("repeated_samples", "repeated", "Scrapes that came a second time."),
    Counted("late_windows", "late_windows", "Windows that came after they had been judged."),
    Counted("repeated_windows", "repeated_windows", "Windows said again by a writer's successor."),
    Counted("skewed_nodes", "skewed_nodes", "Times that a node's clock was found to be wrong."),
    Counted("silent_nodes", "silent_nodes", "Times that a node fell silent."),
    Counted("gone_nodes", "gone_nodes", "Nodes that were silent for so long that they are gone."),
    Counted("lost_pod_events", "lost_pod_events", "Pod events that never reached Kafka."),
    Counted("missing_records", "missing_offsets", "Offsets that hold no record for us."),
    Counted("seeks_back", "seeks_back", "Times that records were missing and read once more."),
    Counted("dead_letters", "dead_letters", "Records that could not be used."),
    Counted("quarantined_keys", "quarantined", "Times that an operator raised and a key ended."),
    Counted("outputs", "acknowledged", "Outputs that Kafka has acknowledged."),
    Counted("output_retries", "retries", "Times that sending outputs began anew."),
    Counted("too_large_outputs", "too_large", "Outputs above the topic's max.message.bytes."),
    Counted("checkpoints", "saves", "Checkpoints of a partition."),
    Counted("failed_checkpoints", "failed_saves", "Checkpoints that failed and are tried again."),
    Counted("late_checkpoints", "late_saves", "Last checkpoints that a rebalance did not await."),
    Counted("fenced", "fenced", "Times that another worker had taken a partition over."),
    Counted("takeovers", "seats_loaded", "States of a partition loaded from a checkpoint."),
    Counted("kept_partitions", "seats_kept", "Partitions kept over a rebalance with their memory."),
    Counted("takeover_retries", "takeover_retries", "Takeovers that began anew."),
    Counted("recreated_topics", "topics_recreated", "Topics found to be made again."),
    Counted("cut_records", "cut_by_retention", "Records that retention deleted before their time."),
)  # fmt: skip

LAG: Final = Gauged("lag_records", BY_PLACE, "Records between our place and the topic's end.")
STATE: Final = Gauged("state_bytes", BY_SEAT, "Size of a partition's states, as dumped.")
AGE: Final = Gauged("checkpoint_age_seconds", BY_SEAT, "Time since a partition's checkpoint.")
WAITING: Final = Gauged("waiting_outputs", BY_SEAT, "Outputs that Kafka has not acknowledged.")
HELD: Final = Gauged("held_back", BY_PLACE, "1 where nothing is fetched for the time being.")
PROGRESS: Final = Gauged(
    "progress_timestamp_seconds", BY_SEAT, "Event time up to which a partition is complete."
)
ASSIGNED: Final = Gauged("assigned_partitions", (), "Partitions that the group gives this worker.")
LIVE: Final = Gauged("live_partitions", ("stage",), "Partitions whose records are taken.")
START: Final = Gauged("start_time_seconds", (), "When this worker began, since the epoch.")

GAUGES: Final = (LAG, STATE, AGE, WAITING, HELD, PROGRESS, ASSIGNED, LIVE, START)

Samples = Iterable[tuple[tuple[str, ...], float]]


class WorkerCollector(Collector):
    """Reads the engine when Prometheus asks; nothing is kept beside what the engine knows."""

    def __init__(self, engine: "Engine", now: Callable[[], float] = time.monotonic) -> None:
        """`now` is the clock on which the engine notes its checkpoints."""
        self._engine = engine
        self._now = now
        self._started = time.time()

    def collect(self) -> Iterator[Metric]:
        """All metrics with their samples."""
        totals = self._engine.totals()
        for one in COUNTERS:
            family = CounterMetricFamily(PREFIX + one.name, one.help)
            family.add_metric((), totals[one.counter])
            yield family
        for gauge in GAUGES:
            shown = GaugeMetricFamily(PREFIX + gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in self._samples(gauge):
                shown.add_metric(labels, value)
            yield shown

    def _samples(self, gauge: Gauged) -> Samples:
        engine = self._engine
        seats = {(s.stage.name, str(s.partition)): s for s in engine.seats.values()}
        places = [place for seat in seats.values() for place in seat.places]
        now = self._now()
        per_gauge: dict[Gauged, Callable[[], Samples]] = {
            LAG: lambda: self._lags(places),
            STATE: lambda: ((_named(key), size) for key, size in engine.state_bytes.items()),
            AGE: lambda: ((_named(key), now - at) for key, at in engine.saved_at.items()),
            WAITING: lambda: ((key, engine.waiting(seat)) for key, seat in seats.items()),
            HELD: lambda: (
                (_named(place), engine.fetching.is_held_back(place)) for place in places
            ),
            PROGRESS: lambda: (
                (key, seat.operator.progress_ms / 1000)
                for key, seat in seats.items()
                if seat.operator.progress_ms
            ),
            ASSIGNED: lambda: [((), len(engine.assigned))],
            LIVE: self._live,
            START: lambda: [((), self._started)],
        }
        return per_gauge[gauge]()

    def _lags(self, places: Iterable[Place]) -> Samples:
        for topic, partition in places:
            lag = self._engine.lag((topic, partition))
            if lag is not None:
                yield (topic, str(partition)), lag

    def _live(self) -> Samples:
        for stage in STAGES:
            yield (stage.name,), len(self._engine.live(stage))


def registry(engine: "Engine") -> CollectorRegistry:
    """A registry of its own: two workers in one process do not meet."""
    made = CollectorRegistry()
    made.register(WorkerCollector(engine))
    return made


def _named(key: tuple[str, int]) -> tuple[str, str]:
    return key[0], str(key[1])

"""What the in-process pipeline costs, as a ratio to decoding the same messages bare.

Both are measured in this run, one after the other in turn, by the process' own CPU time.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from producers.simulated import SimulatedCluster
from schemas.codec import Decoder, encode
from schemas.parameters import DetectorParameters
from schemas.pods import PodEvent
from schemas.telemetry import NodeTelemetry
from schemas.topics import PODS, TELEMETRY
from streams.runner import InProcess

REPETITIONS = 5
SIMULATED_SECONDS = 3600.0
INTERVAL_SECONDS = 1.0

Messages = list[NodeTelemetry | PodEvent]


def main() -> None:
    """Print GPU-samples/s, microseconds of CPU a GPU-sample and the ratio, medians."""
    cluster = SimulatedCluster(
        duration_seconds=SIMULATED_SECONDS, interval_seconds=INTERVAL_SECONDS
    )
    messages = list(cluster.messages())
    samples = sum(len(m.devices) for m in messages if m.type == "node_telemetry")
    values = [(m.type, encode(m)) for m in messages]
    bytes_ = sum(len(value) for _, value in values)
    print(f"{len(messages):,} messages, {samples:,} GPU-samples, {bytes_ / 1e6:.0f} MB of JSON")
    contenders: dict[str, Callable[[], None]] = {
        "decode": lambda: decode(values),
        "encode + pipeline": lambda: pipeline(messages, samples),
        "encode": lambda: encode_all(messages),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(REPETITIONS):
        for name, contender in contenders.items():
            print(f"repetition {repetition + 1}/{REPETITIONS}: {name}", file=sys.stderr)
            began = time.process_time()
            contender()
            taken[name].append(time.process_time() - began)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    medians["pipeline"] = medians["encode + pipeline"] - medians["encode"]
    for name, seconds in medians.items():
        print(
            f"{name:18} {samples / seconds:12,.0f} GPU-samples/s "
            f"{seconds / samples * 1e6:7.2f} us CPU a GPU-sample "
            f"{seconds / medians['decode']:6.2f} x decode"
        )


def decode(values: Sequence[tuple[str, bytes]]) -> None:
    """Read every message and do nothing with it."""
    telemetry, pods = Decoder(NodeTelemetry, TELEMETRY), Decoder(PodEvent, PODS)
    for offset, (kind, value) in enumerate(values):
        decoder = telemetry if kind == "node_telemetry" else pods
        decoder.decode(value, partition=0, offset=offset)


def encode_all(messages: Messages) -> None:
    """Write every message, which the runner does too when it publishes."""
    for message in messages:
        encode(message)


def pipeline(messages: Messages, samples: int) -> None:
    """Topics in memory, both stages, all detectors, alerts; exits where a sample is missing."""
    runner = InProcess(DetectorParameters())
    runner.run(messages, on_alert=lambda _: None)
    counted = runner.counters["gpu_samples"]
    if counted != samples:
        sys.exit(f"the pipeline counted {counted} of {samples} GPU-samples: its speed says nothing")


if __name__ == "__main__":
    main()

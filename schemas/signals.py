"""What scaling reads: the load of a workload, and the work that waits for one."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.wire import Count, EpochMs, Measure, Message, Text

DemandSource = Literal["pending_pods", "kueue", "kafka_lag", "prometheus", "published"]


class WorkloadSignal(Message):
    """Latest load of a workload over all its replicas on all nodes.

    Key: `cluster/namespace/kind/name`.  Sums are over the ready replicas that were observed, so
    `sum / target` is the number of replicas wanted; coverage says how much of the workload they
    stand for.
    """

    type: Literal["workload_signal"] = "workload_signal"
    version: Literal[1] = 1
    cluster: Text
    namespace: Text
    kind: Text
    name: Text
    start_ms: EpochMs
    """Begin of the window that the values cover."""
    end_ms: EpochMs
    valid_until_ms: EpochMs
    """After this the values are stale: a reader answers `unavailable`, never 0."""
    replicas_expected: Count | None = None
    """Ready replicas by the catalog; None where the catalog does not know the workload."""
    replicas_observed: Count
    coverage: Annotated[float, Field(ge=0, le=1)]
    """Part of the window and of the replicas that samples cover."""
    measure: Measure | None = None
    """What `use_*_percent` stands for; None where no replica's use is known."""
    use_sum_percent: float | None = None
    use_mean_percent: float | None = None
    use_max_percent: float | None = None
    memory_used_sum_bytes: Count | None = None
    memory_used_max_bytes: Count | None = None
    requests_waiting_sum: Count | None = None
    requests_running_sum: Count | None = None
    requests_per_second_sum: float | None = None
    latency_p95_max_seconds: float | None = None


class Demand(Message):
    """Work that waits for a workload which may have no pod.  Key: `cluster/namespace/kind/name`."""

    type: Literal["demand"] = "demand"
    version: Literal[1] = 1
    cluster: Text
    namespace: Text
    kind: Text
    name: Text
    observed_at_ms: EpochMs
    valid_until_ms: EpochMs
    """After this nothing is known about the demand, which is not the same as none."""
    source: DemandSource
    waiting: Annotated[float, Field(ge=0)]
    """Amount of work in the source's unit: pods, messages, requests or a query's value."""

"""What a served pod says about its own load; read from its metrics page by the node's agent."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.wire import Count, EpochMs, Message, NodeClock, Text

Server = Literal["vllm", "triton", "other"]


class ServiceSignal(Message):
    """Queue, throughput and latency of one served pod.  Key: `cluster/node`.

    Rates and quantiles cover the interval before `observed_at_ms`; None where the server does not
    give the value.
    """

    type: Literal["service_signal"] = "service_signal"
    version: Literal[1] = 1
    cluster: Text
    node: Text
    boot_id: Text
    """Changes when the agent or the node starts anew; sequences count within it."""
    sequence: Count
    """Counts the service signals of the node, whichever pod they are of."""
    observed_at_ms: EpochMs
    interval_seconds: Annotated[float, Field(gt=0, le=3600)]
    """Planned time to the pod's next signal."""
    clock: NodeClock = "host"
    namespace: Text
    pod: Text
    pod_uid: Text
    container: Text | None = None
    server: Server = "other"
    served_model: Text | None = None
    """The model that is served, as the server names it."""
    requests_waiting: Count | None = None
    requests_running: Count | None = None
    requests_per_second: float | None = None
    """Requests finished."""
    tokens_per_second: float | None = None
    """Tokens generated."""
    cache_used_percent: float | None = None
    """Use of the key-value cache."""
    queue_seconds: float | None = None
    """Mean time that a request waited before it ran."""
    latency_p50_seconds: float | None = None
    latency_p95_seconds: float | None = None
    first_token_p95_seconds: float | None = None

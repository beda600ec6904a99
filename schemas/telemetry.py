"""What a node measured in one scrape: all its devices and their processes in one message."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.wire import (
    CapacityType,
    Count,
    EpochMs,
    Message,
    NodeClock,
    PodVersion,
    Quality,
    Text,
    Wire,
)


class ProcessSample(Wire):
    """One process on one device."""

    pid: Count
    pod_uid: Text | None = None
    """Pod that the process was found to belong to; None for a host process or if not known."""
    container: Text | None = None
    sm_percent: float | None = None
    """Share of the device's SM time, percent."""
    memory_used_bytes: Count | None = None
    quality: Quality = "unknown"


class DeviceSample(Wire):
    """One device or MIG instance; None where the card, the driver or MIG gives no value."""

    uuid: Text
    index: Count = 0
    model: Text | None = None
    parent_uuid: Text | None = None
    """The card of a MIG instance."""
    mig_instance: Text | None = None
    """The profile and number of a MIG instance, such as `1g.10gb/3`; None on a whole card."""
    card_share: float = 1.0
    """The part of the card that this device is, 0 to 1: its compute slices over the card's."""
    gpu_util_percent: float | None = None
    """NVML's utilisation: share of time in which any kernel ran."""
    gr_engine_active_percent: float | None = None
    sm_active_percent: float | None = None
    memory_controller_percent: float | None = None
    dram_active_percent: float | None = None
    memory_used_bytes: Count | None = None
    """Used memory without the driver's reserve (NVML's memory information version 2)."""
    memory_total_bytes: Count | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    """Default limit of the board."""
    temperature_celsius: float | None = None
    pcie_bytes_per_second: float | None = None
    """Received and sent together."""
    nvlink_bytes_per_second: float | None = None
    processes: Annotated[tuple[ProcessSample, ...], Field(max_length=4096)] = ()
    processes_complete: bool | None = None
    """Whether the process list is known to hold every process on the device."""


class NodeTelemetry(Message):
    """One scrape of one node.  Key: `cluster/node`."""

    type: Literal["node_telemetry"] = "node_telemetry"
    version: Literal[1] = 1
    cluster: Text
    node: Text
    boot_id: Text
    """Changes when the agent or the node starts anew; sequences count within it."""
    sequence: Count
    observed_at_ms: EpochMs
    interval_seconds: Annotated[float, Field(gt=0, le=3600)]
    """Planned time to the next scrape: a sample covers at most 1.5 times this."""
    clock: NodeClock = "host"
    pod_version: PodVersion | None = None
    """Last pod event that Kafka had acknowledged; None where no pods are watched."""
    driver_loaded_at_ms: EpochMs | None = None
    capacity_type: CapacityType | None = None
    devices: Annotated[tuple[DeviceSample, ...], Field(max_length=1024)] = ()

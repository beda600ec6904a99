"""What one source partition contributed to the workloads of one target partition in a window.

The message is also the progress mark of its source partition: with it, every window that ends at or
before `watermark_ms` is complete as far as that partition goes.
"""

from typing import Annotated, Literal

from pydantic import Field

from schemas.wire import CapacityType, Count, EpochMs, Measure, Message, Quality, Text, Wire

EndReason = Literal["pod deleted", "node silent", "device removed", "not allocated", "state lost"]


class SeriesWindow(Wire):
    """10 s of a device, or of a pod on a shared device.  Means are weighed by time covered."""

    node: Text
    device_uuid: Text
    device_model: Text | None = None
    mig_instance: Text | None = None
    card_share: float = 1.0
    """Part of a card that this series pays for, 0 to 1."""
    capacity_type: CapacityType | None = None
    namespace: Text | None = None
    pod: Text | None = None
    pod_uid: Text | None = None
    container: Text | None = None
    shared: bool = False
    """True where several pods hold the device: the use is then the pod's own."""
    quality: Quality = "unknown"
    coverage_seconds: float
    """Seconds of the window that samples cover."""
    interval_seconds: float
    """The longest sampling interval seen in the window."""
    measure: Measure | None = None
    use_mean_percent: float | None = None
    use_min_percent: float | None = None
    use_max_percent: float | None = None
    use_last_percent: float | None = None
    gpu_util_mean_percent: float | None = None
    memory_activity_mean_percent: float | None = None
    """DRAM activity, or the memory controller's where that is all there is."""
    memory_used_bytes: Count | None = None
    """Last value in the window."""
    memory_min_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    memory_limit_bytes: Count | None = None
    """What the pod was given of a shared device; None where no limit was declared."""
    memory_free_bytes: Count | None = None
    """What nobody holds of a shared device; None on a device that has one holder."""
    power_mean_watts: float | None = None
    power_min_watts: float | None = None
    power_max_watts: float | None = None
    power_idle_watts: float | None = None
    """What the card draws when it does nothing, as learned; None until it was seen."""
    power_limit_watts: float | None = None
    link_bytes_per_second: float | None = None
    """PCIe and NVLink together; None where neither is known."""


class SeriesEnd(Wire):
    """A device, or a pod on a device, that is not there any more."""

    node: Text
    device_uuid: Text
    pod_uid: Text | None = None
    reason: EndReason


class WorkloadWindow(Wire):
    """All series of one workload on one source partition; a device without a pod is its own."""

    cluster: Text
    namespace: Text | None = None
    kind: Text | None = None
    """The workload's kind; None for a device whose pods are not known."""
    name: Text
    """The workload's name, or the device's uuid."""
    owner: Text | None = None
    standby: bool = False
    """Kept on purpose without load: judged for information only."""
    notebook: bool = False
    started_at_ms: EpochMs | None = None
    """Latest start of its pods."""
    starting_grace_seconds: float | None = None
    """Time before the first use that its annotation allows; None: the detector's default."""
    series: Annotated[tuple[SeriesWindow, ...], Field(max_length=65536)] = ()
    ended: Annotated[tuple[SeriesEnd, ...], Field(max_length=65536)] = ()


class WindowContribution(Message):
    """Internal: a window's contributions from a source to a target partition.

    A window with many series comes in several parts; only the last one moves the watermark to the
    window's end.
    """

    type: Literal["window_contribution"] = "window_contribution"
    version: Literal[1] = 1
    source_partition: Count
    target_partition: Count
    start_ms: EpochMs
    end_ms: EpochMs
    watermark_ms: EpochMs
    part: Count = 0
    workloads: tuple[WorkloadWindow, ...] = ()

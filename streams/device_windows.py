"""What the detectors of a shared device eat: one window of a device with everybody on it."""

from typing import NamedTuple


class PodUse(NamedTuple):
    """What one pod had of the device in a window; None where that is not known."""

    uid: str
    use_percent: float | None
    """Mean share of the device's SM time, percent."""
    memory_bytes: int | None
    """Last value."""
    entitlement: float
    """The part of the device that it was given, 0 to 1; 0 for one that was given none."""
    seen: bool = True
    """Whether the pod was there at the end of the window."""


class DeviceWindow(NamedTuple):
    """One window of one device, or of a MIG GPU instance."""

    uuid: str
    coverage_seconds: float
    interval_seconds: float
    """The longest sampling interval in the window."""
    measure: str | None
    """What `util_percent` stands for, as in `schemas.wire.Measure`."""
    util_percent: float | None
    """Mean use of the device."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    pods: tuple[PodUse, ...]
    """In the order of their uids; with pods that use the device without having been given it."""

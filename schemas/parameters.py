"""Parameters of the detectors: every constant is a time or a physical quantity.

They travel on `gpu.parameters`, so that a replay decides with what was in force.
"""

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.wire import CapacityType, EpochMs, Message, Text, Wire

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(value: object) -> object:
    """Seconds of `30m`, `1h30m`, `90` or a timedelta; anything else is left for pydantic to refuse.

    Raises ValueError for a text that is no duration.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        msg = f"{value!r} is no duration; write it like 90s, 30m, 1h30m or 2d"
        raise ValueError(msg)
    return sum(float(n) * _UNITS[u] for n, u in parts)


Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=366 * 86400)]
Percent = Annotated[float, Field(ge=0, le=100)]


class Parameters(Wire):
    """A group of parameters; unlike messages it refuses a name that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=False)


class UnderUseParameters(Parameters):
    """When allocated GPUs count as not used."""

    open_after: Seconds = 1800.0
    """Seconds at zero use before an alert opens; the least hold."""
    open_after_max: Seconds = 4500.0
    """Seconds; the longest hold that learned gaps may ask for."""
    notebook_open_after: Seconds = 3600.0
    """Seconds; the least hold for notebooks."""
    gap_factor: Annotated[float, Field(ge=1, le=10)] = 1.5
    """The hold is at least this many times the longest low run that ended by itself."""
    low_percent: Percent = 10.0
    """Percent; use below this counts as low where the measure is `gpu_util`."""
    low_active_percent: Percent = 10.0
    """Percent; the same where the measure is `sm_active` or `gr_engine_active`."""
    idle_percent: Percent = 1.0
    """Percent; a mean below this is idle, above it is low use."""
    held_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    """Bytes on the devices from which idle is `idle_held`."""
    starting_grace: Seconds = 1800.0
    """Seconds after a start without use that are not idle."""
    activity_after: Seconds = 7200.0
    """Seconds of high gpu_util with low SM activity before `low_use` opens."""
    activity_percent: Percent = 15.0
    """Percent; SM activity below this is low."""
    activity_util_percent: Percent = 50.0
    """Percent; gpu_util from which low SM activity counts as hidden low use."""
    stalled_after: Seconds = 1800.0
    """Seconds of a stall before `busy_stalled` opens."""
    stalled_util_percent: Percent = 95.0
    stalled_power_fraction: Annotated[float, Field(ge=0, le=1)] = 0.10
    """Fraction of (limit - idle) that the power stays below while stalled."""
    stalled_power_span_watts: Annotated[float, Field(ge=0)] = 15.0
    """Watts between the least and the most power in a window that still count as flat."""
    stalled_memory_percent: Percent = 2.0
    stalled_link_bytes_per_second: Annotated[float, Field(ge=0)] = 10e6
    quiet_percent: Percent = 15.0
    """Percent; an hour of the week with a learned use below this is quiet."""
    quiet_peak_percent: Percent = 20.0
    """Percent; quiet hours count only where the busiest learned hour reaches this."""
    quiet_hours_learned: Annotated[int, Field(ge=1)] = 20
    """Hours that must be learned before quiet hours are believed."""
    longest_interval: Seconds = 300.0
    """Seconds between samples above which the verdict is `not observable`."""
    longest_gap: Seconds = 60.0
    """Seconds; longer gaps between windows add nothing."""


class LeakParameters(Parameters):
    """When growing memory counts as a leak.  Fractions are of the memory that a pod may have."""

    trend_z: Annotated[float, Field(ge=1, le=10)] = 4.0
    """Least Mann-Kendall score of the floors."""
    growth_fraction: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Least growth of the floor."""
    record_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01
    """By how much the floor must be above the highest one of today and yesterday."""
    step_fraction: Annotated[float, Field(gt=0, le=1)] = 0.40
    """Largest part of the growth that may come in one step."""
    late_ratio: Annotated[float, Field(ge=0, le=10)] = 0.7
    """Least growth of the later half, as a part of the earlier half's: a warm-up levels off."""
    level_fraction: Annotated[float, Field(ge=0, le=10)] = 0.8
    """Part of the room left that a growth which slows must still reach where it levels off."""
    rising_fraction: Annotated[float, Field(ge=0, le=1)] = 0.33
    """Least part of the floors that are above the one before: stairs have few."""
    exhaustion_within: Seconds = 86400.0
    """Seconds; longest time to exhaustion of a leak that is critical."""
    room_fraction: Annotated[float, Field(ge=0, le=10)] = 0.45
    """Least growth as a part of the room that is left."""
    slow_exhaustion_within: Seconds = 7 * 86400.0
    """Seconds; longest time to exhaustion of a slow leak, judged over one to two days."""
    slow_room_fraction: Annotated[float, Field(ge=0, le=10)] = 0.15
    """The same as `room_fraction` for a slow leak."""
    urgent_within: Seconds = 1800.0
    """Seconds to exhaustion below which a leak is told that was watched for less than an hour."""
    warm_up: Seconds = 900.0
    """Seconds after a process starts that are not looked at."""
    close_after: Seconds = 900.0
    """Seconds without evidence after which an alert closes."""
    longest_interval: Seconds = 120.0
    """Seconds between samples above which the verdict is `not observable`."""


class OrphanParameters(Parameters):
    """When memory on a device belongs to nobody that lives."""

    after: Seconds = 600.0
    least_bytes: Annotated[int, Field(ge=0)] = 2**30
    least_fraction: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Fraction of the device's memory; the larger of the two holds."""
    idle_percent: Percent = 1.0
    """Percent; a device in use above this has a process that is not seen."""


class UnallocatedParameters(Parameters):
    """When a pod or a host process uses a device that it was not given."""

    after: Seconds = 120.0
    least_bytes: Annotated[int, Field(ge=0)] = 2**30
    """Bytes held that are use; a monitor's context holds less."""
    least_percent: Percent = 5.0
    """Percent of SM time that is use."""
    excepted_namespaces: tuple[Text, ...] = (
        "gpu-operator",
        "gpuvigil",
        "kube-system",
        "monitoring",
        "nvidia-gpu-operator",
    )
    """Namespaces of infrastructure, which may."""


class NoisyParameters(Parameters):
    """When a pod takes a shared device from its neighbours."""

    baseline_over: Seconds = 1800.0
    """Seconds; time constant of what a pod usually gets."""
    recent_over: Seconds = 60.0
    """Seconds; time constant of what a pod gets now."""
    warm_up: Seconds = 300.0
    """Seconds that a pod must be seen before it can be a victim."""
    baseline_percent: Percent = 8.0
    """Percent; least baseline of a victim."""
    deficit: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Part of its baseline that a victim must have lost."""
    least_percent: Percent = 2.0
    """Percent; a victim that gets less has stopped by itself."""
    least_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.12
    """Part of its baseline below which a victim has stopped by itself."""
    full_percent: Percent = 92.0
    """Percent; use of the device from which its pods compete."""
    slack_percent: Percent = 93.0
    """Percent; a device that is usually busier than this was full before."""
    joined_within: Seconds = 1800.0
    """Seconds after it came in which a pod may be what filled the device."""
    gain_points: Percent = 8.0
    """Points of SM time that an aggressor must have gained."""
    gain_fraction: Annotated[float, Field(ge=0, le=10)] = 0.8
    """The same as a part of what the victim lost."""
    share_fraction: Annotated[float, Field(ge=0, le=10)] = 0.85
    """Part of its entitlement that an aggressor must use."""
    over_fraction: Annotated[float, Field(ge=1, le=10)] = 1.15
    """Part of its entitlement above which it is a noisy neighbour, and not only close by."""
    frozen_for: Seconds = 7200.0
    """Seconds for which a victim's baseline is kept while it is suppressed."""
    rebase_after: Seconds = 90.0
    """Seconds of deficit on a device with room after which a pod is taken to want less."""
    open_after: Seconds = 40.0
    """Seconds of deficit (1 s at a loss of everything beyond `deficit`) before an alert opens."""
    close_below: Seconds = 20.0
    close_after: Seconds = 600.0
    """Seconds below `close_below` after which it closes."""
    memory_full_fraction: Annotated[float, Field(gt=0, le=1)] = 0.97
    memory_hog_fraction: Annotated[float, Field(gt=0, le=1)] = 0.50
    memory_growth_fraction: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Fractions of the device's memory: how full it is, what the hog holds and what it gained."""
    longest_interval: Seconds = 60.0
    """Seconds between samples above which the verdict is `not observable`."""


class AlertParameters(Parameters):
    """The life of an alert."""

    repeat_every: Seconds = 600.0
    """Seconds between two events of an open alert."""
    valid_for: Seconds = 1800.0
    """Seconds after an event at which a reader closes the alert as stale."""
    reopen_within: Seconds = 1800.0
    """Seconds after resolving in which the same trouble is the same incident."""
    runbook_base_url: Text | None = None
    """Address to which the kind is appended."""


class TimeParameters(Parameters):
    """How event time is read."""

    lateness: Seconds = 10.0
    """Seconds by which samples of a node may be out of order."""
    skew_tolerance: Seconds = 30.0
    """Seconds that a node's clock may be wrong before its times are shifted."""
    silent_after: Seconds = 120.0
    """Seconds without a message after which a node holds nobody up."""
    gone_after: Seconds = 900.0
    """Seconds without a message after which a node's windows and alerts end."""
    max_ahead: Seconds = 600.0
    """Seconds by which a source partition may run ahead of the slowest one."""
    forget_node_after: Seconds = 86400.0
    """Seconds after which a silent node's state ends."""
    forget_workload_after: Seconds = 30 * 86400.0
    """Seconds without a device after which a workload's state ends."""


class Price(Parameters):
    """Money for an hour of one whole card."""

    device_model: Text
    """A part of the model's name, in any case; the first price that fits is taken."""
    per_gpu_hour: Annotated[float, Field(ge=0)]
    capacity_type: CapacityType | None = None
    """Only for this capacity type; None fits each."""


class PriceParameters(Parameters):
    """Prices by model; a MIG instance costs its share of the card."""

    currency: Text = "USD"
    table: tuple[Price, ...] = ()


class DetectorParameters(Parameters):
    """Everything that decides, in one place."""

    under_use: UnderUseParameters = UnderUseParameters()
    leak: LeakParameters = LeakParameters()
    orphan: OrphanParameters = OrphanParameters()
    unallocated: UnallocatedParameters = UnallocatedParameters()
    noisy: NoisyParameters = NoisyParameters()
    alerts: AlertParameters = AlertParameters()
    time: TimeParameters = TimeParameters()
    prices: PriceParameters = PriceParameters()


def parameter_names(model: type[BaseModel] = DetectorParameters, prefix: str = "") -> list[str]:
    """Every parameter by its dotted name."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += parameter_names(kind, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


class ParametersMessage(Message):
    """A version of the parameters.  Key: the version.

    Holds for windows that begin at or after `valid_from_ms`, on every partition.
    """

    type: Literal["parameters"] = "parameters"
    version: Literal[1] = 1
    cluster: Text
    parameters_version: Text
    valid_from_ms: EpochMs
    parameters: DetectorParameters

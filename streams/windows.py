"""10 s tumbling windows of one node's devices and pods, every mean weighed by the time covered."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas import hot

if TYPE_CHECKING:
    from schemas.telemetry import DeviceSample
    from schemas.windows import SeriesWindow
    from schemas.wire import Measure, Quality
    from streams.holders import Holder

WINDOW_MS = 10_000
HIGHEST_PERCENT = 100.5
"""A rounding above 100 % is believed, more is not."""


Number = float | None
Reading = tuple["Measure | None", Number, Number, Number, int | None, Number, Number]
"""The values of one series in one sample; None is unknown.  In this order: the measure of use and
its percentage, the percentages of `gpu_util` and of memory activity, bytes of memory, watts, bytes
a second of its links.  A plain tuple: one is made for each device of each scrape."""


@dataclass(slots=True)
class Series:
    """The running sums of one series in the window in progress.  Sums are value x milliseconds.

    A dataclass and no Struct: CPython stores into its slots faster.
    """

    quality: str
    covered_ms: int = 0
    interval_seconds: float = 0.0
    measure: str | None = None
    use_ms: int = 0
    use_sum: float = 0.0
    use_min: float | None = None
    use_max: float | None = None
    use_last: float | None = None
    util_ms: int = 0
    util_sum: float = 0.0
    activity_ms: int = 0
    activity_sum: float = 0.0
    memory_last: int | None = None
    memory_min: int | None = None
    power_ms: int = 0
    power_sum: float = 0.0
    power_min: float | None = None
    power_max: float | None = None
    link_ms: int = 0
    link_sum: float = 0.0

    def add(  # noqa: C901 - the same for each measure, and on the hot path
        self, reading: Reading, covered_ms: int, interval_seconds: float
    ) -> None:
        """Count a reading for the part of the window that its sample covers."""
        measure, use, util, activity, memory, power, link = reading
        self.covered_ms += covered_ms
        if interval_seconds > self.interval_seconds:  # noqa: PLR1730 - max() would be a call
            self.interval_seconds = interval_seconds
        if use is not None:
            self._add_use(measure, use, covered_ms)
        if util is not None:
            self.util_ms += covered_ms
            self.util_sum += util * covered_ms
        if activity is not None:
            self.activity_ms += covered_ms
            self.activity_sum += activity * covered_ms
        if link is not None:
            self.link_ms += covered_ms
            self.link_sum += link * covered_ms
        if memory is not None:
            self.memory_last = memory
            if self.memory_min is None or memory < self.memory_min:
                self.memory_min = memory
        if power is not None:
            self.power_ms += covered_ms
            self.power_sum += power * covered_ms
            if self.power_min is None or power < self.power_min:
                self.power_min = power
            if self.power_max is None or power > self.power_max:
                self.power_max = power

    def _add_use(self, measure: "Measure | None", use: float, covered_ms: int) -> None:
        """Measures never mix: a change of measure starts the window's use anew."""
        if measure != self.measure:
            self.measure, self.use_ms, self.use_sum = measure, 0, 0.0
            self.use_min = self.use_max = None
        self.use_ms += covered_ms
        self.use_sum += use * covered_ms
        if self.use_min is None or use < self.use_min:
            self.use_min = use
        if self.use_max is None or use > self.use_max:
            self.use_max = use
        self.use_last = use

    def close(
        self, node: str, device: "DeviceSample", holder: "Holder", idle_watts: float | None
    ) -> "SeriesWindow":
        """The window that these sums make, with the identity of its device and pod."""
        pod = holder.pod
        return hot.SeriesWindow(
            node=node,
            device_uuid=device.uuid,
            device_model=device.model,
            mig_instance=device.mig_instance,
            card_share=device.card_share / holder.sharers,
            capacity_type=holder.capacity_type,
            namespace=pod.namespace if pod else None,
            pod=pod.name if pod else None,
            pod_uid=pod.uid if pod else None,
            container=holder.container,
            shared=holder.sharers > 1,
            quality=_quality(self.quality),
            coverage_seconds=self.covered_ms / 1000,
            interval_seconds=self.interval_seconds,
            measure=_measure(self.measure),
            use_mean_percent=_mean(self.use_sum, self.use_ms),
            use_min_percent=self.use_min,
            use_max_percent=self.use_max,
            use_last_percent=self.use_last,
            gpu_util_mean_percent=_mean(self.util_sum, self.util_ms),
            memory_activity_mean_percent=_mean(self.activity_sum, self.activity_ms),
            memory_used_bytes=self.memory_last,
            memory_min_bytes=self.memory_min,
            memory_total_bytes=device.memory_total_bytes,
            power_mean_watts=_mean(self.power_sum, self.power_ms),
            power_min_watts=self.power_min,
            power_max_watts=self.power_max,
            power_idle_watts=idle_watts,
            power_limit_watts=device.power_limit_watts,
            link_bytes_per_second=_mean(self.link_sum, self.link_ms),
        )


def _mean(total: float, covered_ms: int) -> float | None:
    return total / covered_ms if covered_ms else None


def _quality(word: str) -> "Quality":
    return word  # type: ignore[return-value]  # written by this module from a Quality


def _measure(word: str | None) -> "Measure | None":
    return word  # type: ignore[return-value]  # written by this module from a Measure


def plausible_percent(value: float | None) -> float | None:
    """A percentage that can be one, else None."""
    return value if value is not None and 0 <= value <= HIGHEST_PERCENT else None

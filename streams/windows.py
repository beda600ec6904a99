"""10 s tumbling windows of one node's devices and pods, every mean weighed by the time covered."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas import hot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.telemetry import DeviceSample
    from schemas.windows import SeriesWindow
    from schemas.wire import Measure, Quality
    from streams.holders import Holder

WINDOW_MS = 10_000
HIGHEST_PERCENT = 100.5
"""A rounding above 100 % is believed, more is not."""

NOTHING_HELD_BYTES = 64 * 2**20
"""Below this no process can be computing, whatever utilisation the card shows."""


@dataclass(slots=True)
class Series:
    """The running sums of one series in a window.  Sums are value x milliseconds.

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

    def add_device(
        self,
        samples: "Sequence[DeviceSample]",
        covers_ms: "Sequence[int]",
        before: "DeviceSample | None",
        *,
        use_known: bool,
    ) -> None:
        """Count what a device itself says, for its only holder; implausible values are unknown.

        `before` is its previous sample: utilisation looks back, so the sample after a process has
        left still shows its work.
        """
        if use_known:
            self._add_device_use(samples, covers_ms, before)
        self._add_activity(samples, covers_ms)
        self._add_power(samples, covers_ms)
        self._add_links(samples, covers_ms)
        self._add_memory([device.memory_used_bytes for device in samples])

    def _add_device_use(
        self,
        samples: "Sequence[DeviceSample]",
        covers_ms: "Sequence[int]",
        before: "DeviceSample | None",
    ) -> None:
        """The best measure of use that a sample has, and NVML's utilisation beside it."""
        util_ms, util_sum = self.util_ms, self.util_sum
        for device, ms in zip(samples, covers_ms, strict=True):
            util = device.gpu_util_percent
            if util is not None and util > 1 and _holds_nothing(device) and _holds_nothing(before):
                before = device
                continue
            before = device
            if util is not None and 0 <= util <= HIGHEST_PERCENT:
                util_ms += ms
                util_sum += util * ms
            else:
                util = None
            use = device.sm_active_percent
            if use is not None and 0 <= use <= HIGHEST_PERCENT:
                self._add_use("sm_active", use, ms)
                continue
            use = device.gr_engine_active_percent
            if use is not None and 0 <= use <= HIGHEST_PERCENT:
                self._add_use("gr_engine_active", use, ms)
            elif util is not None:
                self._add_use("gpu_util", util, ms)
        self.util_ms, self.util_sum = util_ms, util_sum

    def add_pod(
        self,
        samples: "Sequence[DeviceSample]",
        covers_ms: "Sequence[int]",
        pod_uid: str,
        *,
        use_known: bool,
    ) -> None:
        """Count what a pod uses of a shared device, by its processes; unknown where none is seen.

        The use is the sum of the processes' shares of SM time.
        """
        memory: list[int | None] = []
        for device, ms in zip(samples, covers_ms, strict=True):
            own = [process for process in device.processes if process.pod_uid == pod_uid]
            if not own and not device.processes_complete:
                continue
            shares = [plausible_percent(process.sm_percent) for process in own]
            if use_known and None not in shares:
                use = sum(share for share in shares if share is not None)
                self._add_use("gpu_util", min(100.0, use), ms)
            sizes = [process.memory_used_bytes for process in own]
            if None not in sizes:
                memory.append(sum(size for size in sizes if size is not None))
        self._add_memory(memory)

    def _add_activity(self, samples: "Sequence[DeviceSample]", covers_ms: "Sequence[int]") -> None:
        """DRAM activity, or the memory controller's where that is all there is."""
        total_ms, total = self.activity_ms, self.activity_sum
        for device, ms in zip(samples, covers_ms, strict=True):
            value = device.dram_active_percent
            if value is None or not 0 <= value <= HIGHEST_PERCENT:
                value = plausible_percent(device.memory_controller_percent)
            if value is not None:
                total_ms += ms
                total += value * ms
        self.activity_ms, self.activity_sum = total_ms, total

    def _add_power(self, samples: "Sequence[DeviceSample]", covers_ms: "Sequence[int]") -> None:
        least, most = self.power_min, self.power_max
        total_ms, total = self.power_ms, self.power_sum
        for device, ms in zip(samples, covers_ms, strict=True):
            value = device.power_watts
            if value is None or value < 0:
                continue
            total_ms += ms
            total += value * ms
            if least is None or value < least:
                least = value
            if most is None or value > most:
                most = value
        self.power_min, self.power_max = least, most
        self.power_ms, self.power_sum = total_ms, total

    def _add_links(self, samples: "Sequence[DeviceSample]", covers_ms: "Sequence[int]") -> None:
        """PCIe and NVLink together; either alone where the other is not known."""
        total_ms, total = self.link_ms, self.link_sum
        for device, ms in zip(samples, covers_ms, strict=True):
            value, nvlink = device.pcie_bytes_per_second, device.nvlink_bytes_per_second
            if nvlink is not None and nvlink >= 0:
                value = value + nvlink if value is not None and value >= 0 else nvlink
            if value is not None and value >= 0:
                total_ms += ms
                total += value * ms
        self.link_ms, self.link_sum = total_ms, total

    def _add_use(self, measure: str, use: float, ms: int) -> None:
        """Measures never mix: a change of measure starts the window's use anew."""
        if measure != self.measure:
            self.measure, self.use_ms, self.use_sum = measure, 0, 0.0
            self.use_min = self.use_max = None
        self.use_ms += ms
        self.use_sum += use * ms
        if self.use_min is None or use < self.use_min:
            self.use_min = use
        if self.use_max is None or use > self.use_max:
            self.use_max = use
        self.use_last = use

    def _add_memory(self, sizes: "Sequence[int | None]") -> None:
        known = [size for size in sizes if size is not None]
        if known:
            least = min(known)
            self.memory_last = known[-1]
            if self.memory_min is None or least < self.memory_min:
                self.memory_min = least

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
            memory_limit_bytes=holder.memory_limit_bytes,
            memory_free_bytes=_free_bytes(device) if holder.sharers > 1 else None,
            power_mean_watts=_mean(self.power_sum, self.power_ms),
            power_min_watts=self.power_min,
            power_max_watts=self.power_max,
            power_idle_watts=idle_watts,
            power_limit_watts=device.power_limit_watts,
            link_bytes_per_second=_mean(self.link_sum, self.link_ms),
        )


def _free_bytes(device: "DeviceSample") -> int | None:
    """What nobody holds of a device; None where that is not known."""
    used, total = device.memory_used_bytes, device.memory_total_bytes
    return None if used is None or not total else max(0, total - used)


def _mean(total: float, covered_ms: int) -> float | None:
    return total / covered_ms if covered_ms else None


def _quality(word: str) -> "Quality":
    return word  # type: ignore[return-value]  # written by this module from a Quality


def _measure(word: str | None) -> "Measure | None":
    return word  # type: ignore[return-value]  # written by this module from a Measure


def plausible_percent(value: float | None) -> float | None:
    """A percentage that can be one, else None."""
    return value if value is not None and 0 <= value <= HIGHEST_PERCENT else None


def _holds_nothing(device: "DeviceSample | None") -> bool:
    """No process and no memory: high use on top of that is a fault of the counter, not work."""
    if device is None:
        return True
    used = device.memory_used_bytes
    return used is not None and used < NOTHING_HELD_BYTES and not device.processes

"""A stretch of waste: since when, how long, how many GPU-hours and what they cost."""

from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.alerts import Waste

if TYPE_CHECKING:
    from schemas.windows import WorkloadWindow
    from streams.prices import Prices
    from streams.workload_use import WorkloadUse

SECONDS_AN_HOUR = 3600.0


class Spell(Struct, omit_defaults=True):
    """Sums since the onset.  Seconds are seconds covered by samples."""

    onset_ms: int
    known_seconds: float = 0.0
    low_seconds: float = 0.0
    use_sum: float = 0.0
    """Percent-seconds over the known time."""
    memory_seconds: float = 0.0
    memory_sum: float = 0.0
    """Byte-seconds of the device that holds most."""
    gpu_seconds: float = 0.0
    """Seconds of whole cards that were paid for in the low time."""
    cost: float = 0.0
    cost_known: bool = True
    """False once a card without a price was in it."""

    def add(self, seen: "WorkloadUse") -> None:
        """Count a window in which the use was known."""
        self.known_seconds += seen.seconds
        self.use_sum += seen.use_percent * seen.seconds
        if seen.memory_bytes is not None:
            self.memory_seconds += seen.seconds
            self.memory_sum += seen.memory_bytes * seen.seconds

    def charge(self, window: "WorkloadWindow", seconds: float, prices: "Prices") -> None:
        """Count time in which the workload's cards were wasted; only cards that were seen."""
        self.low_seconds += seconds
        for series in window.series:
            if series.coverage_seconds <= 0:
                continue
            used = series.card_share * seconds
            self.gpu_seconds += used
            price = prices.per_gpu_hour(series.device_model, series.capacity_type)
            if price is None:
                self.cost_known = False
            else:
                self.cost += price * used / SECONDS_AN_HOUR

    @property
    def use_mean_percent(self) -> float | None:
        """Mean use over the known time; None before any."""
        return self.use_sum / self.known_seconds if self.known_seconds else None

    @property
    def memory_mean_bytes(self) -> float | None:
        """Mean of the memory held on the device that holds most; None where not known."""
        return self.memory_sum / self.memory_seconds if self.memory_seconds else None

    def waste(self, currency: str) -> Waste:
        """GPU-hours so far and their price; no cost where any card has no price."""
        hours = self.gpu_seconds / SECONDS_AN_HOUR
        if not self.cost_known:
            return Waste(gpu_hours=hours)
        return Waste(gpu_hours=hours, cost=self.cost, currency=currency)

"""Money for GPU-hours, from the table that the user configured; what is not known stays unknown."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.parameters import PriceParameters
    from schemas.wire import CapacityType


class Prices:
    """The configured prices.  Remembers each answer: models are few and windows are many."""

    def __init__(self, parameters: "PriceParameters") -> None:
        self.currency: str = parameters.currency
        self._table = tuple(
            (price.device_model.lower(), price.capacity_type, price.per_gpu_hour)
            for price in parameters.table
        )
        self._known: dict[tuple[str | None, str | None], float | None] = {}

    def per_gpu_hour(
        self, device_model: str | None, capacity_type: "CapacityType | None"
    ) -> float | None:
        """Money for an hour of one whole card: the first price that fits, None where none does.

        A price for a capacity type does not fit a card whose capacity type is not known.
        """
        key = (device_model, capacity_type)
        if key not in self._known:
            self._known[key] = self._look_up(device_model, capacity_type)
        return self._known[key]

    def _look_up(
        self, device_model: str | None, capacity_type: "CapacityType | None"
    ) -> float | None:
        if device_model is None:
            return None
        model = device_model.lower()
        for part, capacity, price in self._table:
            if part in model and capacity in (None, capacity_type):
                return price
        return None

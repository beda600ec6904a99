import pytest

from schemas.parameters import Price, PriceParameters
from schemas.wire import CapacityType
from streams.prices import Prices

PRICES = Prices(
    PriceParameters(
        currency="EUR",
        table=(
            Price(device_model="H100", per_gpu_hour=1.5, capacity_type="spot"),
            Price(device_model="h100", per_gpu_hour=4.0),
            Price(device_model="NVIDIA", per_gpu_hour=0.0),
        ),
    )
)


@pytest.mark.parametrize(
    ("model", "capacity", "price"),
    [
        ("NVIDIA H100 80GB HBM3", "spot", 1.5),
        ("NVIDIA H100 80GB HBM3", "on_demand", 4.0),
        ("NVIDIA H100 80GB HBM3", None, 4.0),
        ("NVIDIA L40S", "spot", 0.0),
        ("AMD Instinct", None, None),
        (None, "spot", None),
    ],
)
def test_the_first_price_that_fits(
    model: str | None, capacity: CapacityType | None, price: float | None
) -> None:
    assert PRICES.per_gpu_hour(model, capacity) == price
    assert PRICES.per_gpu_hour(model, capacity) == price, "the remembered answer is the same"


def test_an_empty_table_knows_no_price() -> None:
    assert Prices(PriceParameters()).per_gpu_hour("NVIDIA H100", None) is None

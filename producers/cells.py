"""What one cell of a log says: a number in our units, a name, a time, or nothing.

Logs repeat the same few cells (`0 %`, `32768 MiB`) for hours, so each column keeps what it has
already understood: a look-up costs a tenth of a conversion.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from re import ASCII, IGNORECASE
from re import compile as pattern

MISSING = frozenset(
    {"", "-", "--", "n/a", "na", "none", "null", "unknown", "not supported", "unknown error"}
)
CELLS_KEPT = 4096
TEXT_LENGTH_MAX = 512
LAST_EPOCH_MS = 253_402_300_799_999

_NUMBER = pattern(
    r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan|inf(?:inity)?))\s*(.*)", ASCII | IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Up to which count an epoch counts seconds, milliseconds, micro- and nanoseconds of our age.
_EPOCH_UNITS_MS = ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (1e20, 1e-6))


@dataclass(frozen=True, slots=True)
class Quantity:
    """How a kind of number is written, and between which bounds it can be true."""

    factors: Mapping[str, float]
    """What one of a unit (lower case) is in ours."""
    default_unit: str
    """The unit that nvidia-smi means where it writes none."""
    least: float
    most: float


PERCENT = Quantity({"%": 1}, "%", 0, 100)
# nvidia-smi counts in powers of two; its old versions and home-made headers call them MB.
BYTES = Quantity(
    {
        "b": 1,
        "bytes": 1,
        **dict.fromkeys(("kib", "kb"), 2**10),
        **dict.fromkeys(("mib", "mb"), 2**20),
        **dict.fromkeys(("gib", "gb"), 2**30),
    },
    "mib",
    0,
    2**50,
)
WATTS = Quantity({"w": 1, "mw": 1e-3, "kw": 1e3}, "w", 0, 100_000)
# The last is the degree sign of a file that is not UTF-8.
CELSIUS = Quantity({"c": 1, "\N{DEGREE SIGN}c": 1, "\ufffdc": 1}, "c", -100, 300)
ORDINAL = Quantity({"": 1}, "", 0, 65_535)


def is_missing(text: str) -> bool:
    """Whether the driver says that it has no value: `[N/A]`, `[Unknown Error]`, `-`, `ERROR - ...`.

    >>> is_missing("[Not Supported]"), is_missing("0 %")
    (True, False)
    """
    lowered = text.lower()
    return lowered in MISSING or lowered.startswith(("[", "error"))


class Numbers(dict[str, float | None]):
    """The numbers of one column by their cells; None for a missing or an impossible one.

    A cell that holds neither a number within the quantity's bounds nor a mark for "missing" is
    counted in `unusable` under the column's name, each time it is met.
    """

    def __init__(
        self, name: str, quantity: Quantity, unit: str | None, unusable: Counter[str]
    ) -> None:
        super().__init__()
        self._name = name
        self._quantity = quantity
        self._factor = quantity.factors[quantity.default_unit if unit is None else unit]
        self._unusable = unusable

    def __missing__(self, cell: str) -> float | None:
        text = cell.strip()
        missing = is_missing(text)
        value = None if missing else self._number(text)
        if value is None and not missing:
            self._unusable[self._name] += 1
            return None
        if len(self) >= CELLS_KEPT:
            self.clear()
        self[cell] = value
        return value

    def _number(self, text: str) -> float | None:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return None
        unit = match[2].lower()
        factor = self._quantity.factors.get(unit) if unit else self._factor
        value = float(match[1]) * factor if factor is not None else float("nan")
        return value if self._quantity.least <= value <= self._quantity.most else None


class Names(dict[str, str | None]):
    """The names of one column by their cells, at most as long as the wire takes."""

    def __missing__(self, cell: str) -> str | None:
        text = cell.strip()
        value = None if is_missing(text) else text[:TEXT_LENGTH_MAX]
        if len(self) >= CELLS_KEPT:
            self.clear()
        self[cell] = value
        return value


def epoch_ms(cell: str) -> int | None:
    """Milliseconds since 1970 of a time as nvidia-smi, ISO 8601 or an epoch counter writes it.

    A time without zone is UTC: nvidia-smi writes local time and does not say which, and only
    differences matter to a recording.  None if the cell holds no time.

    >>> epoch_ms("2026/09/01 06:00:00.250") == epoch_ms("1788242400.25")
    True
    """
    text = cell.strip()
    try:
        if text.replace(".", "", 1).isdecimal():
            value = _counted_ms(float(text))
        else:
            moment = datetime.fromisoformat(text.replace("/", "-"))
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            value = (zoned - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None
    return value if 0 <= value <= LAST_EPOCH_MS else None


def _counted_ms(count: float) -> int:
    for below, milliseconds in _EPOCH_UNITS_MS:
        if count < below:
            return round(count * milliseconds)
    return -1

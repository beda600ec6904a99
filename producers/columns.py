"""Which column of a log holds what: by its header, or by the names that the user gives."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from re import compile as pattern
from typing import TYPE_CHECKING, TypeVar

from producers.cells import (
    BYTES,
    CELSIUS,
    ORDINAL,
    PERCENT,
    WATTS,
    Names,
    Numbers,
    Quantity,
    epoch_ms,
)
from schemas import telemetry
from schemas.hot import struct_of

if TYPE_CHECKING:
    from schemas.telemetry import DeviceSample
else:
    DeviceSample = struct_of(telemetry.DeviceSample)

SUGGESTED_COLUMNS = "timestamp,uuid,index,name,utilization.gpu,memory.used,memory.total,power.draw"

# Names in the form of `_plain`; of several columns for one value the first with a value counts.
TIME = ("timestamp", "time", "datetime")
UUID = ("uuid", "gpu.uuid")
BUS = ("pci.bus.id", "gpu.bus.id")
MODEL = ("name", "gpu.name")
INDEX = ("index", "gpu.index")
GPU_UTIL = ("utilization.gpu", "utilisation.gpu", "gpu.utilization", "gpu.util")
MEMORY_CONTROLLER = ("utilization.memory", "utilisation.memory")
MEMORY_USED = ("memory.used",)
MEMORY_TOTAL = ("memory.total",)
MEMORY_FREE = ("memory.free",)
MEMORY_RESERVED = ("memory.reserved",)
POWER = ("power.draw", "power.draw.average", "power.draw.instant")
POWER_LIMIT = ("power.default.limit", "power.limit")
TEMPERATURE = ("temperature.gpu",)

QUANTITIES: Mapping[tuple[str, ...], Quantity] = {
    INDEX: ORDINAL,
    GPU_UTIL: PERCENT,
    MEMORY_CONTROLLER: PERCENT,
    MEMORY_USED: BYTES,
    MEMORY_TOTAL: BYTES,
    MEMORY_FREE: BYTES,
    MEMORY_RESERVED: BYTES,
    POWER: WATTS,
    POWER_LIMIT: WATTS,
    TEMPERATURE: CELSIUS,
}
MEASURES = GPU_UTIL + MEMORY_CONTROLLER + MEMORY_USED + POWER
KNOWN = frozenset(TIME + UUID + BUS + MODEL).union(*QUANTITIES)

Value = TypeVar("Value", str, float)

_HEADING = pattern(r"(.*?)\s*(?:[\[(]([^\])]*)[\])])?\s*")
_SEPARATORS = pattern(r"[\s_]+")


class RecordingError(Exception):
    """A log that cannot be read.  The message is one line: what is wrong and what to do."""


def _plain(heading: str) -> tuple[str, str | None]:
    """Split a heading into name and unit: `Memory_Used [MiB]` is `memory.used` in `mib`."""
    match = _HEADING.fullmatch(heading.strip().lower())
    if match is None:
        return "", None
    return _SEPARATORS.sub(".", match[1]), match[2] or None


def is_header(row: Iterable[str]) -> bool:
    """Whether a row names columns that we know."""
    return any(_plain(cell)[0] in KNOWN for cell in row)


class Layout:
    """Finds a row's time, device and values.

    `source` begins the errors' messages; `prefix` makes a device's name from its index or bus id
    where the log has no uuid; cells that hold nothing usable are counted in `unusable`.  Raises
    RecordingError if the columns do not suffice.
    """

    def __init__(
        self, source: str, headings: Sequence[str], prefix: str, unusable: Counter[str]
    ) -> None:
        self.width = len(headings)
        self.headings = tuple(headings)
        self._source = source
        self._prefix = prefix
        self._at: dict[str, tuple[int, str | None]] = {}
        for position, heading in enumerate(headings):
            name, unit = _plain(heading)
            self._at.setdefault(name, (position, unit))
        self._time = self._time_position()
        self._require_a_measure()
        self._uuid, self._bus, self._model = map(self._names, (UUID, BUS, MODEL))
        self._numbers = {
            names: self._numbers_of(names, kind, unusable) for names, kind in QUANTITIES.items()
        }
        # A second reading of the same cells, which must not count them twice.
        self._device_index = self._numbers_of(INDEX, ORDINAL, Counter())

    def time_ms(self, row: Sequence[str]) -> int | None:
        """When the row was measured; None if its cell holds no time."""
        return epoch_ms(row[self._time])

    def device(self, row: Sequence[str]) -> str | None:
        """Name the row's device: by uuid, else by index, else by PCI bus id; None if unsaid."""
        uuid = _first(self._uuid, row)
        if uuid is not None:
            return uuid
        index = _first(self._device_index, row)
        if index is not None:
            return f"{self._prefix}{int(index)}"
        bus = _first(self._bus, row)
        return None if bus is None else f"{self._prefix}{bus[:64]}"

    def sample(self, row: Sequence[str], uuid: str, position: int) -> DeviceSample:
        """Make a row's values; `position` stands for an index that the log does not have."""
        index = self._number(INDEX, row)
        used = self._number(MEMORY_USED, row)
        return DeviceSample(
            uuid=uuid,
            index=position if index is None else int(index),
            model=_first(self._model, row),
            gpu_util_percent=self._number(GPU_UTIL, row),
            memory_controller_percent=self._number(MEMORY_CONTROLLER, row),
            memory_used_bytes=_whole(used),
            memory_total_bytes=_whole(self._total(row, used)),
            power_watts=self._number(POWER, row),
            power_limit_watts=self._number(POWER_LIMIT, row),
            temperature_celsius=self._number(TEMPERATURE, row),
        )

    def _total(self, row: Sequence[str], used: float | None) -> float | None:
        total = self._number(MEMORY_TOTAL, row)
        if total is not None or not self._numbers[MEMORY_FREE]:
            return total
        free = self._number(MEMORY_FREE, row)
        if used is None or free is None:
            return None
        return used + free + (self._number(MEMORY_RESERVED, row) or 0)

    def _number(self, names: tuple[str, ...], row: Sequence[str]) -> float | None:
        return _first(self._numbers[names], row)

    def _time_position(self) -> int:
        for name in TIME:
            if name in self._at:
                return self._at[name][0]
        raise RecordingError(
            f"{self._source}: no timestamp column among {_shown(self.headings)}; log with "
            f"nvidia-smi --query-gpu={SUGGESTED_COLUMNS} --format=csv"
        )

    def _require_a_measure(self) -> None:
        if self._at.keys().isdisjoint(MEASURES):
            raise RecordingError(
                f"{self._source}: no utilization.gpu, memory.used or power.draw among "
                f"{_shown(self.headings)}; log with "
                f"nvidia-smi --query-gpu={SUGGESTED_COLUMNS} --format=csv"
            )

    def _names(self, names: tuple[str, ...]) -> tuple[tuple[int, Names], ...]:
        return tuple((self._at[name][0], Names()) for name in names if name in self._at)

    def _numbers_of(
        self, names: tuple[str, ...], quantity: Quantity, unusable: Counter[str]
    ) -> tuple[tuple[int, Numbers], ...]:
        found = [(name, *self._at[name]) for name in names if name in self._at]
        for name, _, unit in found:
            if unit is not None and unit not in quantity.factors:
                raise RecordingError(
                    f"{self._source}: unknown unit [{unit[:20]}] of {name}; use one of "
                    f"{', '.join(filter(None, quantity.factors)) or 'no unit'}"
                )
        return tuple(
            (position, Numbers(name, quantity, unit, unusable)) for name, position, unit in found
        )


def _first(
    columns: tuple[tuple[int, Mapping[str, Value | None]], ...], row: Sequence[str]
) -> Value | None:
    for position, cells in columns:
        value = cells[row[position]]
        if value is not None:
            return value
    return None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _shown(headings: Sequence[str]) -> str:
    return repr(", ".join(headings)[:120])

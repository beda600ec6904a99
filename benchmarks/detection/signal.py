"""A labelled signal: what one subject shows for some hours, and what is true of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from schemas.alerts import AlertKind
    from schemas.windows import WorkloadWindow
    from streams.device_windows import DeviceWindow

DetectorName = Literal["leak", "under_use", "noisy"]

WINDOW_SECONDS = 10
START_SECONDS = 1_772_409_600
"""Signals begin on a Monday at 00:00 UTC, unless their shape says otherwise."""

TUNING_SEEDS = range(1_000, 2_000)
"""Constants may be chosen by looking at these."""
JUDGING_SEEDS = range(910_000, 911_000)
"""Looked at only to publish figures; nothing is ever chosen by them."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Trouble that is really there; times in seconds since the signal's start."""

    kind: "AlertKind"
    also: "tuple[AlertKind, ...]" = ()
    """Other kinds that are right as well."""
    begin_seconds: float = 0.0
    end_seconds: float = 0.0
    """When it is over; of a leak, when the memory is exhausted."""
    victims: tuple[str, ...] = ()
    aggressors: tuple[str, ...] = ()
    """Pods' uids, of a noisy neighbour."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What a detector is fed, and what it should say."""

    detector: DetectorName
    shape: str
    seed: int
    duration_seconds: int
    episode: Episode | None
    """None: a trap, or plainly healthy; anything said is a false alarm."""
    windows: "Callable[[], Iterator[tuple[int, WorkloadWindow | DeviceWindow]]]"
    """Begins anew at each call: (start of the window in milliseconds since the epoch, window).
    `leak` and `under_use` get workloads' windows, `noisy` the device's."""
    starts_at_seconds: int = START_SECONDS

"""Simulated hardware: cards and MIG instances that turn the load of their pods into samples."""

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from producers.scenarios import Script, swung
from schemas import telemetry
from schemas.hot import struct_of

if TYPE_CHECKING:
    from schemas.telemetry import DeviceSample, ProcessSample
else:
    DeviceSample = struct_of(telemetry.DeviceSample)
    ProcessSample = struct_of(telemetry.ProcessSample)

MIB = 2**20

POWER_SWING = 0.25
"""Boards average their power, so it swings this part as far as the counters."""


class CardModel(NamedTuple):
    """What a kind of card is and what it can tell."""

    name: str
    memory_total_bytes: int
    power_limit_watts: float
    power_idle_watts: float
    knows_activity: bool
    """Whether SM, graphics-engine and DRAM activity are measured."""
    has_nvlink: bool


H100 = CardModel("NVIDIA H100 80GB HBM3", 81_559 * MIB, 700.0, 70.0, True, True)  # noqa: FBT003
A100 = CardModel("NVIDIA A100-SXM4-80GB", 81_920 * MIB, 400.0, 55.0, False, True)  # noqa: FBT003
L40S = CardModel("NVIDIA L40S", 46_068 * MIB, 350.0, 35.0, False, False)  # noqa: FBT003

MIG_PROFILE = "1g.10gb"
MIG_INSTANCES = 7
MIG_MEMORY_BYTES = 9_984 * MIB


class Tenant(NamedTuple):
    """A pod's process on a device."""

    pod_uid: str
    container: str
    pid: int
    begin_seconds: float
    script: Script


class Sums(NamedTuple):
    """The load of all tenants of a device together, swung."""

    util: float
    active: float
    memory: float
    power: float
    held: int
    pcie: float
    nvlink: float
    processes: tuple["ProcessSample", ...]


class Device:
    """Something that pods hold; `tenants` is set by the node."""

    def __init__(self, uuid: str, index: int, rng: Random) -> None:
        self.uuid = uuid
        self.tenants: dict[str, Tenant] = {}
        """By pod uid."""
        self._index = index
        self._random = rng.random

    def _sums(self, seconds: float, *, by_process: bool) -> Sums:
        random = self._random
        util = active = memory = power = pcie = nvlink = 0.0
        held = 0
        processes = []
        for uid, container, pid, begin, script in self.tenants.values():
            load = script.at(seconds - begin)
            if not load.memory_bytes:
                continue
            swing = load.spread * (random() + random() - 1.0)
            own = swung(load.util_percent, swing)
            util += own
            active += swung(load.active_percent, swing)
            memory += swung(load.memory_percent, swing)
            power += load.power_fraction * (1.0 + POWER_SWING * swing)
            held += load.memory_bytes
            pcie += load.pcie_bytes_per_second * (1.0 + swing)
            nvlink += load.nvlink_bytes_per_second * (1.0 + swing)
            processes.append(
                ProcessSample(
                    pid=pid,
                    pod_uid=uid,
                    container=container,
                    sm_percent=float(round(own)) if by_process else None,
                    memory_used_bytes=load.memory_bytes,
                    quality="exact",
                )
            )
        return Sums(util, active, memory, power, held, pcie, nvlink, tuple(processes))

    def sample(self, seconds: float) -> "DeviceSample":
        """What the device says `seconds` after the start of the simulation."""
        raise NotImplementedError


class Card(Device):
    """A whole card, which several pods may share in time slices."""

    def __init__(self, model: CardModel, uuid: str, index: int, rng: Random) -> None:
        super().__init__(uuid, index, rng)
        self._model = model
        self._idle_watts = model.power_idle_watts + rng.uniform(-3, 3)
        self._reserved_bytes = rng.randint(2, 6) * MIB

    def sample(self, seconds: float) -> "DeviceSample":
        """Everything that NVML tells of such a card, and GPM where it has it."""
        model = self._model
        util, active, memory, power, held, pcie, nvlink, processes = self._sums(
            seconds, by_process=True
        )
        limit, idle, noise = model.power_limit_watts, self._idle_watts, self._random()
        watts = min(limit, idle + min(1.0, power) * (limit - idle) + 3.0 * noise - 1.5)
        known = model.knows_activity
        util = min(100.0, util)
        return DeviceSample(
            uuid=self.uuid,
            index=self._index,
            model=model.name,
            gpu_util_percent=float(round(util)),
            gr_engine_active_percent=round(util, 1) if known else None,
            sm_active_percent=round(min(100.0, active), 1) if known else None,
            memory_controller_percent=float(round(min(100.0, memory))),
            dram_active_percent=round(min(100.0, memory), 1) if known else None,
            memory_used_bytes=self._reserved_bytes + held,
            memory_total_bytes=model.memory_total_bytes,
            power_watts=round(watts, 1),
            power_limit_watts=limit,
            temperature_celsius=float(round(28.0 + 45.0 * watts / limit)),
            pcie_bytes_per_second=float(int(pcie + 20_000.0 * noise)),
            nvlink_bytes_per_second=float(int(nvlink)) if model.has_nvlink else None,
            processes=processes,
            processes_complete=True,
        )


class MigInstance(Device):
    """A slice of a card: activity is known, power, links and use by process are not."""

    def __init__(self, parent_uuid: str, number: int, uuid: str, index: int, rng: Random) -> None:
        super().__init__(uuid, index, rng)
        self._parent_uuid = parent_uuid
        self._name = f"{MIG_PROFILE}/{number}"
        self._reserved_bytes = rng.randint(10, 14) * MIB

    def sample(self, seconds: float) -> "DeviceSample":
        """Activity by GPM and memory, which is all that an instance has of its own."""
        util, active, memory, _, held, _, _, processes = self._sums(seconds, by_process=False)
        return DeviceSample(
            uuid=self.uuid,
            index=self._index,
            model=H100.name,
            parent_uuid=self._parent_uuid,
            mig_instance=self._name,
            card_share=1 / MIG_INSTANCES,
            gr_engine_active_percent=round(min(100.0, util), 1),
            sm_active_percent=round(min(100.0, active), 1),
            dram_active_percent=round(min(100.0, memory), 1),
            memory_used_bytes=self._reserved_bytes + held,
            memory_total_bytes=MIG_MEMORY_BYTES,
            processes=processes,
            processes_complete=True,
        )

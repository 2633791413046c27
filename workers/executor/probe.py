"""Probe of this host and its devices. Hardware may be faulty or absent: an error of NVML becomes None."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil
import pynvml
from tidepool import procfs
from tidepool.protocol import DeviceReading, HostFacts, RankStatus
from tidepool.shim_slots import VIRTUAL_MODEL, gpu_of

from workers.executor.config import ExecutorConfig
from workers.executor.environments.conda import solver_in
from workers.executor.environments.engines import engine_in

__all__ = ["GpuProbe", "VirtualProbe", "make_probe", "processors"]

_CPUS = Path("/sys/devices/system/cpu")

T = TypeVar("T")


@dataclass(frozen=True)
class _Use:
    """Use of a processor by a rank's processes since the reading before, in percent of one processor."""

    #: Time on the processor; time on it or waiting for it.
    ran: float
    wanted: float


class _ProcessorUse:
    """Use of processors by ranks, from one reading to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: member_id -> (seconds on a processor, seconds of waiting for one, time) of the reading before.
        self._before: dict[str, tuple[float, float, float]] = {}

    def read(self, ranks: Iterable[RankStatus], trees: Mapping[int, list[psutil.Process]]) -> dict[str, _Use | None]:
        """Return the use by each rank, divided by the slots that it holds; None at the first reading."""
        now, slots = self._clock(), Counter(rank.member_id for rank in ranks)
        read = {
            rank.member_id: (procfs.cpu_seconds(trees[rank.pid]), procfs.waited_seconds(trees[rank.pid]), now)
            for rank in {rank.member_id: rank for rank in ranks}.values()
        }
        found = {member: self._use(member, seconds, slots[member]) for member, seconds in read.items()}
        self._before = read
        return found

    def _use(self, member: str, seconds: tuple[float, float, float], slots: int) -> _Use | None:
        before = self._before.get(member)
        if before is None or seconds[2] <= before[2]:
            return None
        percent = 100 / (seconds[2] - before[2]) / slots
        ran = max(0.0, seconds[0] - before[0]) * percent
        waited = max(0.0, seconds[1] - before[1]) * percent
        return _Use(round(min(100.0, ran), 1), round(min(100.0, ran + waited), 1))


class VirtualProbe:
    """Probe of slots without a GPU, with the CPU use of the slot's rank as utilization."""

    def __init__(
        self, address: str, slots: int, clock: Callable[[], float] = time.monotonic, *, images: str = ""
    ) -> None:
        """images: name of the program that runs container images."""
        self._address = address
        self._images = images
        self._slots = slots
        self._use = _ProcessorUse(clock)

    def facts(self) -> HostFacts:
        return _facts(self._address, ngpus=self._slots, virtual=True, images=self._images)

    def devices(self, ranks: list[RankStatus]) -> list[DeviceReading]:
        trees = procfs.trees([rank.pid for rank in ranks])
        uses = self._use.read(ranks, trees)
        slots = Counter(rank.member_id for rank in ranks)  # a process may hold several, and is divided among them
        by_slot = {rank.slot: rank for rank in ranks}
        readings = []
        for slot in range(self._slots):
            rank = by_slot.get(slot)
            memory = 0 if rank is None else procfs.memory_bytes(trees[rank.pid]) // slots[rank.member_id]
            use = _Use(0.0, 0.0) if rank is None else uses[rank.member_id]
            ran, wanted = (None, None) if use is None else (use.ran, use.wanted)
            reading = DeviceReading(slot, VIRTUAL_MODEL, True, ran, memory, None, processor_percent=wanted)
            readings.append(reading)
        return readings


class GpuProbe:
    """Probe of real GPUs in NVML's order. Each GPU offers `slots_per_gpu` slots, which share its readings."""

    def __init__(self, address: str, slots_per_gpu: int = 1, *, images: str = "") -> None:
        """images: name of the program that runs container images."""
        self._address = address
        self._images = images
        self._slots_per_gpu = slots_per_gpu
        self._working = _or_none(pynvml.nvmlInit, default=True)
        self._use = _ProcessorUse(time.monotonic)

    def facts(self) -> HostFacts:
        return _facts(self._address, ngpus=self._slots(), virtual=False, images=self._images)

    def devices(self, ranks: list[RankStatus]) -> list[DeviceReading]:
        uses = self._use.read(ranks, procfs.trees([rank.pid for rank in ranks]))
        by_slot = {rank.slot: uses[rank.member_id] for rank in ranks}
        return [self._device(slot, by_slot.get(slot)) for slot in range(self._slots())]

    def _slots(self) -> int:
        gpus = _or_none(pynvml.nvmlDeviceGetCount) if self._working else None
        return (gpus or 0) * self._slots_per_gpu

    def _device(self, slot: int, use: _Use | None) -> DeviceReading:
        handle = _or_none(pynvml.nvmlDeviceGetHandleByIndex, gpu_of(slot, self._slots_per_gpu))
        if handle is None:
            return DeviceReading(slot, "unknown GPU", False, None, None, None)
        rates = _or_none(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = _or_none(pynvml.nvmlDeviceGetMemoryInfo, handle)
        milliwatts = _or_none(pynvml.nvmlDeviceGetPowerUsage, handle)
        temperature = _or_none(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        return DeviceReading(
            slot=slot,
            model=_or_none(pynvml.nvmlDeviceGetName, handle) or "unknown GPU",
            virtual=False,
            utilisation_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_celsius=None if temperature is None else float(temperature),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            uuid=_or_none(pynvml.nvmlDeviceGetUUID, handle),
            processor_percent=None if use is None else use.wanted,
        )


def make_probe(config: ExecutorConfig) -> VirtualProbe | GpuProbe:
    images = engine_in(config.installer_environment)
    if config.virtual_slots is None:
        return GpuProbe(config.address, config.slots_per_gpu, images=images)
    return VirtualProbe(config.address, config.virtual_slots, images=images)


def _facts(address: str, *, ngpus: int, virtual: bool, images: str) -> HostFacts:
    return HostFacts(
        address=address,
        ncpus=os.cpu_count() or 1,
        ngpus=ngpus,
        memory_bytes=psutil.virtual_memory().total,
        virtual=virtual,
        swap_bytes=psutil.swap_memory().total,
        conda=solver_in(),
        images=images,
        prepares=True,
        fleet="",  # the reporter fills it in
        **cast(Mapping[str, Any], processors(_CPUS)),
    )


@cache
def processors(cpus: Path) -> Mapping[str, int]:
    """Return the number of sockets, cores per socket and threads per core, from the kernel's folder of CPUs.

    The result is empty if the kernel does not report them, as in many containers. Sockets are assumed to be equal.
    """
    try:
        places = [
            ((topology / "physical_package_id").read_text().strip(), (topology / "core_id").read_text().strip())
            for topology in cpus.glob("cpu[0-9]*/topology")
        ]
    except OSError:
        return {}
    cores, sockets = set(places), {package for package, _ in places}
    if not places:
        return {}
    return {"nprocs": len(sockets), "ncores": len(cores) // len(sockets), "nthreads": len(places) // len(cores)}


def _or_none(ask: Callable[..., T], *arguments: Any, default: T | None = None) -> T | None:
    """Return the result of `ask`, `default` if that is None, or None if NVML fails."""
    try:
        answer = ask(*arguments)
    except pynvml.NVMLError:
        return None
    return default if answer is None else answer

"""Probe of this host and its devices. Hardware may be faulty or absent: an error of NVML becomes None."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pynvml
from tidepool import procfs
from tidepool.backoff import Interval
from tidepool.cgroup_limits import usable
from tidepool.device_report import DeviceReport
from tidepool.protocol import DeviceReading, HostFacts, ProcessUse, RankStatus
from tidepool.shim_slots import VIRTUAL_MODEL, gpu_of

from workers.executor.config import ExecutorConfig, self_test_environment
from workers.executor.devices.findings import gpu_problem, software_words
from workers.executor.devices.health import Health
from workers.executor.devices.inventory import Inventory, or_none, read_inventory
from workers.executor.devices.self_test import self_test
from workers.executor.devices.slot_devices import SlotDevices
from workers.executor.environments.conda import solver_in
from workers.executor.environments.engines import engine_in
from workers.executor.process_use import ProcessReader

__all__ = ["GpuProbe", "VirtualProbe", "make_probe", "processors"]

_CPUS = Path("/sys/devices/system/cpu")
#: Seconds between two attempts to start NVML.
_START_SECONDS = 10.0
#: Largest length of a sentence in the host's facts.
_WORDS = 500
_FAULT_WORDS = 300


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
        self._processes = ProcessReader()

    def facts(self) -> HostFacts:
        return _facts(self._address, ngpus=self._slots, virtual=True, images=self._images)

    def devices(self, ranks: list[RankStatus]) -> list[DeviceReading]:
        trees = procfs.trees([rank.pid for rank in ranks])
        uses, processes = self._use.read(ranks, trees), self._processes.read(ranks, trees)
        slots = Counter(rank.member_id for rank in ranks)  # a process may hold several, and is divided among them
        by_slot = {rank.slot: rank for rank in ranks}
        readings = []
        for slot in range(self._slots):
            rank = by_slot.get(slot)
            memory = 0 if rank is None else procfs.memory_bytes(trees[rank.pid]) // slots[rank.member_id]
            use = _Use(0.0, 0.0) if rank is None else uses[rank.member_id]
            ran, wanted = (None, None) if use is None else (use.ran, use.wanted)
            of_rank = None if rank is None else processes[rank.member_id]
            place = (slot, VIRTUAL_MODEL, True, ran, memory, None)
            readings.append(DeviceReading(*place, processor_percent=wanted, processes=of_rank))
        return readings


class GpuProbe:
    """Probe of real GPUs, known by UUID. Each GPU or MIG instance offers `slots_per_gpu` slots, which share its
    readings."""

    def __init__(
        self,
        address: str,
        slots_per_gpu: int = 1,
        *,
        images: str = "",
        record: Path | None = None,
        test: Callable[[], DeviceReport] | None = None,
        test_one: Callable[[str], DeviceReport] | None = None,
    ) -> None:
        """images: name of the program that runs container images. record: folder that keeps the GPUs' numbers.

        test: the self-test of torch, which takes seconds and runs beside everything else, at first and whenever the
        driver or its devices have changed; None: no test.
        test_one: the same of the device with a UUID.
        """
        self._address = address
        self._images = images
        self._slots_per_gpu = slots_per_gpu
        self._use = _ProcessorUse(time.monotonic)
        self._processes = ProcessReader()
        self._starting = Interval(_START_SECONDS)
        self._works = False
        self._places = SlotDevices(record)
        self._inventory = Inventory()
        self._report = DeviceReport()
        self._health = Health(test_one)
        self._test = test
        self._is_testing = False
        #: State of the driver when the newest test was started: its error, its version, UUIDs of devices.
        self._tested: tuple[str, str, frozenset[str]] | None = None

    def facts(self) -> HostFacts:
        self._look()
        facts = _facts(self._address, ngpus=self._slots(), virtual=False, images=self._images)
        return msgspec.structs.replace(
            facts,
            gpu_software=software_words(self._inventory, self._report)[:_WORDS],
            gpu_problem=gpu_problem(self._inventory, self._report)[:_WORDS],
        )

    def devices(self, ranks: list[RankStatus]) -> list[DeviceReading]:
        trees = procfs.trees([rank.pid for rank in ranks])
        uses, processes = self._use.read(ranks, trees), self._processes.read(ranks, trees)
        by_slot = {rank.slot: (uses[rank.member_id], processes[rank.member_id]) for rank in ranks}
        uuids = self._places.uuids
        self._health.look(self._inventory, uuids)
        if not ranks or self._tested is None:  # memory that ranks hold would look like a fault of their GPU
            self._start_test()
        self._health.retry({uuids[gpu] for slot in by_slot if (gpu := gpu_of(slot, self._slots_per_gpu)) < len(uuids)})
        return [self._device(slot, *by_slot.get(slot, (None, None))) for slot in range(self._slots())]

    def _start_test(self) -> None:
        """Start the self-test of torch, unless one is running or the newest one saw what the driver has now."""
        found = self._inventory
        state = (found.error, found.driver, frozenset(device.uuid for device in found.devices))
        if self._test is None or self._is_testing or state == self._tested:
            return
        self._tested, self._is_testing = state, True
        threading.Thread(target=self._run_test, args=(self._test,), name="gpu-self-test", daemon=True).start()

    def _run_test(self, test: Callable[[], DeviceReport]) -> None:
        try:
            self._report = test()
        finally:
            self._is_testing = False

    def _look(self) -> None:
        """Read the inventory. A driver that was not there is asked again: it may come late."""
        if not self._works and self._starting.is_due(time.monotonic()):
            self._works = or_none(_start_nvml) is not None  # stays started: a start takes long where nothing else does
            if self._works:
                self._health.watch()
        self._inventory = read_inventory()
        self._places.update([device.uuid for device in self._inventory.devices])

    def _slots(self) -> int:
        return len(self._places.uuids) * self._slots_per_gpu

    def _device(self, slot: int, use: _Use | None, processes: ProcessUse | None) -> DeviceReading:
        uuid = self._places.uuids[gpu_of(slot, self._slots_per_gpu)]
        handle = or_none(pynvml.nvmlDeviceGetHandleByUUID, uuid)
        if handle is None:
            fault = self._health.fault(uuid) or "the driver no longer finds it"
            place = (slot, "unknown GPU", False, None, None, None)
            return DeviceReading(*place, uuid=uuid, fault=fault[:_FAULT_WORDS], processes=processes)
        rates = or_none(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = or_none(pynvml.nvmlDeviceGetMemoryInfo, handle)
        milliwatts = or_none(pynvml.nvmlDeviceGetPowerUsage, handle)
        temperature = or_none(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        return DeviceReading(
            slot=slot,
            model=or_none(pynvml.nvmlDeviceGetName, handle) or "unknown GPU",
            virtual=False,
            utilisation_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_celsius=None if temperature is None else float(temperature),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            uuid=uuid,
            fault=self._health.fault(uuid)[:_FAULT_WORDS],
            processor_percent=None if use is None else use.wanted,
            processes=processes,
        )


def _start_nvml() -> bool:
    pynvml.nvmlInit()
    return True


def make_probe(config: ExecutorConfig) -> VirtualProbe | GpuProbe:
    images = engine_in(config.installer_environment)
    if config.virtual_slots is None:
        return GpuProbe(
            config.address,
            config.slots_per_gpu,
            images=images,
            record=config.run_folder,
            test=partial(self_test, self_test_environment()),
            test_one=lambda uuid: self_test({**self_test_environment(), "CUDA_VISIBLE_DEVICES": uuid}),
        )
    return VirtualProbe(config.address, config.virtual_slots, images=images)


def _facts(address: str, *, ngpus: int, virtual: bool, images: str) -> HostFacts:
    counts: Mapping[str, Any] = processors(_CPUS)
    here = usable()
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
        cores=here.cores,
        usable_memory_bytes=here.memory_bytes,
        fleet="",  # the reporter fills it in, and what is reserved
        handshake=True,
        **counts,
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

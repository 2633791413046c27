"""Tests of a host's report of its devices, with NVML played by a double."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tidepool import procfs
from tidepool.device_report import DeviceReport
from tidepool.protocol import RankStatus

from tests.waiting import wait_until
from workers.executor.config import ExecutorConfig
from workers.executor.probe import GpuProbe, VirtualProbe, make_probe, processors


def not_supported(*arguments: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40 + handle),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=10, total=100),
        "nvmlDeviceGetPowerUsage": lambda handle: 250_500,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    return monkeypatch


def test_reads_every_gpu(two_gpus: pytest.MonkeyPatch) -> None:
    probe = GpuProbe("10.0.0.1")
    facts = probe.facts()
    assert (facts.ngpus, facts.virtual, facts.address) == (2, False, "10.0.0.1")
    assert facts.memory_bytes > 0
    reading = probe.devices([])[1]
    assert (reading.slot, reading.model, reading.uuid) == (1, "NVIDIA H200", "GPU-1")
    assert (reading.utilisation_percent, reading.memory_used_bytes, reading.memory_total_bytes) == (41.0, 10, 100)
    assert (reading.temperature_celsius, reading.power_watts) == (61.0, 250.5)


def test_torch_is_tested_again_only_after_a_change_and_while_no_rank_is_here(two_gpus: pytest.MonkeyPatch) -> None:
    reports = [DeviceReport(), DeviceReport()]
    probe = GpuProbe("10.0.0.1", test=reports.pop)
    rank = RankStatus(1, 1, 0, "host-a.0.1", os.getpid(), 0.0, "RUNNING")

    def left(ranks: list[RankStatus]) -> int:
        """Look once, and return the number of tests that have not been run."""
        probe.facts()
        probe.devices(ranks)
        wait_until(lambda: not probe._is_testing, "the test")
        return len(reports)

    assert (left([rank]), left([])) == (1, 1), "at first in any case"
    two_gpus.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    assert (left([rank]), left([]), left([])) == (1, 0, 0)


def test_a_gpu_may_be_offered_as_several_slots_which_all_show_what_it_does(two_gpus: pytest.MonkeyPatch) -> None:
    probe = GpuProbe("10.0.0.1", slots_per_gpu=3)
    assert probe.facts().ngpus == 6
    readings = probe.devices([])
    assert [reading.slot for reading in readings] == [0, 1, 2, 3, 4, 5]
    assert [reading.uuid for reading in readings] == ["GPU-0"] * 3 + ["GPU-1"] * 3
    assert readings[5].utilisation_percent == 41.0


FIGURES = [
    ("nvmlDeviceGetUtilizationRates", "utilisation_percent"),
    ("nvmlDeviceGetMemoryInfo", "memory_used_bytes"),
    ("nvmlDeviceGetPowerUsage", "power_watts"),
    ("nvmlDeviceGetTemperature", "temperature_celsius"),
]


@pytest.mark.parametrize(("call", "figure"), FIGURES)
def test_a_figure_that_the_hardware_does_not_tell_is_none_and_the_others_stay(
    two_gpus: pytest.MonkeyPatch, call: str, figure: str
) -> None:
    two_gpus.setattr(pynvml, call, not_supported)
    probe = GpuProbe("10.0.0.1")
    probe.facts()
    reading = probe.devices([])[0]
    assert getattr(reading, figure) is None
    assert sum(getattr(reading, name) is None for _, name in FIGURES) == 1


def test_a_gpu_that_has_fallen_off_the_bus_keeps_its_slot(two_gpus: pytest.MonkeyPatch) -> None:
    probe = GpuProbe("10.0.0.1")
    probe.facts()
    for call in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"):
        two_gpus.setattr(pynvml, call, not_supported)
    assert probe.facts().ngpus == 2
    readings = probe.devices([])
    assert [(reading.slot, reading.utilisation_percent) for reading in readings] == [(0, None), (1, None)]


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", not_supported)
    probe = GpuProbe("10.0.0.1")
    assert probe.facts().ngpus == 0
    assert probe.devices([]) == []


def test_a_virtual_gpu_says_that_it_is_one() -> None:
    probe = VirtualProbe("127.0.0.1", slots=2)
    assert (probe.facts().ngpus, probe.facts().virtual) == (2, True)
    empty = probe.devices([])[1]
    assert (empty.model, empty.virtual) == ("virtual GPU (CPU)", True)
    assert (empty.utilisation_percent, empty.memory_used_bytes, empty.memory_total_bytes) == (0.0, 0, None)


def test_a_virtual_gpus_utilisation_is_its_ranks_cpu_time_over_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 102.0, 103.0])
    probe = VirtualProbe("127.0.0.1", slots=1, clock=lambda: next(now))
    rank = RankStatus(1, 1, 0, "host-a.0.1", os.getpid(), 0.0, "RUNNING")
    cpu_seconds = iter([10.0, 11.0, 99.0])
    monkeypatch.setattr(procfs, "cpu_seconds", lambda tree: next(cpu_seconds))
    readings = [probe.devices([rank])[0] for _ in range(3)]
    assert [reading.utilisation_percent for reading in readings] == [None, 50.0, 100.0]
    assert all((reading.memory_used_bytes or 0) > 1_000_000 for reading in readings)


def test_a_rank_that_waits_for_a_processor_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 102.0])
    probe = VirtualProbe("127.0.0.1", slots=1, clock=lambda: next(now))
    rank = RankStatus(1, 1, 0, "host-a.0.1", os.getpid(), 0.0, "RUNNING")
    cpu_seconds, waited = iter([10.0, 10.02]), iter([5.0, 5.5])
    monkeypatch.setattr(procfs, "cpu_seconds", lambda tree: next(cpu_seconds))
    monkeypatch.setattr(procfs, "waited_seconds", lambda tree: next(waited))
    readings = [probe.devices([rank])[0] for _ in range(2)]
    assert [(one.utilisation_percent, one.processor_percent) for one in readings] == [(None, None), (1.0, 26.0)]


def test_the_time_that_threads_wait_for_a_processor_is_read_from_the_kernel() -> None:
    [tree] = procfs.trees([os.getpid()]).values()
    before = procfs.waited_seconds(tree)
    assert 0.0 <= before <= procfs.waited_seconds(tree)


@pytest.mark.parametrize(("virtual_slots", "kind"), [(4, VirtualProbe), (None, GpuProbe)])
def test_configuration_decides_which_devices_are_meant(tmp_path: Any, virtual_slots: int | None, kind: type) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "", virtual_slots, "127.0.0.1", None)
    assert isinstance(make_probe(config), kind)


def test_processors_cores_and_threads_are_counted(tmp_path: Path) -> None:
    for number in range(16):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{number % 2}\n")
        (topology / "core_id").write_text(f"{number // 2 % 4}\n")
    assert processors(tmp_path) == {"nprocs": 2, "ncores": 4, "nthreads": 2}


def test_a_kernel_that_does_not_tell_of_its_processors_is_asked_no_more(tmp_path: Path) -> None:
    assert processors(tmp_path) == {}
    (tmp_path / "cpu0" / "topology").mkdir(parents=True)
    assert processors(tmp_path / "nowhere") == {}

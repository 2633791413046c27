"""Tests of the inventory of GPUs and of the probe, with pynvml over a fake driver."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.executor.devices.fake_driver import FakeDriver

INVENTORY = """
import json
from dataclasses import asdict
from workers.executor.devices.inventory import read_inventory
print(json.dumps(asdict(read_inventory())))
"""
#: A probe that tells its facts and devices for each line of its input. Torch sees what the driver has.
PROBE = """
import json, sys
from pathlib import Path
import msgspec
import workers.executor.probe as probing
from tidepool.device_report import CheckedDevice, DeviceReport
probing._START_SECONDS = 0.0
def test():
    devices = [CheckedDevice(device.model) for device in probing.read_inventory().devices]
    return DeviceReport(torch="2.13.0+cu130", cuda="13.0", devices=devices)
probe = probing.GpuProbe("10.0.0.1", record=Path({folder!r}), test=test)
for line in sys.stdin:
    told = {{"facts": msgspec.to_builtins(probe.facts()), "devices": msgspec.to_builtins(probe.devices([]))}}
    print(json.dumps(told), flush=True)
"""


def inventory(driver: FakeDriver) -> dict[str, Any]:
    done = driver.run("-c", INVENTORY)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Probe:
    def __init__(self, driver: FakeDriver, folder: Path) -> None:
        self._process = driver.start(PROBE.format(folder=str(folder)))

    def look(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def probe_of() -> Iterator[Callable[[FakeDriver, Path], Probe]]:
    with ExitStack() as stack:
        yield lambda driver, folder: stack.enter_context(closing(Probe(driver, folder)))


Start = Callable[[FakeDriver, Path], Probe]


def uuids(told: dict[str, Any]) -> list[str]:
    return [device["uuid"] for device in told["devices"]]


def test_boards_and_versions_are_read(driver: FakeDriver) -> None:
    driver.set(
        count=2,
        driver="550.54.14",
        cuda=12040,
        gpu1_errors=3,
        gpu1_mode=2,
        gpu0_remap_failed=1,
        gpu0_pci="00000000:3B:00.0",
    )
    found = inventory(driver)
    assert (found["error"], found["driver"], found["cuda"]) == ("", "550.54.14", [12, 4])
    assert [device["uuid"] for device in found["devices"]] == ["GPU-0", "GPU-1"]
    first, second = found["boards"]
    assert (first["remap_failed"], first["compute_mode"]) == (True, "default")
    assert (first["address"], second["address"]) == ("0000:3b:00.0", "")
    assert (second["uncorrected_errors"], second["compute_mode"]) == (3, "prohibited")


def test_a_divided_board_is_its_instances(driver: FakeDriver) -> None:
    driver.set(count=2, gpu0_mig=1, gpu0_instances=3)
    found = inventory(driver)
    assert [device["uuid"] for device in found["devices"]] == ["MIG-0-0", "MIG-0-1", "MIG-0-2", "GPU-1"]
    assert [board["is_divided"] for board in found["boards"]] == [True, False]


def test_a_lost_board_is_told_and_the_others_are_there(driver: FakeDriver) -> None:
    driver.set(count=3, gpu1_lost=1)
    found = inventory(driver)
    assert [device["uuid"] for device in found["devices"]] == ["GPU-0", "GPU-2"]
    assert "lost" in found["boards"][1]["error"]


def test_a_driver_that_comes_late_is_found(driver: FakeDriver, tmp_path: Path, probe_of: Start) -> None:
    driver.set(init=9)
    probe = probe_of(driver, tmp_path)
    told = probe.look()
    assert told["facts"]["ngpus"] == 0
    assert "Driver Not Loaded" in told["facts"]["gpu_problem"], "never 0 GPUs without a reason"
    wait_until(lambda: "torch" in probe.look()["facts"]["gpu_software"], lambda: "the test of torch, which sees no GPU")
    driver.set(count=2)
    wait_until(lambda: probe.look()["facts"]["ngpus"] == 2, lambda: "the driver")
    wait_until(lambda: probe.look()["facts"]["gpu_problem"] == "", lambda: "another test of torch")


def test_a_slot_keeps_its_gpu_when_another_drops_out(driver: FakeDriver, tmp_path: Path, probe_of: Start) -> None:
    driver.set(count=3)
    probe = probe_of(driver, tmp_path)
    assert uuids(probe.look()) == ["GPU-0", "GPU-1", "GPU-2"]
    driver.set(count=2, gpu1_uuid="2")  # the driver numbers them anew
    told = probe.look()
    assert uuids(told) == ["GPU-0", "GPU-1", "GPU-2"]
    assert [device["model"] for device in told["devices"]] == ["NVIDIA H200", "unknown GPU", "NVIDIA H200"]
    again = probe_of(driver, tmp_path)
    assert uuids(again.look()) == ["GPU-0", "GPU-1", "GPU-2"], "the next executor of this run of the machine knows"


def test_each_instance_is_a_slot(driver: FakeDriver, tmp_path: Path, probe_of: Start) -> None:
    driver.set(count=1, gpu0_mig=1, gpu0_instances=2)
    probe = probe_of(driver, tmp_path)
    first, second = probe.look()["devices"]
    assert (first["uuid"], second["uuid"]) == ("MIG-0-0", "MIG-0-1")
    assert (first["utilisation_percent"], first["memory_total_bytes"]) == (None, 100 * 2**30)

"""Tests of errors of the hardware, told by a fake driver or by hand."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tidepool.device_report import CheckedDevice, DeviceReport

from tests.waiting import wait_until
from tests.workers.executor.devices.fake_driver import FakeDriver
from tests.workers.executor.devices.test_inventory import Start, probe_of
from workers.executor.devices.health import Health, is_hardware
from workers.executor.devices.inventory import Board, Device, Inventory

__all__ = ["probe_of"]

SOUND = Inventory(boards=(Board(0, "GPU-0", "H200"),), devices=(Device("GPU-0", "H200"),))


def faults(told: dict[str, Any]) -> list[str]:
    return [device["fault"] for device in told["devices"]]


@pytest.mark.parametrize("xid", [48, 64, 79, 92, 94, 95])
def test_errors_of_the_hardware(xid: int) -> None:
    assert is_hardware(xid)


@pytest.mark.parametrize("xid", [13, 31, 43])
def test_errors_of_scripts(xid: int) -> None:
    assert not is_hardware(xid)


def test_an_error_of_the_hardware_is_told_until_a_test_and_a_scripts_is_not(
    driver: FakeDriver, tmp_path: Path, probe_of: Start
) -> None:
    driver.set(count=2)
    probe = probe_of(driver, tmp_path)
    assert faults(probe.look()) == ["", ""]
    driver.set(count=2, xid=31, xid_gpu=0, xid_number=1)
    assert faults(probe.look()) == ["", ""]
    driver.set(count=2, xid=79, xid_gpu=1, xid_number=2)
    first, second = faults(probe.look())
    assert first == ""
    assert second.startswith("Xid 79 at ")
    assert faults(probe.look()) == [first, second]


@pytest.mark.parametrize(
    ("at_first", "then"),
    [({"count": 1}, {}), ({"count": 2, "gpu1_lost": 1}, {}), ({"count": 2}, {"count": 2, "gpu1_lost": 1})],
    ids=["not there at first", "lost at first", "lost later"],
)
def test_errors_of_a_gpu_that_comes_or_comes_back_are_told(
    driver: FakeDriver, tmp_path: Path, probe_of: Start, at_first: dict[str, int], then: dict[str, int]
) -> None:
    driver.set(**at_first)
    probe = probe_of(driver, tmp_path)
    probe.look()
    driver.set(**(then or at_first))
    probe.look()
    driver.set(count=2)
    assert faults(probe.look()) == ["", ""]
    driver.set(count=2, xid=79, xid_gpu=1, xid_number=1)
    assert faults(probe.look())[1].startswith("Xid 79 at ")


def test_a_gpu_that_vanishes_and_one_that_cannot_replace_memory_are_faulty(
    driver: FakeDriver, tmp_path: Path, probe_of: Start
) -> None:
    driver.set(count=2)
    probe = probe_of(driver, tmp_path)
    probe.look()
    driver.set(count=2, gpu0_lost=1, gpu1_remap_failed=1)
    lost, broken = faults(probe.look())
    assert "no longer finds it" in lost
    assert "cannot be replaced" in broken
    driver.set(count=2)
    assert faults(probe.look()) == ["", ""]


def test_a_passed_test_forgets_an_error_and_runs_only_while_nothing_is_there() -> None:
    done = threading.Event()
    reports = [DeviceReport(error="it hangs"), DeviceReport(devices=[CheckedDevice("H200")])]
    health = Health(lambda uuid: reports.pop(0) if done.is_set() else DeviceReport(error="too early"))
    health._note("GPU-0", "Xid 79")
    health.look(SOUND, ["GPU-0"])
    health.retry({"GPU-0"})
    assert health.fault("GPU-0") == "Xid 79"
    done.set()
    for passed in (False, True):
        health._due["GPU-0"].last = float("-inf")
        health.retry(set())
        wait_until(lambda: not health._tested, lambda: "the test")
        assert (health.fault("GPU-0") == "") is passed
    assert json.dumps(reports) == "[]"

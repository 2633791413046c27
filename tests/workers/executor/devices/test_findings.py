"""Tests of the sentences about a host, and of `manage.py doctor`."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from tidepool.device_report import CheckedDevice, DeviceReport

from tests.workers.executor.devices.fake_driver import FakeDriver
from workers.executor.devices.findings import HostState, findings, gpu_problem, software_words
from workers.executor.devices.inventory import Board, Device, Inventory
from workers.executor.devices.kernel_log import XidError, read_xids, xids_in
from workers.executor.devices.self_test import self_test
from workers.executor.devices.slot_devices import assigned

GIB = 2**30
BOARD = Board(0, "GPU-0", "NVIDIA H200", compute_mode="default")
SOUND = Inventory(driver="580.65", cuda=(13, 0), boards=(BOARD,), devices=(Device("GPU-0", "NVIDIA H200"),))
CHECKED = CheckedDevice("NVIDIA H200", "GPU-0", 100 * GIB, 99 * GIB)
TORCH = DeviceReport(torch="2.13.0+cu130", cuda="13.0", nccl="2.29.7", devices=[CHECKED])
HOST = HostState(SOUND, TORCH, shm_bytes=8 * GIB, free_bytes={"/srv": 100 * GIB})


def said(host: HostState, level: str) -> str:
    return " ".join(f"{each.sentence} {each.remedy}" for each in findings(host) if each.level == level)


def test_a_sound_host_has_nothing_to_mend() -> None:
    assert (said(HOST, "missing"), said(HOST, "warning"), gpu_problem(SOUND, TORCH)) == ("", "", "")
    assert software_words(SOUND, TORCH) == "driver 580.65 (CUDA 13.0), torch 2.13.0+cu130, NCCL 2.29.7"


@pytest.mark.parametrize(
    ("inventory", "torch", "words"),
    [
        (Inventory(error="Driver Not Loaded"), TORCH, "The NVIDIA driver does not answer: Driver Not Loaded."),
        (replace(SOUND, boards=(), devices=()), TORCH, "The driver finds no GPU."),
        (replace(SOUND, cuda=(12, 4)), TORCH, "runs CUDA up to 12.4, and torch 2.13.0+cu130 needs CUDA 13"),
        (SOUND, DeviceReport(torch="2.13.0+cpu"), "is a build for CPUs"),
        (SOUND, DeviceReport(error="it has not ended"), "torch cannot be tested: it has not ended."),
        (SOUND, DeviceReport(torch="2", cuda="13.0"), "The driver has 1 GPUs and torch sees 0 of them."),
        (
            SOUND,
            DeviceReport(torch="2", cuda="13.0", devices=[CheckedDevice("NVIDIA H200", error="ECC error")]),
            "torch cannot compute on NVIDIA H200: ECC error.",
        ),
        (replace(SOUND, boards=(replace(BOARD, error="GPU is lost"),), devices=()), TORCH, "GPU 0 does not answer"),
        (
            replace(SOUND, boards=(replace(BOARD, is_divided=True),), devices=()),
            TORCH,
            "is in MIG mode and has no instance",
        ),
        (
            replace(SOUND, boards=(replace(BOARD, is_divided=True),), devices=(Device("MIG-0-0", "H200 MIG 1g.18gb"),)),
            DeviceReport(torch="2", cuda="13.0"),
            "torch sees none of them. Check that the files in /dev/nvidia-caps can be read",
        ),
        (replace(SOUND, boards=(replace(BOARD, compute_mode="prohibited"),)), TORCH, "compute mode prohibited"),
        (replace(SOUND, boards=(replace(BOARD, remap_failed=True),)), TORCH, "could not replace broken rows"),
    ],
)
def test_what_keeps_trainings_from_gpus_is_said_with_a_remedy(
    inventory: Inventory, torch: DeviceReport, words: str
) -> None:
    assert words in said(replace(HOST, inventory=inventory, torch=torch), "missing")
    assert words in gpu_problem(inventory, torch)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (replace(HOST, shm_bytes=64 * 2**20), "is 64 MiB"),
        (replace(HOST, infiniband=("mlx5_0",)), "NCCL uses sockets, without a word"),
        (replace(HOST, infiniband=("mlx5_0",), verbs=("uverbs0",), memlock_bytes=2**16), "may lock 0 MiB of memory"),
        (replace(HOST, free_bytes={"/srv": GIB}), "/srv has 1.0 GiB free"),
        (replace(HOST, inventory=replace(SOUND, boards=(replace(BOARD, uncorrected_errors=2),))), "2 memory errors"),
        (replace(HOST, inventory=replace(SOUND, boards=(replace(BOARD, compute_mode="exclusive"),))), "exclusive"),
        (replace(HOST, torch=DeviceReport(torch="2", cuda="13.0", devices=[CHECKED], apart=[(0, 1)])), "0 and 1"),
        (
            replace(
                HOST,
                inventory=replace(SOUND, boards=(BOARD, replace(BOARD, number=1, model="NVIDIA T4"))),
                torch=DeviceReport(torch="2", cuda="13.0", devices=[CHECKED, CHECKED]),
            ),
            "The GPUs are of 2 models (NVIDIA H200, NVIDIA T4)",
        ),
        (
            replace(
                HOST,
                torch=DeviceReport(torch="2", cuda="13.0", devices=[CheckedDevice("H200", "", 100 * GIB, 5 * GIB)]),
            ),
            "1 of 1 GPUs have memory in use",
        ),
    ],
)
def test_drawbacks_are_warnings(host: HostState, words: str) -> None:
    assert words in said(host, "warning")
    assert said(host, "missing") == ""


def test_errors_in_the_kernels_log_are_told_by_gpu() -> None:
    board = replace(BOARD, address="0000:3b:00.0")
    log = (*[XidError("0000:3b:00", number, 5.0) for number in (79, 31, 79)], XidError("0000:af:00", 13, 6.0))
    host = replace(HOST, inventory=replace(SOUND, boards=(board,)), xids=log)
    assert "GPU 0 (NVIDIA H200) has had errors of its hardware" in said(host, "warning")
    assert "2 of Xid 79" in said(host, "warning")
    assert "A GPU at 0000:af:00 has had Xid 13 since the machine was started, which scripts cause." in said(host, "ok")
    assert "may not be read" in said(replace(host, xids=None), "ok")


def test_xids_are_read_from_the_kernels_log(tmp_path: Path) -> None:
    log = (
        "6,1185,18764561,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n",
        "3,1186,95000000,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n",
        "4,1187,95000001,-;NVRM: Xid (PCI:0000:3B:00): 43, pid=4242, Ch 00000008\n",
    )
    assert xids_in(log) == (XidError("0000:3b:00", 79, 95.0), XidError("0000:3b:00", 43, 95.000001))
    assert read_xids(tmp_path / "kmsg") is None
    (tmp_path / "kmsg").write_text(log[1])
    assert read_xids(tmp_path / "kmsg") == (XidError("0000:3b:00", 79, 95.0),)


def test_an_instance_that_torch_sees_is_sound() -> None:
    divided = replace(
        SOUND, boards=(replace(BOARD, is_divided=True),), devices=(Device("MIG-0-0", "1g"), Device("MIG-0-1", "1g"))
    )
    assert gpu_problem(divided, TORCH) == ""


def test_virtual_slots_need_no_driver() -> None:
    host = replace(HOST, inventory=Inventory(error="no library"), virtual_slots=4)
    assert said(host, "missing") == ""
    assert "4 virtual GPUs" in said(host, "ok")


@pytest.mark.parametrize(
    ("known", "present", "places"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a", "b", "c"], ["a", "c"], ["a", "b", "c"]),
        (["a", "b", "c"], ["a", "x", "c"], ["a", "x", "c"]),
        (["a"], ["b", "a"], ["a", "b"]),
        (["a", "b"], [], ["a", "b"]),
    ],
    ids=["at first", "one is gone", "one was replaced", "one was added", "the driver is gone"],
)
def test_gpus_keep_their_numbers(known: list[str], present: list[str], places: list[str]) -> None:
    assert [*assigned(known, present)] == places


def test_a_self_test_that_hangs_or_fails_is_a_sentence() -> None:
    hangs = self_test({}, [sys.executable, "-c", "import time; time.sleep(600)"], seconds=0.5)
    assert "has not ended" in hangs.error
    fails = self_test({}, [sys.executable, "-c", "raise SystemExit('no kernel image')"])
    assert "no kernel image" in fails.error
    assert "could not be started" in self_test({}, ["/nowhere/python"]).error


def test_doctor_says_what_is_missing_and_ends_with_1(driver: FakeDriver) -> None:
    driver.set(count=2, driver="470.1", cuda=11040)
    done = driver.run("manage.py", "doctor", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert "The NVIDIA driver is 470.1, for CUDA up to 11.4." in [each["sentence"] for each in found]
    missing = [each for each in found if each["level"] == "missing"]
    assert missing
    assert all(each["remedy"] for each in missing)


def test_doctor_on_a_host_of_virtual_gpus_ends_with_0(driver: FakeDriver) -> None:
    done = driver.run("manage.py", "doctor", TIDEPOOL_VIRTUAL_SLOTS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is missing." in done.stdout
    refused = driver.run("manage.py", "doctor", TIDEPOOL_VIRTUAL_SLOTS="two")
    assert (refused.returncode, "must be a whole number" in refused.stderr) == (1, True)


def test_doctor_tries_no_gpus_while_something_is_missing(driver: FakeDriver) -> None:
    driver.set(count=2, driver="470.1", cuda=11040)
    done = driver.run("manage.py", "doctor", "--gpu")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1].endswith("missing.")


@pytest.mark.parametrize("code", [0, 3])
def test_doctor_tries_the_gpus_and_ends_as_that_ends(
    code: int,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/__init__.py").touch()
    (tmp_path / "benchmarks/gpu_acceptance.py").write_text(f"import sys; print(sys.argv[1:]); sys.exit({code})")
    settings.BASE_DIR = tmp_path
    monkeypatch.setenv("TIDEPOOL_VIRTUAL_SLOTS", "2")
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", gpu=True, minutes=4.0)
    assert ended.value.code == code
    assert capfd.readouterr().out.splitlines()[-1] == "['--minutes=4', '--folder=test-results/gpu', '--cpu']"


def test_doctor_without_a_checkout_names_what_tries_gpus(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BASE_DIR = tmp_path
    monkeypatch.setenv("TIDEPOOL_VIRTUAL_SLOTS", "2")
    with pytest.raises(CommandError, match="make test-gpu"):
        call_command("doctor", gpu=True)

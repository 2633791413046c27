"""Filters of devices: the program of version 2 step by step and by the kernel, and the lists of version 1."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tidepool.confine.device_program import attach, program_for
from tidepool.confine.devices import Device, device_of, shared

from workers.executor.limits import Amounts, ControlGroups, NoLimitsError, control_groups

NULL, ZERO, GPU, OTHER = Device("c", 1, 3), Device("c", 1, 5), Device("c", 195, 0), Device("c", 195, 1)
READ, WRITE, MAKE = 2, 4, 1
ALLOWED = frozenset({NULL, GPU, Device("c", 136, None), Device("b", 7, 2)})
#: Waits until it is in its group, then tells how opening each file ends.
OPENS = """
import errno, os, sys
sys.stdin.read(1)
for place in sys.argv[1:]:
    try:
        os.close(os.open(place, os.O_RDONLY))
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
#: The second hierarchy of a machine with both versions, or the only one.
UNIFIED = next(
    (
        place
        for place in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"))
        if (place / "cgroup.controllers").exists()
    ),
    None,
)


def decides(program: bytes, device: Device, access: int) -> bool:
    """Run the program as the kernel would; return whether it allows the access."""
    kind = {"b": 1, "c": 2}[device.kind]
    record = struct.pack("=III", access << 16 | kind, device.major, device.minor or 0)
    registers, place = [0] * 11, 0
    steps = [*struct.iter_unpack("=BBhi", program)]
    while True:
        code, pair, offset, value = steps[place]
        target, source = pair & 15, pair >> 4
        place += 1
        match code:
            case 0x61:
                assert source == 1, "only the record is readable"
                [registers[target]] = struct.unpack_from("=I", record, offset)
            case 0xB7:
                registers[target] = value
            case 0xBF:
                registers[target] = registers[source]
            case 0x57:
                registers[target] &= value
            case 0x77:
                registers[target] >>= value
            case 0x55:
                place += offset if registers[target] != value else 0
            case 0x45:
                place += offset if registers[target] & value else 0
            case 0x95:
                return bool(registers[0])
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize("device", [NULL, GPU, Device("c", 136, 0), Device("c", 136, 77), Device("b", 7, 2)])
def test_the_program_lets_the_given_devices_be_read_and_written(device: Device) -> None:
    program = program_for(ALLOWED)
    assert all(decides(program, device, access) for access in (READ, WRITE, READ | WRITE))
    assert not any(decides(program, device, access) for access in (MAKE, MAKE | READ))


@pytest.mark.parametrize(
    "device", [ZERO, OTHER, Device("c", 137, 0), Device("b", 7, 3), Device("b", 1, 3), Device("c", 7, 2)]
)
def test_the_program_refuses_all_others(device: Device) -> None:
    program = program_for(ALLOWED)
    assert not any(decides(program, device, access) for access in (READ, WRITE, MAKE, READ | WRITE | MAKE))


def test_a_program_without_devices_refuses_everything() -> None:
    assert not decides(program_for([]), NULL, READ)


@pytest.fixture
def unified() -> Iterator[Path]:
    if UNIFIED is None or os.getuid() != 0:
        pytest.skip("needs control groups of version 2 and root")
    place = UNIFIED / f"tidepool-test-{os.getpid()}"
    place.mkdir()
    yield place
    place.rmdir()


def ends_in(place: Path, *files: str) -> list[str]:
    """Open files from within a control group; return how each attempt ends."""
    words = [sys.executable, "-c", OPENS, *files]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        (place / "cgroup.procs").write_text(str(process.pid))
        return process.communicate("x")[0].split()


def test_the_kernel_takes_the_program_and_asks_the_newest(unified: Path) -> None:
    try:
        attach(str(unified), [NULL])
    except PermissionError:
        pytest.skip("this process may attach no program")
    assert ends_in(unified, "/dev/null", "/dev/zero") == ["done", "EPERM"]
    attach(str(unified), [ZERO])
    assert ends_in(unified, "/dev/null", "/dev/zero") == ["EPERM", "done"]


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    try:
        made = control_groups(Amounts(processes=64), f"test-{os.getpid()}", filters_devices=True)
    except NoLimitsError as error:
        pytest.skip(str(error))
    yield made
    made.forget("7.1")


def test_a_jobs_group_opens_its_devices_only_and_live_others(groups: ControlGroups) -> None:
    words = [sys.executable, "-c", OPENS, "/dev/null", "/dev/zero", "/dev/full"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        groups.hold("7.1", process.pid, 1, devices=frozenset({NULL, Device("c", 1, 7)}))
        groups.allow("7.1", frozenset({NULL, ZERO}))  # the slots have changed
        assert process.communicate("x")[0].split() == ["done", "done", "EPERM"]


def test_a_restarted_executor_knows_what_is_allowed(groups: ControlGroups) -> None:
    words = [sys.executable, "-c", OPENS, "/dev/null", "/dev/zero"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        groups.hold("7.1", process.pid, 1, devices=frozenset({NULL}))
        again = control_groups(Amounts(processes=64), f"test-{os.getpid()}", filters_devices=True)
        again.allow("7.1", frozenset({ZERO}))
        assert process.communicate("x")[0].split() == ["EPERM", "done"]


def test_every_program_has_its_devices() -> None:
    needed = {device_of(f"/dev/{name}") for name in ("null", "zero", "random", "urandom")}
    assert needed <= shared()
    with suppress(FileNotFoundError):
        assert device_of("/dev/kmsg") not in shared()

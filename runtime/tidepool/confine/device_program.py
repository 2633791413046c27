"""The filter of devices of control groups of version 2: a program of BPF that the kernel asks at each opening.

Version 1 has lists instead. The program gets a record of three numbers: kind (lower half) and access (upper half) of
the device, its major and its minor number. It allows reading and writing of the given devices, and the making of none.
"""

import os
import struct
from collections.abc import Iterable
from typing import Final

from tidepool.confine import kernel
from tidepool.confine.devices import Device

__all__ = ["attach", "program_for"]

_KINDS: Final = {"b": 1, "c": 2}
#: Codes of instructions: load 32 bits, set a register, compare with a number, combine with a number, end.
_LOAD, _SET, _COPY, _AND, _SHIFT, _EXIT = 0x61, 0xB7, 0xBF, 0x57, 0x77, 0x95
_UNLESS_EQUAL, _IF_ANY_BIT = 0x55, 0x45
_LOWER_HALF: Final = 0xFFFF
_MAKING: Final = 1
#: Registers: result, record of the request, and those that the program fills.
_RESULT, _RECORD, _KIND, _MAJOR, _MINOR, _ACCESS = 0, 1, 2, 3, 4, 5


def program_for(allowed: Iterable[Device]) -> bytes:
    """Return the program that lets processes open these devices only."""
    checks = [_check(device) for device in sorted(allowed, key=lambda each: (*each[:2], each.minor or -1))]
    end = [_step(_SET, _RESULT, value=0), _step(_EXIT)]
    steps = [
        _step(_LOAD, _KIND, _RECORD, offset=0),
        _step(_LOAD, _MAJOR, _RECORD, offset=4),
        _step(_LOAD, _MINOR, _RECORD, offset=8),
        _step(_COPY, _ACCESS, _KIND),
        _step(_SHIFT, _ACCESS, value=16),
        _step(_AND, _KIND, value=_LOWER_HALF),
        _step(_IF_ANY_BIT, _ACCESS, offset=sum(map(len, checks)), value=_MAKING),
        *(step for check in checks for step in check),
        *end,
    ]
    return b"".join(steps)


def _check(device: Device) -> list[bytes]:
    """Allow the request if it is for the device; else go on behind this part."""
    numbers = [(_KIND, _KINDS[device.kind]), (_MAJOR, device.major)]
    numbers += [] if device.minor is None else [(_MINOR, device.minor)]
    allow = [_step(_SET, _RESULT, value=1), _step(_EXIT)]
    left = len(numbers) - 1 + len(allow)
    tests = [
        _step(_UNLESS_EQUAL, register, offset=left - place, value=number)
        for place, (register, number) in enumerate(numbers)
    ]
    return [*tests, *allow]


def _step(code: int, target: int = 0, source: int = 0, *, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | target, offset, value)


def attach(group: str, allowed: Iterable[Device]) -> None:
    """Have the processes of a control group open these devices only, instead of those of before. Raises OSError."""
    loaded = kernel.load_device_program(program_for(allowed))
    folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kernel.attach_device_program(folder, loaded)
    finally:
        os.close(folder)
        os.close(loaded)

"""A filter of the kernel's calls (seccomp), for what Landlock does not see.

Connections by MPTCP, by TCP's fast open and by io_uring go past Landlock's rules for ports. Keys that the kernel keeps
are shared by all processes of a user. Each of these may also limit the others (prlimit): a limit of one second of
processor time ends a process of Tidepool as a signal would.
"""

import struct
from typing import Final, NamedTuple

from tidepool.confine import kernel

__all__ = ["apply", "filter_for"]


class _Machine(NamedTuple):
    """Numbers of an architecture: its own, and those of its calls."""

    architecture: int
    socket: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    add_key: int
    request_key: int
    keyctl: int
    prlimit: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 41, 44, 46, 307, 248, 249, 250, 302),
    "aarch64": _Machine(0xC00000B7, 198, 206, 211, 269, 217, 218, 219, 261),
}
_IO_URING_SETUP: Final = 425
#: Calls above it are those of x86-64's other set of calls.
_OTHER_SET: Final = 0x40000000
_MPTCP: Final = 262
_FAST_OPEN: Final = 0x20000000
_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EOPNOTSUPP = 1, 38, 93, 95
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Places in the kernel's record of a call: number, architecture, and the lower half of an argument.
_NUMBER, _ARCHITECTURE = 0, 4


def _argument(index: int) -> int:
    return 16 + 8 * index


def _upper_half(index: int) -> int:
    return _argument(index) + 4


def filter_for(machine: str, *, has_closed_ports: bool) -> bytes | None:
    """Return the program that refuses calls; None: the numbers of this architecture's calls are not known here."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    program = [_step(_LOAD, _ARCHITECTURE), *_unless(_EQUAL, known.architecture, _ENOSYS), _step(_LOAD, _NUMBER)]
    program += _if(_AT_LEAST, _OTHER_SET, _ENOSYS)
    for number in (known.add_key, known.request_key, known.keyctl):
        program += _if(_EQUAL, number, _EPERM)
    program += _limiting_others(known.prlimit)
    if has_closed_ports:
        program += _if(_EQUAL, _IO_URING_SETUP, _ENOSYS)
        program += _if_argument(known.socket, 2, _EQUAL, _MPTCP, _EPROTONOSUPPORT)
        for number, flags in ((known.sendto, 3), (known.sendmsg, 2), (known.sendmmsg, 3)):
            program += _if_argument(number, flags, _ANY_BIT, _FAST_OPEN, _EOPNOTSUPP)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def apply(machine: str, *, has_closed_ports: bool) -> None:
    program = filter_for(machine, has_closed_ports=has_closed_ports)
    if program is not None:
        kernel.set_filter(program)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _REFUSE | error)


def _if(test: int, value: int, error: int) -> list[bytes]:
    """Refuse with an error if the loaded value passes the test."""
    return [_step(test, value, 0, 1), _refuse(error)]


def _unless(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _refuse(error)]


def _if_argument(number: int, index: int, test: int, value: int, error: int) -> list[bytes]:
    """Refuse this call if one of its arguments passes the test. Leaves the call's number loaded."""
    passed = [_step(_LOAD, _argument(index)), *_if(test, value, error), _step(_LOAD, _NUMBER)]
    return [_step(_EQUAL, number, 0, len(passed)), *passed]


def _limiting_others(number: int) -> list[bytes]:
    """Refuse this call if it names a process, 0 being its own, and a new limit. Leaves the call's number loaded."""
    process, new_limit = 0, 2
    passed = [
        _step(_LOAD, _argument(process)),
        _step(_EQUAL, 0, 5, 0),
        _step(_LOAD, _argument(new_limit)),
        _step(_EQUAL, 0, 0, 2),
        _step(_LOAD, _upper_half(new_limit)),
        _step(_EQUAL, 0, 1, 0),
        _refuse(_EPERM),
        _step(_LOAD, _NUMBER),
    ]
    return [_step(_EQUAL, number, 0, len(passed)), *passed]

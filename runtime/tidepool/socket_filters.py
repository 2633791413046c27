"""Filters of the kernel's for listening sockets that libraries open and accept from by themselves.

Connections that were accepted before go on. Some kernels let none but privileged processes filter: there, the sockets
stay open.
"""

import ctypes
import socket
from collections.abc import Sequence

__all__ = ["refuse_callers", "refuse_other_machines"]

_SO_ATTACH_FILTER = 26
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
#: Place where a filter finds the number of the interface that a packet has come by.
_INTERFACE = 0xFFFFF008
_WHOLE_PACKET = 0xFFFFFFFF

#: Code, instructions to skip if it is true or false, and the operand.
_Instruction = tuple[int, int, int, int]


class _Code(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("codes", ctypes.POINTER(_Code)))


def refuse_callers(listener: socket.socket) -> bool:
    """Have the kernel drop whatever comes for the socket, and return whether it does so for this process."""
    return _attach(listener, [(_RETURN, 0, 0, 0)])


def refuse_other_machines(listener: socket.socket) -> bool:
    """Have the kernel drop what comes for the socket from other machines, and return whether it does so."""
    local = socket.if_nametoindex("lo")
    accept, drop = (_RETURN, 0, 0, _WHOLE_PACKET), (_RETURN, 0, 0, 0)
    return _attach(listener, [(_LOAD, 0, 0, _INTERFACE), (_IF_EQUAL, 0, 1, local), accept, drop])


def _attach(listener: socket.socket, program: Sequence[_Instruction]) -> bool:
    codes = (_Code * len(program))(*(_Code(*instruction) for instruction in program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(_Program(len(codes), codes)))
    except PermissionError:
        return False
    return True

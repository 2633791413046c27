"""Rules of Landlock: which files, TCP ports, signals and abstract sockets are on this side of the wall."""

import os
import stat
from functools import lru_cache

from tidepool.confine import kernel
from tidepool.confine.levels import PORTS_ABI, SCOPES_ABI

__all__ = ["DEVICE", "LIST", "PROCESSES", "READ", "WRITE", "Rules", "port_rules"]

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
#: Bits of accesses that each version of Landlock knows.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_CONNECT = 1 << 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
_LAST_PORT = 65535

READ = _EXECUTE | _READ_FILE | _READ_FOLDER
#: Everything but making devices.
WRITE = ((1 << 15) - 1) & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE)
DEVICE = _READ_FILE | _WRITE_FILE | _READ_FOLDER | _TRUNCATE | _DEVICE_CONTROL
#: Files of /proc: CUDA names its threads there, and fails if it cannot.
PROCESSES = READ | _WRITE_FILE | _TRUNCATE
LIST = _READ_FOLDER


class Rules:
    """A ruleset under construction. What no rule allows is refused."""

    def __init__(self, abi: int) -> None:
        self._files = _KNOWN[min(abi, max(_KNOWN))]
        scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= SCOPES_ABI else 0
        self._ruleset = kernel.create_ruleset(self._files, 0, scopes, _size(abi))

    def allow(self, place: str, access: int) -> None:
        """Allow accesses at and below a place; a place that does not exist, or cannot be reached, is left out."""
        try:
            descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            allowed = access & self._files & (-1 if is_folder else _OF_FILES)
            if allowed:
                kernel.add_rule(self._ruleset, descriptor, allowed)
        finally:
            os.close(descriptor)

    def apply(self) -> None:
        """Have the rules apply to this process and all that it starts, for good."""
        kernel.restrict_self(self._ruleset)
        os.close(self._ruleset)


@lru_cache(maxsize=4)
def port_rules(abi: int, closed: tuple[int, ...]) -> int | None:
    """Return the descriptor of a ruleset with all TCP ports but the closed ones; None: this kernel has no such rules.

    It has a rule for each port and takes a tenth of a second to make, so all children of a process share it.
    """
    if not closed or abi < PORTS_ABI:
        return None
    ruleset = kernel.create_ruleset(0, _CONNECT, 0, _size(abi))
    for port in range(_LAST_PORT + 1):
        if port not in closed:
            kernel.add_port_rule(ruleset, port, _CONNECT)
    return ruleset


def _size(abi: int) -> int:
    return 24 if abi >= SCOPES_ABI else 16 if abi >= PORTS_ABI else 8

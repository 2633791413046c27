"""Process spaces: a fork that is the first process of one of its own, and numbers of its children on the host."""

import os
from functools import partial

from tidepool.confine import kernel

__all__ = ["enter_own_view", "fork", "host_pid"]

#: Folder of this process's descriptors in the /proc of the host; None: its processes have the host's numbers.
_outside: int | None = None
_NO_PROGRAMS_DEVICES_OR_SETUID = 0b1110


def fork(*, is_apart: bool) -> int:
    """Fork. is_apart: the child is the first process of a space of its own, and all that it leaves ends with it."""
    if not is_apart:
        return os.fork()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.unshare(kernel.NEW_PROCESSES)
        pid = os.fork()
        if pid:
            kernel.join(own, kernel.NEW_PROCESSES)
        return pid
    finally:
        os.close(own)


def enter_own_view() -> int:
    """Have /proc show the processes of this space only; return a descriptor for `host_pid`. Needs a private view."""
    global _outside
    # A descriptor's record says the number of the process that it stands for, as the host counts.
    _outside = os.open("/proc/self/fdinfo", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.mount("proc", "/proc", "proc", _NO_PROGRAMS_DEVICES_OR_SETUID)
    return _outside


def host_pid(pid: int) -> int:
    """Return the number that a process of this space has on the host. Raises ProcessLookupError."""
    if _outside is None:
        return pid
    handle = os.pidfd_open(pid)
    try:
        with open(str(handle), opener=partial(os.open, dir_fd=_outside)) as record:
            words = dict(line.split(":", 1) for line in record.read().splitlines())
        return int(words["Pid"].split()[0])
    finally:
        os.close(handle)

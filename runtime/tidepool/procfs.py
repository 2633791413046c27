"""Processes as the kernel shows them: identity, descent, markers and CPU time. Linux only, standard library only.

A process is named by (pid, started_at): pids are used again, start times tell the two apart.

A *mark* is one environment variable by which leftovers of a dead shim are found. `/proc/<pid>/environ` shows the
environment at exec, so a forked process would show its ancestor's: `set_mark` therefore also overwrites the value in
the memory that the kernel reads. The ancestor reserves that memory with `reserved_mark()` when it is exec'd.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MARK_VARIABLE",
    "Process",
    "alive",
    "become_subreaper",
    "boot_time",
    "close_descriptors",
    "cpu_seconds",
    "descendants",
    "die_with_parent",
    "find",
    "has_children",
    "kill",
    "marked",
    "memory_bytes",
    "reap_child",
    "reserved_mark",
    "session_members",
    "set_mark",
    "started_at",
    "trees",
]

MARK_VARIABLE = "TIDEPOOL_MARK"

_RESERVED_MARK_BYTES = 240
#: Start times are computed from the boot time, which the kernel rounds to a second and may correct.
_START_TOLERANCE_SECONDS = 2.0
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str
    started_at: float
    cpu_seconds: float
    memory_bytes: int


def find(pid: int) -> Process | None:
    """The process as it is now, or None. A zombie is found, with the state "Z"."""
    return _read(pid, boot_time())


def started_at(pid: int) -> float:
    """Unix seconds of the start; the same figure as `psutil.Process(pid).create_time()`."""
    process = find(pid)
    if process is None:
        raise ProcessLookupError(f"no process {pid}")
    return process.started_at


def alive(pid: int, started_at: float) -> bool:
    """Whether that very process runs. A zombie does not."""
    process = find(pid)
    return process is not None and process.state not in "ZX" and _same_start(process.started_at, started_at)


def descendants(pid: int) -> list[Process]:
    """Children, their children and so on, zombies left out."""
    return [process for process in trees([pid])[pid] if process.pid != pid]


def trees(roots: list[int]) -> dict[int, list[Process]]:
    """Each root with its descendants, parents first, zombies left out; empty for a root that is gone."""
    found = {process.pid: process for process in _all_processes()}
    children: dict[int, list[int]] = {}
    for process in found.values():
        children.setdefault(process.parent, []).append(process.pid)
    result = {}
    for root in roots:
        pids = [root]
        for pid in pids:  # grows while it is walked
            pids += children.get(pid, [])
        result[root] = [found[pid] for pid in pids if pid in found and found[pid].state not in "ZX"]
    return result


def session_members(leader: int) -> list[Process]:
    """Processes in the session of `leader`, and `leader` itself though it may not have made its session yet."""
    members = [process for process in _all_processes() if leader in (process.pid, process.session)]
    return [process for process in members if process.state not in "ZX"]


def marked(prefix: str) -> list[Process]:
    """Processes whose mark is `prefix` or continues it after a dot; this one left out."""
    found = []
    for process in _all_processes():
        mark = _mark_of(process.pid)
        if process.pid != os.getpid() and mark is not None and f"{mark}.".startswith(f"{prefix}."):
            found.append(process)
    return [process for process in found if process.state not in "ZX"]


def kill(process: Process, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal that very process; it is no error if it has gone."""
    if not alive(process.pid, process.started_at):
        return
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return


def cpu_seconds(processes: Iterable[Process]) -> float:
    return sum(process.cpu_seconds for process in processes)


def memory_bytes(processes: Iterable[Process]) -> int:
    """Resident memory; pages that processes share are counted for each."""
    return sum(process.memory_bytes for process in processes)


def reserved_mark() -> str:
    """A value of the mark variable long enough for any mark, for a process that will fork marked ones."""
    return " " * _RESERVED_MARK_BYTES


def set_mark(mark: str) -> None:
    """Mark this process and, from now on, what it forks or starts."""
    os.environ[MARK_VARIABLE] = mark
    value = mark.encode()
    start, size = _reserved_memory()
    if len(value) > size:
        raise ValueError(f"mark of {len(value)} bytes, room for {size}: start this process with reserved_mark()")
    ctypes.memmove(start, value.ljust(size), size)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the thread that forked this process ends; exits at once if `parent` is already gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def boot_time() -> float:
    """Unix seconds at which the machine was started."""
    with open("/proc/stat") as lines:
        for line in lines:
            if line.startswith("btime"):
                return float(line.split()[1])
    raise RuntimeError("/proc/stat tells no boot time")


def become_subreaper() -> None:
    """Descendants whose parents end become children of this process, whatever session they are in."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_descriptors(keep: set[int]) -> None:
    """Close what this process inherited. Its Python objects must not be used any more."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(int(name))


def reap_child() -> tuple[int, int] | None:
    """Pid and wait status of a child that has ended, if one has."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def has_children() -> bool:
    """Whether this process has any, ended ones that were not reaped included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _read(pid: int, booted_at: float) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold anything, also parentheses: count from the last one.
    fields = text[text.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        started_at=int(fields[19]) / _CLOCK_TICKS + booted_at,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _CLOCK_TICKS,
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def _same_start(one: float, other: float) -> bool:
    return abs(one - other) < _START_TOLERANCE_SECONDS


def _all_processes() -> Iterator[Process]:
    booted_at = boot_time()
    for name in os.listdir("/proc"):
        process = _read(int(name), booted_at) if name.isdigit() else None
        if process is not None:
            yield process


def _mark_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return None
    prefix = MARK_VARIABLE.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace").rstrip() or None
    return None


def _reserved_memory() -> tuple[int, int]:
    """Address and size of the mark's value in the environment that this process was exec'd with."""
    text = Path("/proc/self/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    first, last = int(fields[47]), int(fields[48])
    environment = ctypes.string_at(first, last - first)
    prefix = b"\0" + MARK_VARIABLE.encode() + b"="
    before = (b"\0" + environment).find(prefix)
    if before < 0:
        return 0, 0
    offset = before + len(prefix) - 1
    return first + offset, environment.index(b"\0", offset) - offset


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

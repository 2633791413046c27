"""Processes: identity, descent, marks, titles and the ends of children. Linux only.

psutil reads what the kernel shows. What it does not do is here: a parent's death signal, a child subreaper, reaping any
child, and marks.

A process is named by (pid, started_at): pids are reused, start times tell two processes with one pid apart.

A *mark* is one environment variable by which leftovers of a dead shim are found. `/proc/<pid>/environ` shows the
environment at exec, so a forked process would show its ancestor's: `set_mark` therefore also overwrites the value in
the memory that the kernel reads. The ancestor reserves that memory with `reserved_mark()` when it is exec'd.
"""

import contextlib
import ctypes
import errno
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import psutil
import setproctitle

__all__ = [
    "MARK_VARIABLE",
    "alive",
    "be_traced_by",
    "become_subreaper",
    "catches",
    "close_descriptors",
    "cpu_seconds",
    "descendants",
    "die_with_parent",
    "end_at_once",
    "has_children",
    "kill",
    "marked",
    "may_be_of",
    "members_of_sessions",
    "memory_bytes",
    "numbers_begun_at",
    "reap_child",
    "redirect",
    "reserved_mark",
    "runs",
    "session_members",
    "set_mark",
    "set_role",
    "set_title",
    "started_at",
    "trees",
    "waited_seconds",
]

MARK_VARIABLE = "TIDEPOOL_MARK"

_RESERVED_MARK_BYTES = 240
#: Start times are computed from the boot time, which the kernel rounds to a second and may correct.
_START_TOLERANCE_SECONDS = 2.0
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61

_libc = ctypes.CDLL(None, use_errno=True)
#: Title of this process, or of the process that it was forked from; None: none was set.
_title: str | None = None


def started_at(pid: int) -> float:
    """Unix seconds of the start. Raises ProcessLookupError."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(f"no process {pid}") from error


def runs(process: psutil.Process) -> bool:
    """Return whether this very process is running; a zombie is not."""
    try:
        return process.is_running() and process.status() not in _ENDED
    except psutil.NoSuchProcess:
        return False


def alive(pid: int, started_at: float) -> bool:
    """Return whether a process named by another process is running."""
    try:
        process = psutil.Process(pid)
        return process.status() not in _ENDED and abs(process.create_time() - started_at) < _START_TOLERANCE_SECONDS
    except psutil.NoSuchProcess:
        return False


def numbers_begun_at() -> float:
    """Unix seconds at which this process's PID namespace began: with its process 1, or else with the machine."""
    try:
        return psutil.Process(1).create_time()
    except psutil.Error:  # hidden from users other than root by /proc's option hidepid
        return psutil.boot_time()


def descendants(pid: int) -> list[psutil.Process]:
    """Children, their children and so on, parents first, zombies left out."""
    return [process for process in trees([pid])[pid] if process.pid != pid]


def trees(roots: list[int]) -> dict[int, list[psutil.Process]]:
    """Each root with its descendants, parents first, zombies left out; empty for a root that has ended.

    One scan of all processes serves all roots; psutil's `children` would need one for each.
    """
    if not roots:
        return {}
    children: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # gone meanwhile
            children[int(_stat(pid)[1])].append(pid)
    result = {}
    for root in roots:
        pids = [root]
        for pid in pids:  # grows while it is walked
            pids += children.get(pid, [])
        result[root] = _living(pids)
    return result


def session_members(leader: int) -> list[psutil.Process]:
    """Processes in the session of `leader`, and `leader` itself though it may not have made its session yet."""
    return members_of_sessions([leader])


def members_of_sessions(leaders: Iterable[int]) -> list[psutil.Process]:
    """The same of several sessions, by one scan of all processes."""
    wanted = {*leaders}
    return _living(pid for pid in psutil.pids() if pid in wanted or _session(pid) in wanted)


def catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for the signal; False if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def marked(prefix: str) -> list[psutil.Process]:
    """Processes whose mark is `prefix` or continues it after a dot; this one left out."""
    return _living(pid for pid in psutil.pids() if pid != os.getpid() and f"{_mark_of(pid)}.".startswith(f"{prefix}."))


def may_be_of(process: psutil.Process, mark: str, user: int) -> bool:
    """Return whether a process behind a wall may belong to what has the mark: it has that mark, or none.

    Without any, it must be the user's, behind a wall as trainings are, and not where another mark is.
    """
    if own := _mark_of(process.pid):
        return f"{own}.".startswith(f"{mark}.")
    try:
        facts = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        words = dict(line.split(":", 1) for line in facts)
        spaces = _spaces_of(process.pid)
        is_walled = words["NoNewPrivs"].strip() == "1" and spaces.isdisjoint(_spaces_of("self"))
    except (OSError, KeyError):  # gone meanwhile, or another user's: no mark of it can be read, either
        return False
    return is_walled and int(words["Uid"].split()[0]) == user and spaces.isdisjoint(_spaces_of_others(mark))


def _spaces_of_others(mark: str) -> set[tuple[str, int]]:
    """Return the mounts and the shared memory that processes with other marks see."""
    found = set()
    for pid in psutil.pids():
        if (other := _mark_of(pid)) and not f"{other}.".startswith(f"{mark}."):
            with contextlib.suppress(OSError):  # gone meanwhile
                found |= _spaces_of(pid)
    return found


def _spaces_of(pid: int | str) -> set[tuple[str, int]]:
    return {(name, os.stat(f"/proc/{pid}/ns/{name}").st_ino) for name in ("mnt", "ipc")}


def kill(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    """Signal this very process; no error if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def end_at_once(why: str) -> None:
    """End this rank without running any of the script's code; its shim starts another one if it is still wanted."""
    print(f"tidepool: rank ends itself: {why}", file=sys.stderr, flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the CPU time of the running processes, without that of ended children."""
    seconds = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def waited_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the time for which threads of the processes were ready to run and had no processor; 0 if not known."""
    nanoseconds = 0
    for process in processes:
        folder = f"/proc/{process.pid}/task"
        # A process may be gone meanwhile, and some kernels do not have these figures.
        with contextlib.suppress(OSError, ValueError), os.scandir(folder) as threads:
            for thread in threads:
                nanoseconds += int(Path(thread.path, "schedstat").read_bytes().split()[1])
    return nanoseconds / 1e9


def memory_bytes(processes: Iterable[psutil.Process]) -> int:
    """Resident memory; pages that processes share are counted for each."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def reserved_mark() -> str:
    """Return a value of the mark variable long enough for any mark, for a process that will fork marked ones."""
    return " " * _RESERVED_MARK_BYTES


def set_mark(mark: str) -> None:
    """Mark this process and, from now on, what it forks or starts."""
    os.environ[MARK_VARIABLE] = mark
    value = mark.encode()
    start, size = _reserved_memory()
    if len(value) > size:
        raise ValueError(f"mark of {len(value)} bytes, room for {size}: start this process with reserved_mark()")
    ctypes.memmove(start, value.ljust(size), size)


def set_title(title: str) -> None:
    """Name this process for ps, top and nvidia-smi. A title longer than the command line that it replaces is cut off.

    The first call is made while the process has one thread and its environment is as at exec; its forks inherit that.
    """
    global _title
    if _title is None:
        os.environ["SPT_NOENV"] = "1"  # else titles may take the memory of the environment too, and so of the mark
        setproctitle.getproctitle()
        del os.environ["SPT_NOENV"]
    _title = title
    setproctitle.setproctitle(title)


def set_role(role: str) -> None:
    """Set the role in the process's title, if it has one, to tell a fork from its parent."""
    if _title is not None:
        set_title(f"tidepool {role}:{_title.partition(':')[2]}")


def die_with_parent(parent: int) -> None:
    """Have this process killed when the thread that forked it ends; exit at once if `parent` has already ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Make this process adopt descendants whose parents end, in any session."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_traced_by(pid: int) -> None:
    """Let a process trace this one under Yama, which otherwise lets only ancestors do so. 0: no other process."""
    try:
        _prctl(_PR_SET_PTRACER, pid)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel without Yama does not know the option, and needs none
            raise


def close_descriptors(keep: set[int]) -> None:
    """Close what this process inherited. Its Python objects must not be used any more."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(int(name))


def redirect(descriptors: list[int], path: Path) -> None:
    """Have these descriptors append to a file, or read it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)


def reap_child() -> tuple[int, int] | None:
    """Return pid and wait status of an ended child, if there is one."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def has_children() -> bool:
    """Return whether this process has children, including ended ones that were not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _living(pids: Iterable[int]) -> list[psutil.Process]:
    """Return living processes. Unlike `psutil.process_iter` it never answers for an earlier process of a pid."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() not in _ENDED:
                found.append(process)
    return found


def _stat(pid: int | str) -> list[bytes]:
    """Fields of /proc/<pid>/stat from the state on. Not by psutil, which takes three times as long for all of them."""
    text = Path(f"/proc/{pid}/stat").read_bytes()
    # The name stands in parentheses and may hold anything, also parentheses: count from the last one.
    return text[text.rindex(b")") + 2 :].split()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _mark_of(pid: int) -> str:
    """ "" for none. Not by psutil, which takes each environment to pieces: shims look at all processes, often."""
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return ""
    _, _, rest = environment.partition(b"\0" + MARK_VARIABLE.encode() + b"=")
    return rest.partition(b"\0")[0].decode(errors="replace").rstrip()


def _reserved_memory() -> tuple[int, int]:
    """Address and size of the mark's value in the environment that this process was exec'd with."""
    fields = _stat("self")
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

"""Stacks of all threads of a training's ranks, on request, also of ranks that hang.

Each rank registers a handler of STACKS_SIGNAL, written in C, which appends the stacks to a file that is open from the
start. It needs neither the interpreter's lock nor the main thread, so a rank answers while it waits in a collective or
in C code. Processes that a rank forks, such as workers of its data loader, inherit handler and file.

The shim sends the signals and collects the answers in `journal/stacks.<host>.json` (`protocol.HostStacks`). It never
waits: its loop calls `StackTaker.turn` until all processes have answered, or the time is over.
"""

import faulthandler
import json
import os
import signal
import stat
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tidepool import procfs
from tidepool.confine.processes import host_pid
from tidepool.journal import replace_file
from tidepool.protocol import HostStacks, ProcessStacks, RankStacks, StacksState, to_json
from tidepool.shim_slots import RankProcess

__all__ = ["STACKS_SIGNAL", "StackTaker", "answer_with_stacks", "stacks_path"]

#: A real-time signal, which neither libraries nor scripts use for themselves.
STACKS_SIGNAL = int(signal.SIGRTMAX) - 3
#: File in a rank's log folder to which the handler writes.
_FILE = "stacks"
#: Seconds for all processes of a host, and between two looks at them.
_LIMIT_SECONDS = 2.0
_LOOK_SECONDS = 0.005
#: Largest number of processes of a rank, and of bytes of each.
_MOST_PROCESSES = 9
_MOST_BYTES = 256 * 1024
#: Seconds that a rank's child must have lived: a younger one may be about to become another program, which would have
#: no handler and be killed by the signal.
_GROWN_SECONDS = 1.0
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def answer_with_stacks(log_dir: Path) -> None:
    """Write the stacks of this process and its forks to a file in `log_dir` at each STACKS_SIGNAL from now on."""
    file = open(log_dir / _FILE, "ab")  # noqa: SIM115 - the handler writes there as long as the process lives
    faulthandler.register(STACKS_SIGNAL, file, all_threads=True)


def stacks_path(host: str) -> str:
    """Return the path of a host's answer, relative to the attempt's folder."""
    return f"journal/stacks.{host}.json"


class StackTaker:
    """Takes the stacks of a shim's ranks. Times are monotonic seconds."""

    #: Time of the next `turn`; None: no request is under way.
    next_look_at: float | None = None

    def __init__(self, folder: Path, host: str) -> None:
        """folder: of the attempt."""
        self._path, self._host = folder / stacks_path(host), host
        #: Number of the newest request; None: none is known, so that the first one is from before this shim's start.
        self._number: int | None = None
        self._begun_at = 0.0
        self._ranks: list[_Rank] = []

    def request(self, number: int, ranks: Iterable[RankProcess]) -> None:
        """Begin to take the stacks of these ranks, unless a request of this number was made before.

        A request while another one is under way gets its answer.
        """
        is_new = self._number is not None and number > self._number
        self._number = max(number, self._number or 0)
        if not is_new or self.next_look_at is not None:
            return
        self._begun_at = self.next_look_at = time.monotonic()
        self._ranks = [_Rank.of(rank) for rank in ranks]

    def turn(self) -> None:
        """Look at the processes that have been asked, and write the answer when it is complete."""
        now = time.monotonic()
        if self.next_look_at is None or now < self.next_look_at:
            return
        is_late = now - self._begun_at > _LIMIT_SECONDS
        going_on = [rank for rank in self._ranks if rank.look(is_late=is_late)]
        if going_on:
            self.next_look_at = now + _LOOK_SECONDS
            return
        self.next_look_at = None
        assert self._number is not None
        answers = [RankStacks(rank.member_id, rank.slot, rank.answers, rank.left_out) for rank in self._ranks]
        answer = HostStacks(self._number, self._host, time.time(), now - self._begun_at, answers)
        for rank in self._ranks:
            rank.close()
        self._ranks = []
        with suppress(OSError):  # a full disk: nobody gets an answer, which the page says, and the training goes on
            replace_file(self._path, json.dumps(to_json(answer)))


@dataclass
class _Rank:
    """A rank whose processes are asked one after the other, because they write to one file."""

    member_id: str
    slot: int
    #: Descriptor of the file that its processes write to; None: it has none.
    file: int | None
    waiting: deque[psutil.Process]
    left_out: int
    asked: "_Asked | None" = None
    answers: list[ProcessStacks] = field(default_factory=list)

    @classmethod
    def of(cls, rank: RankProcess) -> "_Rank":
        members = sorted(procfs.session_members(rank.pid), key=lambda process: process.pid != rank.pid)
        file = _open_emptied(rank.log_dir / _FILE)
        waiting = deque(process for process in members if process.pid == rank.pid or _is_grown_fork(process))
        left_out = max(0, len(waiting) - _MOST_PROCESSES)
        while len(waiting) > _MOST_PROCESSES:
            waiting.pop()
        return cls(rank.member_id, rank.slot, file, waiting, left_out)

    def look(self, *, is_late: bool) -> bool:
        """Take the answers that are there, and ask the next process. Return whether some are still to come."""
        while self.asked is not None or self.waiting:
            if self.asked is None:
                process = self.waiting.popleft()
                state = "silent" if is_late else _state_before(process, self.file)
                if state is not None:
                    self._answer(process, state)
                    continue
                assert self.file is not None
                self.asked = _Asked(process, self.file)
            if self.asked.is_done():
                self._answer(self.asked.process, "answered", self.asked.text())
            elif not procfs.runs(self.asked.process):
                self._answer(self.asked.process, "ended")
            elif is_late:
                self._answer(self.asked.process, _state_of_silent(self.asked.process))
            else:
                return True
            self.asked = None
        return False

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)

    def _answer(self, process: psutil.Process, state: StacksState, text: str = "") -> None:
        name, pid = "", process.pid
        with suppress(psutil.NoSuchProcess, OSError):
            name = process.name()[:64]
            pid = host_pid(process.pid)
        self.answers.append(ProcessStacks(pid, name, state, text))


class _Asked:
    """A process that has been sent the signal."""

    def __init__(self, process: psutil.Process, file: int) -> None:
        self.process, self._file = process, file
        self._begin = os.fstat(file).st_size
        self._blocking = _threads_that_block(process.pid)
        procfs.kill(process, STACKS_SIGNAL)

    def is_done(self) -> bool:
        """Return whether the handler has written all.

        It has begun once the file has grown. While it runs, the kernel blocks the signal in its thread.
        """
        return os.fstat(self._file).st_size > self._begin and not (
            _threads_that_block(self.process.pid) - self._blocking
        )

    def text(self) -> str:
        size = min(os.fstat(self._file).st_size - self._begin, _MOST_BYTES)
        return os.pread(self._file, size, self._begin).decode(errors="replace")


def _state_before(process: psutil.Process, file: int | None) -> StacksState | None:
    """Return why the process cannot be asked; None: it can."""
    try:
        status = process.status()
    except psutil.NoSuchProcess:
        return "ended"
    if status in _STOPPED:
        return "stopped"
    return "unable" if file is None or not procfs.catches(process.pid, STACKS_SIGNAL) else None


def _state_of_silent(process: psutil.Process) -> StacksState:
    try:
        status = process.status()
    except psutil.NoSuchProcess:
        return "ended"
    if status in _STOPPED:
        return "stopped"
    return "in_kernel" if status == psutil.STATUS_DISK_SLEEP else "silent"


def _is_grown_fork(process: psutil.Process) -> bool:
    """Return whether a rank's child has inherited the handler, and is not about to become another program."""
    try:
        is_grown = time.time() - process.create_time() > _GROWN_SECONDS
    except psutil.NoSuchProcess:
        return False
    return is_grown and procfs.catches(process.pid, STACKS_SIGNAL)


def _threads_that_block(pid: int) -> set[str]:
    """Return the ids of the threads of a process that block the signal."""
    found = set()
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
                blocked = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
                if int(blocked, 16) >> (STACKS_SIGNAL - 1) & 1:
                    found.add(thread)
    return found


def _open_emptied(path: Path) -> int | None:
    """Return a descriptor of the file, without former stacks; None: it is not there, or the script has replaced it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, 0)
        return descriptor
    os.close(descriptor)
    return None

"""Child processes of the embedded stack: starting, restarting, stopping, and log rotation."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tidepool import procfs
from tidepool.backoff import Backoff

from webapp.embedded import parent_watch
from webapp.embedded.forked import ForkedProcess

__all__ = ["ChildSpec", "Children", "end_descendants", "open_log", "rotate"]

LOG_LIMIT_BYTES = 10 * 1024 * 1024
#: Seconds after which a process counts as started successfully, so that its next restart is not delayed.
_SETTLED_SECONDS = 10.0
_Backoff = partial(Backoff, first_seconds=0.5, longest_seconds=30.0, settled_seconds=_SETTLED_SECONDS)
_ROTATION_INTERVAL_SECONDS = 10.0


@dataclass(frozen=True)
class ChildSpec:
    name: str
    #: Command line; empty for a fork of this process.
    command: list[str]
    environment: dict[str, str]
    folder: Path
    #: Signal that the kernel sends to a command when this process dies. Forks are killed.
    death_signal: signal.Signals = signal.SIGKILL
    #: Function that the fork runs in place of a command.
    work: Callable[[], object] | None = None
    #: Descriptors that a command inherits under the same number.
    descriptors: tuple[int, ...] = ()


@dataclass
class Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | ForkedProcess
    backoff: Backoff = field(default_factory=_Backoff)
    #: True after the process has ended, until the backoff is over and it starts again.
    is_waiting: bool = False


@dataclass
class Children:
    """The children by name, in the order of their start. Call `watch` a few times per second."""

    logs: Path
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    by_name: dict[str, Child] = field(default_factory=dict)
    _rotate_at: float = 0.0

    def start(self, spec: ChildSpec) -> None:
        self.by_name[spec.name] = Child(spec, self._spawn(spec))

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def watch(self) -> None:
        """Reap ended processes, restart the stack's own, and rotate logs."""
        self._reap()
        now = self.clock()
        for child in self.by_name.values():
            if child.is_waiting and now >= child.backoff.until:
                child.process, child.is_waiting = self._spawn(child.spec), False
            elif not child.is_waiting and child.process.poll() is not None:
                self._schedule_restart(child, now)
        if now >= self._rotate_at:
            self._rotate_at = now + _ROTATION_INTERVAL_SECONDS
            for name in self.by_name:
                rotate(self.log(name))

    def stop(self, names: list[str], grace_seconds: float) -> None:
        """Send SIGTERM to all children, then SIGKILL to remaining ones. They are not restarted."""
        stopping = [self.by_name.pop(name) for name in names if name in self.by_name]
        for child in stopping:
            child.process.terminate()
        deadline = time.monotonic() + grace_seconds
        for child in stopping:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.say(f"{child.spec.name} did not stop within {grace_seconds:g} s: killed.")
                child.process.kill()
                child.process.wait()

    def _spawn(self, spec: ChildSpec) -> subprocess.Popen[bytes] | ForkedProcess:
        tied = [sys.executable, "-S", "-E", parent_watch.__file__, str(os.getpid()), str(int(spec.death_signal))]
        with open_log(self.log(spec.name)) as log:
            if spec.work is not None:
                return ForkedProcess(spec.name, spec.work, spec.environment, spec.folder, log)
            return subprocess.Popen(
                [*tied, *spec.command],
                cwd=spec.folder,
                env=spec.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=spec.descriptors,
                # A Ctrl-C in the terminal reaches this process alone, which stops the children in order.
                start_new_session=True,
            )

    def _schedule_restart(self, child: Child, now: float) -> None:
        name, wait = child.spec.name, child.backoff.add(now)
        child.is_waiting = True
        code = child.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        self.say(f"{name} {how}; it starts again in {wait:g} s (its log: {self.log(name)}).")

    def _reap(self) -> None:
        """Reap adopted orphans; direct children are left to their Popen objects."""
        own = {child.process.pid: child.process for child in self.by_name.values()}
        while (ended := _ended_child()) is not None:
            if ended in own:
                own[ended].poll()
            else:
                os.waitpid(ended, 0)


def _ended_child() -> int | None:
    """Return a child that has ended and was not reaped yet."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def end_descendants(grace_seconds: float) -> list[int]:
    """Wait until the descendants have ended, then kill remaining ones; return those killed.

    This process must be a subreaper, or it does not see the children of the dead.
    """
    deadline = time.monotonic() + grace_seconds
    while (left := procfs.descendants(os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed: set[int] = set()
    # Children of a killed process are adopted by this one: repeat until none is left.
    while left:
        for process in left:
            procfs.kill(process)
            killed.add(process.pid)
        time.sleep(0.02)
        left = procfs.descendants(os.getpid())
    return sorted(killed)


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to: a child that writes on after a rotation writes at the new end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)


def rotate(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> bool:
    """Move a log that has grown past the limit to `<name>.1`, in place of the one before.

    The child keeps its descriptor, so the content is copied and the file emptied: a line written between the two is
    lost, which is the price for needing no process that all output passes through.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit_bytes:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True

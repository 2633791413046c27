"""The background worker: work for which no request, training or scheduler waits, each kind in a child process.

The worker itself has one thread, so that it may fork. Four times a second it asks the database whether there is work,
and forks a child for each kind that has some. A child holds up no other kind of work, shares the worker's memory, and
gives back its own when it ends.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections
from tidepool.backoff import Backoff

from core.process import fork, share_memory, still_alive

__all__ = ["BackgroundTask", "BackgroundWorker"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
#: Time between SIGTERM and SIGKILL, for all children together.
_GRACE_SECONDS = 4.0
_REAP_SECONDS = 0.02
#: Trainings, pages and the scheduler come before what children do. A child begins with the worker's priority, or its
#: first query would wait on a busy machine for longer than the worker polls.
_NICENESS = 10
#: Seconds without a sign of life after which a child is stuck; the worker then gives no sign of life either.
_STUCK_SECONDS = 90.0
_Backoff = partial(Backoff, first_seconds=1.0, longest_seconds=30.0, settled_seconds=60.0)


@dataclass(frozen=True)
class BackgroundTask:
    """A kind of work. Its functions keep their state between calls in the database."""

    name: str
    #: Function that works in a child process until the event is set or, with `has_work`, until no work is left.
    run: Callable[[threading.Event], None]
    #: Function that returns whether the worker is to fork a child; None: the child runs all the time.
    has_work: Callable[[], bool] | None = None


@dataclass
class _Child:
    task: BackgroundTask
    #: Process of the child; None if it does not run.
    pid: int | None = None
    backoff: Backoff = field(default_factory=_Backoff)
    is_stuck: bool = False
    #: The child has the priority of background work.
    is_nice: bool = False


class BackgroundWorker:
    """Runs the tasks until the event is set. No other thread of the process may run Python."""

    def __init__(self, tasks: Sequence[BackgroundTask], stop: threading.Event) -> None:
        self._children = [_Child(task) for task in tasks]
        self._stop = stop

    def run(self) -> None:
        """Watch the tasks; end all children within the grace time once the event is set."""
        share_memory()
        try:
            while not self._stop.is_set():
                for child in self._children:
                    self._watch(child)
                if not any(child.is_stuck for child in self._children):
                    still_alive()
                self._stop.wait(_POLL_SECONDS)
        finally:
            self._end_children()

    def _watch(self, child: _Child) -> None:
        """Reap the child if it has ended; fork one if there is work and none runs."""
        if child.pid is not None and (code := _exit_code(child.pid)) is not None:
            child.pid, child.is_stuck, child.is_nice = None, False, False
            _note_end(child, code)
        if child.pid is not None:
            _note_stuck(child)
            if not child.is_nice:
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
                child.is_nice = True
        elif time.monotonic() >= child.backoff.until and _has_work(child):
            child.pid = self._fork(child.task)

    def _fork(self, task: BackgroundTask) -> int:
        """Return the pid of a child process that runs the task."""
        alive_file = _alive_file(task)
        if alive_file is not None:
            alive_file.touch()

        def work() -> None:
            settings.TIDEPOOL_ALIVE_FILE = str(alive_file or "")
            task.run(self._stop)

        return fork(f"task={task.name}", work)

    def _end_children(self) -> None:
        pids = {child.pid: child.task.name for child in self._children if child.pid is not None}
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        while pids := {pid: name for pid, name in pids.items() if _exit_code(pid) is None}:
            if time.monotonic() > deadline:
                break
            time.sleep(_REAP_SECONDS)
        for pid, name in pids.items():
            logger.warning("task=%s did not stop within %g s and is killed", name, _GRACE_SECONDS)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _exit_code(pid: int) -> int | None:
    """Reap the child process and return its exit code; None if it still runs."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if reaped else None


def _has_work(child: _Child) -> bool:
    if child.task.has_work is None:
        return True
    try:
        return child.task.has_work()
    except Exception:
        pause = child.backoff.add(time.monotonic())
        logger.exception("task=%s could not look for work; it looks again in %g s", child.task.name, pause)
        close_old_connections()
        return False


def _note_end(child: _Child, code: int) -> None:
    """Have the next child wait, later and later, unless this one has done all of its work."""
    if code == 0 and child.task.has_work is not None:
        child.backoff.reset()
        return
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    pause = child.backoff.add(time.monotonic())
    logger.warning("task=%s process %s; it starts again in %g s", child.task.name, how, pause)


def _note_stuck(child: _Child) -> None:
    file = _alive_file(child.task)
    is_stuck = file is not None and time.time() - file.stat().st_mtime > _STUCK_SECONDS
    if is_stuck and not child.is_stuck:
        logger.error("task=%s has given no sign of life for %g s", child.task.name, _STUCK_SECONDS)
    child.is_stuck = is_stuck


def _alive_file(task: BackgroundTask) -> Path | None:
    """Return the file that the task's process touches, beside that of the worker."""
    if not settings.TIDEPOOL_ALIVE_FILE:
        return None
    return Path(f"{settings.TIDEPOOL_ALIVE_FILE}.{task.name}")

"""Threads, processes and exit functions that are left when a rank's script has ended, and hold its GPU.

Python waits for them without a limit. A rank waits for those that work, and ends once they have been idle for a while.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidepool import procfs

__all__ = ["Work", "has_worked", "watch_leftovers"]

#: Seconds within which what is left usually ends by itself.
_USUAL_SECONDS = 10.0
#: Seconds between two looks, as a part of the deadline, and at most.
_LOOKS, _LOOK_SECONDS = 10.0, 5.0
#: Fraction of one processor below which a thread only waits, such as one that looks at something every second.
_IDLE_CPU = 0.02


@dataclass(frozen=True)
class Work:
    """The work of a rank's processes so far."""

    cpu_seconds: float
    #: Size of the rank's stdout and stderr.
    printed_bytes: int


def has_worked(before: Work, now: Work, seconds: float) -> bool:
    """Return whether a rank computed or printed between two looks. seconds: the time between them."""
    return now.printed_bytes > before.printed_bytes or now.cpu_seconds - before.cpu_seconds > _IDLE_CPU * seconds


def watch_leftovers(code: int, idle_seconds: float, tell: Callable[[], object]) -> None:
    """End this process with the exit code `code` once all that is left of its script has been idle for so long.

    tell: called once if something is left that does not end soon.
    """
    watch = threading.Thread(target=_watch, args=(code, idle_seconds, tell), name="leftovers-watch", daemon=True)
    watch.start()


def _watch(code: int, idle_seconds: float, tell: Callable[[], object]) -> None:
    pause = min(_LOOK_SECONDS, idle_seconds / _LOOKS)
    time.sleep(min(_USUAL_SECONDS, idle_seconds / 2))
    left = _left()
    _say(
        f"the script has ended, but {left} still runs and holds the GPU until it ends or is idle for {idle_seconds:g} s"
    )
    tell()
    before, idle_since = _work(), time.monotonic()
    while time.monotonic() - idle_since < idle_seconds:
        time.sleep(pause)
        now = _work()
        if has_worked(before, now, pause):
            idle_since = time.monotonic()
        before = now
    _say(f"{left} was idle for {idle_seconds:g} s after the script's end: the process is ended")
    os._exit(code)


def _left() -> str:
    threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    names = [f"the thread {each.name}" for each in threads]
    if "multiprocessing" in sys.modules:
        children = sys.modules["multiprocessing"].active_children()
        names += [f"the process {each.name}" for each in children if not each.daemon]
    return ", ".join(names) if names else "a function that runs at its exit"


def _work() -> Work:
    printed = sum(os.fstat(stream).st_size for stream in (1, 2))
    # The time that this thread takes to look is no work of the script.
    return Work(procfs.cpu_seconds(procfs.session_members(os.getpid())) - time.thread_time(), printed)


def _say(words: str) -> None:
    sys.stderr.write(f"tidepool: {words}\n")
    sys.stderr.flush()

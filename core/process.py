"""Parts of long-running processes: forking, stopping by signals, the loop, the sign of life, the garbage collector."""

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.conf import settings
from django.db import close_old_connections, connections
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tidepool import procfs
from tidepool.backoff import Backoff

__all__ = [
    "fitting_alone",
    "fork",
    "share_memory",
    "still_alive",
    "stop_at_signals",
    "take_turns",
    "without_collector",
]

logger = logging.getLogger(__name__)


def share_memory() -> None:
    """Have later forks share the objects that this process has by now.

    A garbage collection writes to every object, which would copy the memory that the children share.
    """
    gc.collect()
    gc.freeze()


def fork(name: str, work: Callable[[], object]) -> int:
    """Return the pid of a child process that runs `work` and ends. The kernel kills it when this process dies.

    No other thread of this process may run Python.
    """
    # Two processes must not share a connection, not even to close it.
    connections.close_all()
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        procfs.die_with_parent(parent)
        work()
        code = 0
    except BaseException:
        logger.exception("%s failed", name)
    finally:
        logging.shutdown()
        # Children must not run the parent's exit handlers.
        os._exit(code)


def stop_at_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set instead of their default action. Main thread only."""
    stop = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stop


def still_alive() -> None:
    """Touch the file whose age tells a health check that the process works. Call it in each turn of its loop."""
    if settings.TIDEPOOL_ALIVE_FILE:
        Path(settings.TIDEPOOL_ALIVE_FILE).touch()


def take_turns(stop: threading.Event, turn: Callable[[], bool], *, pause_seconds: float) -> None:
    """Call `turn` until `stop` is set: again at once if it returns True, otherwise after a pause.

    An exception is logged, and increases the pause before the next call.
    """
    backoff = Backoff(first_seconds=pause_seconds, longest_seconds=30.0)
    while not stop.is_set():
        has_more = False
        try:
            has_more = turn()
            backoff.reset()
            still_alive()
        except Exception:
            backoff.add(time.monotonic())
            logger.exception("a turn of the loop failed, retrying")
            close_old_connections()
        if not has_more:
            stop.wait(backoff.pause_seconds or pause_seconds)


@contextmanager
def fitting_alone() -> Iterator[None]:
    """Restrict fits in the body to one thread: a fit of seven numbers costs ten times as much on two."""
    import tidepool.goodput.fit  # noqa: F401, only libraries that are loaded already are limited

    with threadpool_limits(1):
        yield


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector, which would traverse very many new objects again and again.

    For a process that does one thing at a time: garbage is collected soon after.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

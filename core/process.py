"""Parts of long-running processes: stop by signals, their loop, the sign of life, the garbage collector."""

import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.conf import settings
from django.db import close_old_connections
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tidepool.backoff import Backoff

__all__ = ["fitting_alone", "still_alive", "stop_at_signals", "take_turns", "without_collector"]

logger = logging.getLogger(__name__)


def stop_at_signals() -> threading.Event:
    """Make an event that SIGTERM and SIGINT set; they do nothing else from now on. Main thread only."""
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
    """Call `turn` until told to stop: again at once if it returns True, else after a pause.

    A turn that fails is logged, and the next one comes later and later.
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
            logger.exception("a turn failed; the next one tries again")
            close_old_connections()
        if not has_more:
            stop.wait(backoff.pause_seconds or pause_seconds)


@contextmanager
def fitting_alone() -> Iterator[None]:
    """Fit without threads in this process: a fit of seven numbers costs ten times as much on two threads."""
    import tidepool.goodput.fit  # noqa: F401, only libraries that are loaded already are limited

    with threadpool_limits(1):
        yield


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the collector off: among very many new objects it would look through all of them, again and again.

    For a process that does one thing at a time: what is left behind is collected soon after.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

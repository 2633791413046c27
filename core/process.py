"""Parts of long-running processes: the event that stops them, the file that shows them alive, the garbage collector."""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.conf import settings

__all__ = ["still_alive", "stop_at_signals", "without_collector"]


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

"""The event that stops a long-running process."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["stop_at_signals"]


def stop_at_signals() -> threading.Event:
    """Make an event that SIGTERM and SIGINT set; they do nothing else from now on. Main thread only."""
    stop = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stop

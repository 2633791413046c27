"""How a process that runs until it is told to stop learns of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["stop_at_signals"]


def stop_at_signals() -> threading.Event:
    """Set at SIGTERM or SIGINT, which from now on do nothing else. Only in the main thread."""
    stop = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stop

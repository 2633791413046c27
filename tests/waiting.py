"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_SECONDS", "wait_until"]

#: For everything. What comes sooner costs nothing, and a busy machine may need most of it.
PATIENCE_SECONDS = 180.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.25
#: A pause takes so many times as long as the question before it: one that asks a server would keep a processor busy.
_PAUSE_PER_QUESTION = 5

T = TypeVar("T")


def wait_until(met: Callable[[], T], what: str | Callable[[], str] = "it", seconds: float = PATIENCE_SECONDS) -> T:
    """The first true value of `met`. `what` is waited for; a callable is asked at the end, for how things stand then.

    Raises AssertionError when there is none in time.
    """
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not (value := met()):
        answered = time.monotonic()
        if answered > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        pause = _PAUSE_PER_QUESTION * (answered - asked)
        time.sleep(min(max(pause, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
        asked = time.monotonic()
    return value

"""Seconds for which a GPU computes, by its own clock, of a loop that nobody stops to ask for them."""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GpuTimes"]

#: Spans whose end the GPU has not reached yet, at most: the host runs no further ahead of it.
_MOST_PENDING = 64


class GpuTimes:
    """Spans between two moments of the GPU's present stream. A span is counted once the GPU has come to its end."""

    def __init__(self, make_event: Callable[..., Any] = torch.cuda.Event) -> None:
        self._make_event = make_event
        self._begun: Any = None
        self._pending: deque[tuple[Any, Any]] = deque()
        #: Events that can be recorded again.
        self._spare: list[Any] = []

    def begin(self) -> None:
        """Begin a span; one that has begun and not ended is forgotten."""
        if len(self._pending) < _MOST_PENDING:
            self._begun = self._begun or self._event()
            self._begun.record()

    def end(self) -> None:
        """End the span, if one has begun."""
        if self._begun is not None:
            last = self._event()
            last.record()
            self._pending.append((self._begun, last))
            self._begun = None

    def take(self) -> float:
        """Return the seconds of the spans that the GPU has completed since the last call."""
        seconds = 0.0
        while self._pending and self._pending[0][1].query():
            first, last = self._pending.popleft()
            seconds += first.elapsed_time(last) / 1000.0
            self._spare += (first, last)
        return seconds

    def _event(self) -> Any:
        return self._spare.pop() if self._spare else self._make_event(enable_timing=True)

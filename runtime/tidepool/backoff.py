"""Waiting before another try: the one rule of the runtime, the executor and the embedded stack."""

import math
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass
class Backoff:
    """Pauses after failures in a row, each twice as long as the one before. The caller says what time it is."""

    first_seconds: float
    longest_seconds: float
    #: A failure so long after the last pause is the first one again.
    settled_seconds: float = math.inf
    pause_seconds: float = 0.0
    #: When to try again, by the caller's clock.
    until: float = -math.inf

    def add(self, now: float) -> float:
        """Count a failure; returns how long to wait."""
        if now > self.until + self.settled_seconds:
            self.pause_seconds = 0.0
        self.pause_seconds = min(self.longest_seconds, 2 * self.pause_seconds or self.first_seconds)
        self.until = now + self.pause_seconds
        return self.pause_seconds

    def reset(self) -> None:
        """Begin anew after a success."""
        self.pause_seconds, self.until = 0.0, -math.inf

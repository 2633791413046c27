"""Timing of repeated work, for the runtime, the executor and the processes of the site: pauses and intervals."""

import math
from dataclasses import dataclass

__all__ = ["Backoff", "Interval"]


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


@dataclass
class Interval:
    """Work that is done at most once in so many seconds. The caller says what time it is."""

    seconds: float
    #: When it was done last; the first time it is due at once.
    last: float = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether to do it now, and count it as done."""
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True

"""Timing of repeated work in the runtime, the executor and the site: backoff and intervals."""

import math
from dataclasses import dataclass

__all__ = ["Backoff", "Interval"]


@dataclass
class Backoff:
    """Exponential backoff after consecutive failures. The caller passes the time."""

    first_seconds: float
    longest_seconds: float
    #: Seconds after the last pause from which a failure counts as the first again.
    settled_seconds: float = math.inf
    pause_seconds: float = 0.0
    #: Time of the next attempt, by the caller's clock.
    until: float = -math.inf

    def add(self, now: float) -> float:
        """Count a failure; return the seconds to wait."""
        if now > self.until + self.settled_seconds:
            self.pause_seconds = 0.0
        self.pause_seconds = min(self.longest_seconds, 2 * self.pause_seconds or self.first_seconds)
        self.until = now + self.pause_seconds
        return self.pause_seconds

    def reset(self) -> None:
        """Reset after a success."""
        self.pause_seconds, self.until = 0.0, -math.inf


@dataclass
class Interval:
    """Work that is done at most once per interval. The caller passes the time."""

    seconds: float
    #: Time when it was last done; the first time, it is due at once.
    last: float = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether the work is due now, and count it as done."""
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True

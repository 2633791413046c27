"""Estimate of each host's clock offset from its reports.

A report carries the time of its host's clock. The control plane's clock minus that time is the host's offset plus the
report's delay. The minimum over the newest reports has the smallest delay and estimates the offset. While all of them
are delayed, the host's own estimate limits it: the times in the desired states that it has received.
"""

from collections.abc import Sequence

from core.time import duration

__all__ = ["READINGS", "behind_seconds", "clock_warning", "correction_seconds", "late_seconds", "with_reading"]

#: Number of readings that are kept for each host.
READINGS = 20
#: Number of readings for an estimate: of fewer, all may have been delayed.
_TRUSTED_READINGS = 5
#: Offset in seconds that is ignored: usual on a busy control plane and without NTP, and harmless.
_TOLERATED_SECONDS = 2.0


def with_reading(offsets: Sequence[float], offset: float) -> list[float]:
    """Return the newest readings with this one appended."""
    return [*offsets, round(offset, 3)][-READINGS:]


def late_seconds(offsets: Sequence[float], offset: float) -> float:
    """Return the delay of a report beyond the fastest ones, in seconds; usual delays count as 0."""
    late = offset - min(offsets, default=offset)
    return late if late > _TOLERATED_SECONDS else 0.0


def behind_seconds(offsets: Sequence[float], least: float | None = None) -> float | None:
    """Return how many seconds the host's clock is behind, negative if ahead; None with too few readings.

    least: a lower bound, from messages in the other direction.
    """
    if len(offsets) < _TRUSTED_READINGS:
        return None
    most = min(offsets)
    return most if least is None or most <= 0 else min(most, max(least, 0.0))


def correction_seconds(behind: float | None) -> float:
    """Return the seconds to add to a time of the host's clock; 0 if the offset is within the tolerance."""
    return 0.0 if behind is None or abs(behind) <= _TOLERATED_SECONDS else behind


def clock_warning(behind: float | None) -> str:
    """Return a warning if the host's clock is off by more than the tolerance; "" otherwise."""
    if behind is None or not correction_seconds(behind):
        return ""
    return f"Its clock is {duration(abs(behind))} {'behind' if behind > 0 else 'ahead'}: set up NTP there."

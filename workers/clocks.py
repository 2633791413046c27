"""Clock offsets of hosts, and ages of reports, without comparing moments of two machines.

A report says what its host's clock showed. The control plane's clock less that is how far the host is behind, and how
long the report was on its way: of the newest readings the least was on its way for the shortest time.
"""

from collections.abc import Sequence

from core.time import duration

__all__ = ["READINGS", "behind_seconds", "clock_warning", "correction_seconds", "late_seconds", "with_reading"]

READINGS = 20
#: Before that many readings all of them may have been on their way for long.
_TRUSTED_READINGS = 5
#: Less is usual on a busy control plane and without NTP, and disturbs nothing.
_TOLERATED_SECONDS = 2.0


def with_reading(offsets: Sequence[float], offset: float) -> list[float]:
    """The newest readings, this one at the end."""
    return [*offsets, round(offset, 3)][-READINGS:]


def late_seconds(offsets: Sequence[float], offset: float) -> float:
    """Return how much longer than others a report was under way; what is usual is none."""
    late = offset - min(offsets, default=offset)
    return late if late > _TOLERATED_SECONDS else 0.0


def behind_seconds(offsets: Sequence[float]) -> float | None:
    """Return how far the host is behind, less than nothing: ahead. None: too few readings."""
    return min(offsets) if len(offsets) >= _TRUSTED_READINGS else None


def correction_seconds(behind: float | None) -> float:
    """Return what to add to a moment by the host's clock; nothing where that may be as right as ours."""
    return 0.0 if behind is None or abs(behind) <= _TOLERATED_SECONDS else behind


def clock_warning(behind: float | None) -> str:
    """A sentence where the clock is wrong enough to confuse people; "" otherwise."""
    if behind is None or not correction_seconds(behind):
        return ""
    return f"Its clock is {duration(abs(behind))} {'behind' if behind > 0 else 'ahead'}: set up NTP there."

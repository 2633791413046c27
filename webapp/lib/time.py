"""Moments as JSON carries them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["iso", "relative"]

_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with microseconds, such as `2026-03-01T12:00:00.000000Z`."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def relative(moment: datetime, now: datetime) -> str:
    """ "3 min ago", "in 2 h", "now": the same rule as `relativeTime` in static/js/words.js."""
    seconds = round((now - moment).total_seconds())
    if abs(seconds) < 2:
        return "now"
    unit, size = next((unit, size) for unit, size in _UNITS if abs(seconds) >= size)
    count = abs(seconds) // size
    words = f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
    return f"{words} ago" if seconds > 0 else f"in {words}"

"""Times in JSON and in words."""

import math
from datetime import UTC, datetime, tzinfo
from typing import overload

from django.utils.dateparse import parse_date, parse_datetime

__all__ = ["MONTHS", "TIME_UNITS", "duration", "exact_time", "iso", "moment_at", "parsed_moment", "relative"]

#: Units of relative times with their seconds, the largest first.
TIME_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
#: Last second of the year 9999.
_LAST_SECOND = 253_402_300_799.0
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@overload
def iso(moment: datetime) -> str: ...
@overload
def iso(moment: datetime | None) -> str | None: ...
def iso(moment: datetime | None) -> str | None:
    """Return the time in ISO 8601, in UTC with microseconds, such as `2026-03-01T12:00:00.000000Z`."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment_at(seconds: float) -> datetime:
    """Return the moment at these Unix seconds, or the nearest one that a calendar has: scripts may have written any."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LAST_SECOND), UTC)


def exact_time(moment: datetime, zone: tzinfo = UTC) -> str:
    """Return date and time in the zone: "27 Nov 2026, 11:23". `exactTime` in static/js/words.js agrees."""
    at = moment.astimezone(zone)
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}, {at:%H:%M}"


def duration(seconds: float) -> str:
    """Return a duration such as "12 s", "3 min 5 s" or "2 h 10 min": the same rule as in static/js/words.js."""
    whole = max(0, math.floor(seconds + 0.5))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def relative(moment: datetime, now: datetime) -> str:
    """Return a time such as "3 min ago", "in 2 h" or "now": the same rule as `relativeTime` in static/js/words.js.

    The past is rounded down, and the future to the nearest unit: a new token of 90 days expires "in 90 days".
    """
    seconds = math.floor((now - moment).total_seconds() + 0.5)
    if abs(seconds) < 2:
        return "now"
    if seconds > 0:
        unit, size = next((unit, size) for unit, size in TIME_UNITS if seconds >= size)
        return f"{_counted(seconds // size, unit)} ago"
    return f"in {_counted(*_nearest(-seconds))}"


def _nearest(seconds: int) -> tuple[int, str]:
    """Return the time rounded to its unit: the smallest in which it stays below one of the next larger unit."""
    larger = [math.inf, *(size for _, size in TIME_UNITS)]
    counts = [((2 * seconds + size) // (2 * size), unit, size) for unit, size in TIME_UNITS]
    return next(
        (count, unit)
        for (count, unit, size), most in zip(reversed(counts), reversed(larger[:-1]), strict=True)
        if count * size < most
    )


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"


def parsed_moment(text: str) -> datetime:
    """Return the time in the text: a day, or a time, in UTC by default. Raises ValueError or OverflowError."""
    day = parse_date(text) if len(text) == len("2026-03-01") else None
    moment = datetime(day.year, day.month, day.day) if day else parse_datetime(text.replace(" ", "+"))
    if moment is None:
        raise ValueError(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)

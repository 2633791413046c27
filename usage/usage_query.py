"""Parameters of a usage report: the window, the dimension of the rows, and the length of a step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.errors import field_error
from jobs.gpu_time import DAY, HOUR, MINUTE, to_ms
from usage.models import UsageBucket
from usage.time_grid import STEPS

__all__ = ["BY", "RANGES", "ReportQuery", "default_range", "parse_query"]

#: Value of the parameter `range` -> label of its button, and length in milliseconds.
RANGES = {
    "15m": ("15 min", 15 * MINUTE),
    "1h": ("1 h", HOUR),
    "6h": ("6 h", 6 * HOUR),
    "24h": ("24 h", DAY),
    "7d": ("7 days", 7 * DAY),
    "30d": ("30 days", 30 * DAY),
    "90d": ("90 days", 90 * DAY),
    "1y": ("1 year", 365 * DAY),
}
#: Value of the parameter `by` -> dimension of the report's rows.
BY = {
    dimension.name.lower(): dimension
    for dimension in UsageBucket.Dimension
    if dimension != UsageBucket.Dimension.CAPACITY
}
_DEFAULT_RANGE = "24h"
_LONGEST = 400 * DAY
_MAX_STEPS = 2000


@dataclass(frozen=True)
class ReportQuery:
    start: int
    end: int
    by: str
    #: Length of a step in milliseconds; None: as short as the chart can show.
    step: int | None
    #: Key in `RANGES` of a window that ends now; "": a fixed window.
    range: str

    @property
    def dimension(self) -> UsageBucket.Dimension:
        return BY[self.by]


def default_range(first: int | None, now: int) -> str:
    """Return the shortest range, up to 24 h, that includes the first claim.

    On a new cluster, the first minutes would be a thin line at the edge of a day.
    """
    if first is None:
        return _DEFAULT_RANGE
    return next((word for word, (_, length) in RANGES.items() if now - first <= length <= DAY), _DEFAULT_RANGE)


def parse_query(given: Mapping[str, str], now: int, *, default: str = _DEFAULT_RANGE) -> ReportQuery:
    """Return the query of URL parameters: `range`, or `from` and `to`; `by`; `step` in seconds.

    default: range of an address without a window. Raises UserError.
    """
    by = given.get("by") or "user"
    if by not in BY:
        raise field_error("by", f"Use one of these for by: {', '.join(BY)}.")
    start, end, word = _window(given, now, default)
    return ReportQuery(start, end, by, _step(given.get("step", ""), end - start), word)


def _window(given: Mapping[str, str], now: int, default: str) -> tuple[int, int, str]:
    if not (given.get("from") or given.get("to")):
        word = given.get("range") or default
        if word not in RANGES:
            raise field_error("range", f"Use one of these for range: {', '.join(RANGES)}; or give from and to.")
        return now - RANGES[word][1], now, word
    end = min(now, _moment(given, "to")) if given.get("to") else now
    if not given.get("from"):
        raise field_error("from", "Give the beginning of the period, such as from=2026-03-01T00:00Z.")
    start = _moment(given, "from")
    if start >= now:
        raise field_error("from", "The period begins in the future: choose a time before now.")
    if start >= end:
        raise field_error("to", "The period ends before it begins: choose a later end, or an earlier beginning.")
    if end - start > _LONGEST:
        raise field_error("from", "The period is longer than 400 days: choose a shorter one, such as a year.")
    return start, end, ""


def _moment(given: Mapping[str, str], name: str) -> int:
    """Return the time in milliseconds, in UTC by default. In an address, a plus sign arrives as a blank."""
    try:
        at = datetime.fromisoformat(given[name].strip().replace(" ", "+" if "T" in given[name] else "T"))
        return to_ms(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise field_error(
            name, f"Write {name} as a time, such as 2026-03-01T12:00Z, or as a day, such as 2026-03-01."
        ) from None


def _step(text: str, length: int) -> int | None:
    if not text or text == "auto":
        return None
    steps = [step // 1000 for step in STEPS]
    if text not in {str(step) for step in steps}:
        raise field_error("step", f"Use a step of {', '.join(map(str, steps))} seconds, or auto.")
    step = int(text) * 1000
    if length // step > _MAX_STEPS:
        raise field_error("step", f"There would be more than {_MAX_STEPS} steps: use longer ones, or a shorter period.")
    return step

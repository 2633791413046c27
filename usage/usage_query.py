"""The question that a report answers: a window, what usage is counted by, and the length of a step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.errors import field_error
from jobs.gpu_time import DAY, HOUR, MINUTE, to_ms
from usage.models import UsageBucket
from usage.time_grid import STEPS

__all__ = ["BY", "RANGES", "Asked", "parsed", "range_to_see"]

#: Word in the address -> words on the button, and length.
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
#: What usage is counted by, as an address says it.
BY = {
    dimension.name.lower(): dimension
    for dimension in UsageBucket.Dimension
    if dimension != UsageBucket.Dimension.CAPACITY
}
_FIRST_RANGE = "24h"
_LONGEST = 400 * DAY
_MOST_STEPS = 2000


@dataclass(frozen=True)
class Asked:
    start: int
    end: int
    by: str
    #: None: as short as can be drawn.
    step: int | None
    #: The word of a window that ends now and moves on; "": it begins and ends where it was said.
    range: str

    @property
    def dimension(self) -> UsageBucket.Dimension:
        return BY[self.by]


def range_to_see(first: int | None, now: int) -> str:
    """The shortest range that reaches back to `first`, when a GPU was held for the first time, and at most 24 h: what
    happened in the first minutes would be a line at the edge of a day."""
    if first is None:
        return _FIRST_RANGE
    return next((word for word, (_, length) in RANGES.items() if now - first <= length <= DAY), _FIRST_RANGE)


def parsed(given: Mapping[str, str], now: int, *, usual: str = _FIRST_RANGE) -> Asked:
    """Read the parameters of an address: `range`, or `from` and `to`; `by`; `step` in seconds.

    usual: the range where none is named.
    """
    by = given.get("by") or "user"
    if by not in BY:
        raise field_error("by", f"by may be {', '.join(BY)}.")
    start, end, word = _window(given, now, usual)
    return Asked(start, end, by, _step(given.get("step", ""), end - start), word)


def _window(given: Mapping[str, str], now: int, usual: str) -> tuple[int, int, str]:
    if not (given.get("from") or given.get("to")):
        word = given.get("range") or usual
        if word not in RANGES:
            raise field_error("range", f"range may be {', '.join(RANGES)}; or say from and to.")
        return now - RANGES[word][1], now, word
    end = min(now, _moment(given, "to")) if given.get("to") else now
    if not given.get("from"):
        raise field_error("from", "Say when it begins, such as from=2026-03-01T00:00Z.")
    start = _moment(given, "from")
    if start >= now:
        raise field_error("from", "This has not begun yet: choose a time before now.")
    if start >= end:
        raise field_error("to", "This ends before it begins: choose a later end, or an earlier beginning.")
    if end - start > _LONGEST:
        raise field_error("from", "This is more than 400 days: ask for one year after the other.")
    return start, end, ""


def _moment(given: Mapping[str, str], name: str) -> int:
    """A time without a zone is one in UTC. A plus sign in an address comes as a blank."""
    try:
        at = datetime.fromisoformat(given[name].strip().replace(" ", "+" if "T" in given[name] else "T"))
        return to_ms(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise field_error(name, f"{name} is no time: write it as 2026-03-01T12:00Z, or as 2026-03-01.") from None


def _step(text: str, length: int) -> int | None:
    if not text or text == "auto":
        return None
    steps = [step // 1000 for step in STEPS]
    if text not in {str(step) for step in steps}:
        raise field_error("step", f"A step may be {', '.join(map(str, steps))} seconds, or auto.")
    step = int(text) * 1000
    if length // step > _MOST_STEPS:
        raise field_error("step", f"These are more than {_MOST_STEPS} steps: ask for longer steps, or less time.")
    return step

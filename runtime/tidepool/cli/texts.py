"""Numbers and moments in words."""

from datetime import UTC, datetime
from typing import Any

__all__ = ["ago", "duration", "expected", "share"]


def duration(seconds: float) -> str:
    """Return the two largest units, such as "3h 12m"."""
    whole = max(0, int(seconds))
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count or first == 3)


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    return "" if moment is None else duration(((now or datetime.now(UTC)) - moment).total_seconds())


def share(progress: float | None) -> str:
    return "" if progress is None else f"{100 * progress:.0f}%"


def expected(start: Any, now: datetime | None = None) -> str:
    """Return when a waiting job is expected to start."""
    if not start:
        return ""
    now = now or datetime.now(UTC)

    def until(text: str) -> str:
        return duration((datetime.fromisoformat(text) - now).total_seconds())

    earliest, latest = until(start["earliest"]), start["latest"]
    return f"in {earliest}" if latest is None or until(latest) == earliest else f"in {earliest} to {until(latest)}"

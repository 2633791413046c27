"""Moments as JSON carries them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["iso"]


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with microseconds, such as `2026-03-01T12:00:00.000000Z`."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

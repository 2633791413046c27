"""A file that says by its age that a process does its work: a container's health check looks at it."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

__all__ = ["still_alive"]


def still_alive() -> None:
    """Call it each time around the process's loop."""
    if settings.TIDEPOOL_ALIVE_FILE:
        Path(settings.TIDEPOOL_ALIVE_FILE).touch()

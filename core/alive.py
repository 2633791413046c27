"""The file whose age tells a container's health check that a process does its work."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

__all__ = ["still_alive"]


def still_alive() -> None:
    """Touch the file, once in each turn of the process's loop."""
    if settings.TIDEPOOL_ALIVE_FILE:
        Path(settings.TIDEPOOL_ALIVE_FILE).touch()

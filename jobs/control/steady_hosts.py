"""Hosts whose reports repeat what is stored: their rows are written every few seconds only."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from tidepool.protocol import Report

from jobs.queries.gpu_status import is_idle

__all__ = ["SteadyHosts"]

_LONGEST_PAUSE = timedelta(seconds=3)


@dataclass(frozen=True)
class _Stored:
    at: datetime
    gist: Any


class SteadyHosts:
    """Memory of one process; another process that takes reports has its own, and writes at most once more."""

    def __init__(self) -> None:
        self._stored: dict[str, _Stored] = {}

    def is_steady(self, report: Report, now: datetime) -> bool:
        """Return whether the report says nothing new, and its host's row has been written a moment ago."""
        stored = self._stored.get(report.host)
        if stored is None or report.leaving or stored.gist != _gist(report):
            return False
        pause = min(_LONGEST_PAUSE, timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS) / 10)
        return timedelta(0) <= now - stored.at < pause

    def note(self, report: Report, now: datetime) -> None:
        """Note that the report has been stored, and that its host is in service."""
        self._stored[report.host] = _Stored(now, _gist(report))

    def forget(self, host: str) -> None:
        self._stored.pop(host, None)


def _gist(report: Report) -> Any:
    """Return what is stored at once if it changes: all but times and readings that go up and down."""
    return (
        report.boot,
        report.applied_revision,
        report.facts,
        report.ranks,
        report.leaving_at is None,
        report.leaving_why,
        [(device.slot, device.model, device.uuid, is_idle(device)) for device in report.devices],
    )

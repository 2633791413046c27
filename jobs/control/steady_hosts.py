"""Hosts whose reports repeat what is stored: their rows are written every few seconds only."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from msgspec import structs
from tidepool.protocol import DeviceReading, Report

from jobs.control.readings import READINGS_EVERY
from jobs.queries.gpu_status import is_idle

__all__ = ["SteadyHosts"]

_LONGEST_PAUSE = timedelta(seconds=3)


@dataclass
class _Stored:
    at: datetime
    gist: Any
    #: Slot -> sum and number of the utilizations that came since `busy_since`.
    busy_since: datetime
    busy: dict[int, tuple[float, int]] = field(default_factory=dict)


class SteadyHosts:
    """Memory of one process; another process that takes reports has its own, and writes at most once more."""

    def __init__(self) -> None:
        self._stored: dict[str, _Stored] = {}

    def is_steady(self, report: Report, now: datetime) -> bool:
        """Return whether the report says nothing new, and its host's row has been written a moment ago."""
        if not self.repeats(report):
            return False
        stored = self._stored[report.host]
        pause = min(_LONGEST_PAUSE, timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS) / 10)
        is_steady = timedelta(0) <= now - stored.at < pause
        if is_steady:
            _add(stored.busy, report.devices)
        return is_steady

    def repeats(self, report: Report) -> bool:
        """Return whether the report says nothing new but for times and readings."""
        stored = self._stored.get(report.host)
        return stored is not None and not report.leaving and stored.gist == _gist(report)

    def averaged(self, reports: Iterable[Report]) -> list[Report]:
        """Return the reports with the mean utilization of each device since its reading was written."""
        return [structs.replace(report, devices=self._averaged(report)) for report in reports]

    def _averaged(self, report: Report) -> list[DeviceReading]:
        stored = self._stored.get(report.host)
        if stored is None or not stored.busy or not self.repeats(report):
            return report.devices
        _add(stored.busy, report.devices)
        means = {slot: total / number for slot, (total, number) in stored.busy.items()}
        return [
            structs.replace(device, utilisation_percent=means.get(device.slot, device.utilisation_percent))
            for device in report.devices
        ]

    def note(self, report: Report, now: datetime) -> None:
        """Note that the report has been stored, and that its host is in service."""
        before = self._stored.get(report.host)
        if before is not None and self.repeats(report) and now - before.busy_since < READINGS_EVERY:
            before.at = now
        else:
            self._stored[report.host] = _Stored(now, _gist(report), now)

    def forget(self, host: str) -> None:
        self._stored.pop(host, None)


def _add(busy: dict[int, tuple[float, int]], devices: Iterable[DeviceReading]) -> None:
    for device in devices:
        if device.utilisation_percent is not None:
            total, number = busy.get(device.slot, (0.0, 0))
            busy[device.slot] = total + device.utilisation_percent, number + 1


def _gist(report: Report) -> Any:
    """Return what is stored at once if it changes: all but times and readings that go up and down."""
    return (
        report.boot,
        report.applied_revision,
        report.facts,
        report.ranks,
        report.leaving_at is None,
        report.leaving_why,
        [(device.slot, device.model, device.uuid, device.fault, is_idle(device)) for device in report.devices],
    )

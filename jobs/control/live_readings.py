"""Newest readings of GPUs for the pages that show them now, apart from the database. See `core.newest_values`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidepool.protocol import Report

from core.live import send_newest
from workers.topics import readings_topic

__all__ = ["LiveReadings"]

#: Change of a utilization, in percent points, and time between two, below which nothing is sent.
_LEAST_CHANGE = 5.0
_EVERY_SECONDS = 2.0


@dataclass
class _Sent:
    at: float
    busy: dict[int, float | None] = field(default_factory=dict)


class LiveReadings:
    """Memory of one process of what it has sent; another process has its own, and sends at most as much again."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}

    def send(self, reports: Iterable[Report]) -> None:
        """Send utilizations that have changed, in one message."""
        if news := self.changes(reports):
            send_newest({readings_topic(host): {**busy} for host, busy in news.items()})

    def changes(self, reports: Iterable[Report]) -> dict[str, Mapping[str, float | None]]:
        """Return host -> slot -> utilization, of those that have changed since they were returned last."""
        news: dict[str, Mapping[str, float | None]] = {}
        for report in reports:
            sent = self._sent.get(report.host)
            # The host's clock counts: reports may come late, and several together.
            if sent is not None and 0 <= report.at - sent.at < _EVERY_SECONDS:
                continue
            before = sent.busy if sent else {}
            busy = {device.slot: device.utilisation_percent for device in report.devices}
            changed = {slot: percent for slot, percent in busy.items() if _differs(before.get(slot), percent)}
            if changed:
                self._sent[report.host] = _Sent(report.at, before | changed)
                news[report.host] = {str(slot): percent for slot, percent in changed.items()}
        return news


def _differs(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    # Whether it works at all is told in any case.
    return abs(now - before) >= _LEAST_CHANGE or (now == 0) != (before == 0)

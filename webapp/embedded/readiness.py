"""Checks that a part of the stack does its work, not merely that its process exists."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from datetime import datetime

from jobs.models import SchedulerLease
from workers.models import Host

__all__ = ["hosts_reporting", "is_healthy", "lease_epoch", "web_answers"]

_ANSWER_SECONDS = 5.0


def web_answers(address: str, port: int) -> bool:
    return _healthz_status(address, port) is not None


def is_healthy(address: str, port: int) -> bool:
    """Database, broker, scheduler and an executor are all alive, as the site itself sees it."""
    return _healthz_status(address, port) == 200


def lease_epoch() -> int:
    """Raised by each scheduler that takes the lead."""
    return SchedulerLease.objects.values_list("epoch", flat=True).first() or 0


def hosts_reporting(names: Iterable[str], since: datetime) -> set[str]:
    """Those of the hosts whose executor has reported since then."""
    rows = Host.objects.filter(name__in=list(names), last_report_at__gte=since, state=Host.State.ONLINE)
    return set(rows.values_list("name", flat=True))


def _healthz_status(address: str, port: int) -> int | None:
    connection = http.client.HTTPConnection(address, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()

"""Tasks of Celery: the one door through which executors report, and what is done now and then. All changes are in
actions."""

import logging
from typing import Any

from celery import shared_task
from django.utils import timezone
from tidepool.protocol import ProtocolError, Report, from_json

from core.text import storable
from jobs.control import checkpoints
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import send_sync
from jobs.control.hosts import RETURNING, note_problem, record_host, release_vacated
from jobs.control.journals import store_entries
from workers.models import Host

__all__ = ["ingest_report", "note_saves"]

logger = logging.getLogger(__name__)


@shared_task(name="jobs.tasks.ingest_report", ignore_result=True)  # type: ignore[untyped-decorator]
def ingest_report(values: dict[str, Any]) -> None:
    """Store a host's report. Losing one, or receiving it twice or late, changes nothing."""
    try:
        # What a script raised or named may hold anything; it must not keep a host's reports from being stored.
        report = from_json(Report, storable(values))
    except ProtocolError as error:
        logger.warning("a report was dropped: %s", error)
        return
    host, problem = _record_host(report)
    if host is None:
        logger.warning(
            "a report was dropped: no host %r is enrolled; `manage.py enroll_host` does so", report.host[:100]
        )
        return
    unknown = store_entries(report)
    problem = problem or release_vacated(report)
    note_problem(host, problem)
    # A host that is not reachable yet hears its desired state now; others hear at once what they need not send again.
    behind = host.state in RETURNING and not report.leaving and host.applied_revision < host.desired_revision
    if report.entries or behind:
        send_sync(host.name, unknown)


def _record_host(report: Report) -> tuple[Host | None, str]:
    """The host, and why what the report says of it cannot be stored; its trainings' entries are stored all the same."""
    try:
        return record_host(report, timezone.now()), ""
    except PASSES:
        raise
    except Exception as error:  # whatever it is: shown on Hosts
        logger.exception("host=%s: what it says of itself cannot be stored", report.host[:100])
        return Host.objects.filter(name=report.host).first(), f"What it says of itself: {in_words(error)}"


@shared_task(name="jobs.tasks.note_saves", ignore_result=True)  # type: ignore[untyped-decorator]
def note_saves() -> None:
    """Note when scripts without a session have saved last. Called too often it does nothing."""
    checkpoints.note_saves()

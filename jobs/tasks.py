"""Celery tasks: storing executors' reports, and periodic work. All changes are made in actions and control."""

import logging
from typing import Any

from celery import shared_task
from django.utils import timezone
from tidepool.protocol import ProtocolError, Report, from_json

from core.text import storable
from jobs.control import checkpoints, gpu_spans
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import send_sync
from jobs.control.hosts import RETURNING, note_problem, record_host, release_vacated
from jobs.control.journals import store_entries
from workers.models import Host

__all__ = ["ingest_report", "merge_old_gpu_spans", "note_saves"]

logger = logging.getLogger(__name__)


@shared_task(name="jobs.tasks.ingest_report", ignore_result=True)  # type: ignore[untyped-decorator]
def ingest_report(values: dict[str, Any]) -> None:
    """Store a host's report. A report that is lost, late or received twice changes nothing."""
    try:
        # Errors and names from scripts may hold any character; such a character must not block a host's reports.
        report = from_json(Report, storable(values))
    except ProtocolError as error:
        logger.warning("dropped a report: %s", error)
        return
    host, problem = _record_host(report)
    if host is None:
        logger.warning("dropped a report: host %r is not enrolled; run `manage.py enroll_host`", report.host[:100])
        return
    unknown = store_entries(report)
    problem = problem or release_vacated(report)
    note_problem(host, problem)
    # A host that is still returning gets its desired state now; others get an acknowledgement, to send less again.
    behind = host.state in RETURNING and not report.leaving and host.applied_revision < host.desired_revision
    if report.entries or behind:
        send_sync(host.name, unknown)


def _record_host(report: Report) -> tuple[Host | None, str]:
    """Return the host and the problem with its own state, or "". The report's entries are stored in either case."""
    try:
        return record_host(report, timezone.now()), ""
    except PASSES:
        raise
    except Exception as error:  # any error is shown on Hosts
        logger.exception("host=%s: its description cannot be stored", report.host[:100])
        return Host.objects.filter(name=report.host).first(), f"Description of the host: {in_words(error)}"


@shared_task(name="jobs.tasks.note_saves", ignore_result=True)  # type: ignore[untyped-decorator]
def note_saves() -> None:
    """Update the time of the last save of scripts without a session. Too frequent calls do nothing."""
    checkpoints.note_saves()


@shared_task(name="jobs.tasks.merge_old_gpu_spans", ignore_result=True)  # type: ignore[untyped-decorator]
def merge_old_gpu_spans() -> None:
    """Reduce the resolution of GPUs' use over time by its age. Repeated and concurrent calls do nothing."""
    gpu_spans.merge_old(timezone.now())

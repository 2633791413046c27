"""Celery tasks: storing executors' reports, and periodic work. All changes are made in actions and control."""

import logging
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from django.utils import timezone
from tidepool.protocol import ProtocolError

from jobs.control import checkpoints, gpu_spans, tidying
from jobs.control.envelopes import Envelopes
from jobs.control.intake import ForgedReport
from jobs.control.reports import store_report
from jobs.control.steady_hosts import SteadyHosts
from workers.lateness import note_forged, note_mark

__all__ = ["ingest_report", "merge_old_gpu_spans", "note_saves", "note_taken", "tidy"]

logger = logging.getLogger(__name__)

_envelopes = Envelopes()


@shared_task(name="jobs.tasks.ingest_report", ignore_result=True)  # type: ignore[untyped-decorator]
def ingest_report(values: dict[str, Any]) -> None:
    """Store a host's report. A report that is lost, late or received twice changes nothing."""
    try:
        report = _envelopes.open(values)
    except ForgedReport as error:
        note_forged(1)
        logger.warning("refused a report: %s", error)
        return
    except ProtocolError as error:
        logger.warning("dropped a report: %s", error)
        return
    store_report(report, SteadyHosts())


@shared_task(name="jobs.tasks.note_taken", ignore_result=True)  # type: ignore[untyped-decorator]
def note_taken(sent_at: float) -> None:
    """Note that all reports sent before this mark have been taken. See `workers.lateness`."""
    note_mark(datetime.fromtimestamp(sent_at, UTC))


@shared_task(name="jobs.tasks.note_saves", ignore_result=True)  # type: ignore[untyped-decorator]
def note_saves() -> None:
    """Update the time of the last save of scripts without a session. Too frequent calls do nothing."""
    checkpoints.note_saves()


@shared_task(name="jobs.tasks.merge_old_gpu_spans", ignore_result=True)  # type: ignore[untyped-decorator]
def merge_old_gpu_spans() -> None:
    """Reduce the resolution of GPUs' use over time by its age. Repeated and concurrent calls do nothing."""
    gpu_spans.merge_old(timezone.now())


@shared_task(name="jobs.tasks.tidy", ignore_result=True)  # type: ignore[untyped-decorator]
def tidy() -> None:
    """Delete rows that nobody looks at any more. Repeated and concurrent calls do nothing."""
    tidying.tidy(timezone.now())

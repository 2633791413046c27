"""Storage of hosts' reports: for `manage.py take_reports`, and for the task of former versions in `jobs.tasks`."""

import logging
from collections.abc import Iterable

from django.utils import timezone
from tidepool.protocol import Report

from core.process import still_alive
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import send_sync
from jobs.control.environments import store_environments
from jobs.control.hosts import RETURNING, note_problem, record_host, release_vacated
from jobs.control.journals import store_entries
from jobs.control.steady_hosts import SteadyHosts
from workers.models import Host

__all__ = ["store_report", "store_reports"]

logger = logging.getLogger(__name__)

_IN_SERVICE = (Host.State.ONLINE, Host.State.DRAINING)


def store_reports(reports: Iterable[Report], steady: SteadyHosts) -> None:
    """Store reports. One that cannot be stored delays no other."""
    for report in reports:
        try:
            store_report(report, steady)
        except PASSES:
            raise
        except Exception:
            logger.exception("host=%s: a report cannot be stored", report.host[:100])
        still_alive()


def store_report(report: Report, steady: SteadyHosts) -> None:
    """Store a host's report: its facts, its entries, and which slots it has left; and answer it."""
    host, problem = _record_host(report, steady)
    if host is None:
        logger.warning("dropped a report: host %r is not enrolled; run `manage.py enroll_host`", report.host[:100])
        return
    unknown = store_entries(report)
    if report.environments is not None:
        store_environments(host, report)
    problem = problem or release_vacated(report)
    note_problem(host, problem)
    # A host that is still returning gets its desired state now; others get an acknowledgement, to send less again.
    behind = host.state in RETURNING and not report.leaving and host.applied_revision < host.desired_revision
    if report.entries or behind:
        send_sync(host.name, unknown)


def _record_host(report: Report, steady: SteadyHosts) -> tuple[Host | None, str]:
    """Return the host and the problem with its own state, or "". The report's entries are stored in either case."""
    now = timezone.now()
    try:
        if steady.is_steady(report, now):
            return Host.objects.filter(name=report.host).first(), ""
        steady.forget(report.host)
        host = record_host(report, now)
        if host is not None and host.state in _IN_SERVICE and report.at == host.reported_at:
            steady.note(report, now)
        return host, ""
    except PASSES:
        raise
    except Exception as error:  # any error is shown on Hosts
        logger.exception("host=%s: its description cannot be stored", report.host[:100])
        return Host.objects.filter(name=report.host).first(), f"Description of the host: {in_words(error)}"

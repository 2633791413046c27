"""Storage of hosts' reports: for `manage.py take_reports`, and for the task of former versions in `jobs.tasks`.

Reports of many hosts are stored together: their facts in one transaction, the steps of their trainings in another, and
all else in one for each training. What raises is stored again host by host, so that it delays no other.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from django.utils import timezone
from tidepool.protocol import Report

from core.process import still_alive
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import acknowledge, send_sync
from jobs.control.environments import store_environments
from jobs.control.hosts import RETURNING, note_problem, record_hosts, release_vacated
from jobs.control.journals import store_entries
from jobs.control.steady_hosts import SteadyHosts
from workers.models import Host

__all__ = ["store_report", "store_reports"]

logger = logging.getLogger(__name__)

_IN_SERVICE = (Host.State.ONLINE, Host.State.DRAINING)
#: Reports that are stored together: the rows of their trainings are locked meanwhile.
_AT_ONCE = 50


def store_report(report: Report, steady: SteadyHosts) -> None:
    """Store a host's report: its facts, its entries, and which slots it has left; and answer it."""
    _store([report], steady)


def store_reports(reports: Iterable[Report], steady: SteadyHosts) -> None:
    """Store reports. One that cannot be stored delays no other."""
    for together in _rounds(reports):
        for first in range(0, len(together), _AT_ONCE):
            some = together[first : first + _AT_ONCE]
            try:
                _store(some, steady)
            except PASSES:
                raise
            except Exception:
                logger.exception("%s reports cannot be stored together: one by one", len(some))
                _store_singly(some, steady)
            still_alive()


def _rounds(reports: Iterable[Report]) -> Iterator[Sequence[Report]]:
    """Yield the reports in their order, each host once in a round: an executor may have been started again."""
    waiting: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        waiting[report.host].append(report)
    while waiting:
        yield [of_host.pop(0) for of_host in waiting.values()]
        waiting = defaultdict(list, {host: of_host for host, of_host in waiting.items() if of_host})


def _store_singly(reports: Iterable[Report], steady: SteadyHosts) -> None:
    for report in reports:
        try:
            _store([report], steady)
        except PASSES:
            raise
        except Exception:
            logger.exception("host=%s: a report cannot be stored", report.host[:100])


def _store(reports: Sequence[Report], steady: SteadyHosts) -> None:
    """Store reports, one of each host, and answer them."""
    hosts, problems = _record_hosts(reports, steady)
    known = [report for report in reports if report.host in hosts]
    for report in reports:
        if report.host not in hosts:
            logger.warning("dropped a report: host %r is not enrolled; run `manage.py enroll_host`", report.host[:100])
    stored = store_entries(known)
    for report in known:
        if report.environments is not None:
            store_environments(hosts[report.host], report)
    problems = {**release_vacated(known), **problems}
    for report in known:
        note_problem(hosts[report.host], problems.get(report.host, ""))
    behind = [report for report in known if _is_behind(hosts[report.host], report)]
    for report in behind:
        send_sync(report.host, stored.get(report.host))
    answered = {report.host for report in behind}
    acknowledge([(hosts[host], numbers) for host, numbers in stored.items() if host not in answered])


def _is_behind(host: Host, report: Report) -> bool:
    """Return whether the host is still returning: it gets its desired state now."""
    return host.state in RETURNING and not report.leaving and host.applied_revision < host.desired_revision


def _record_hosts(reports: Sequence[Report], steady: SteadyHosts) -> tuple[dict[str, Host], dict[str, str]]:
    """Return the hosts by name, and the problems with their own state. Their entries are stored in either case."""
    now = timezone.now()
    due = [report for report in reports if not steady.is_steady(report, now)]
    repeating = {report.host for report in due if steady.repeats(report)}
    hosts, problems = {}, {}
    if due:
        try:
            hosts = record_hosts(steady.averaged(due), now, repeating)
        except PASSES:
            raise
        except Exception as error:
            if len(due) > 1:
                raise  # one by one
            logger.exception("host=%s: its description cannot be stored", due[0].host[:100])
            # Any error is shown on Hosts.
            problems[due[0].host] = f"Description of the host: {in_words(error)}"
    for report in due:
        host = hosts.get(report.host)
        if host is not None and host.state in _IN_SERVICE and report.at == host.reported_at:
            steady.note(report, now)
        else:
            steady.forget(report.host)
    others = [report.host for report in reports if report.host not in hosts]
    hosts |= {host.name: host for host in Host.objects.filter(name__in=others)} if others else {}
    return hosts, problems

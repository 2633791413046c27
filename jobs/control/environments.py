"""Environments that hosts are to have: requests to hosts, and what the hosts report.

A request raises a number, so that an answer to an older one changes nothing. Hosts remember nothing over a restart: an
environment that a host has reported and no longer does is asked for again.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone
from tidepool.protocol import EnvironmentState, Report

from core import live
from jobs.control.dispatch import wake_scheduler
from jobs.control.lifecycle import raise_revisions
from jobs.files.job_folder import job_folder
from jobs.models import HostEnvironment, JobRun, RequiredEnvironment
from jobs.states import ACTIVE, JobState
from workers.models import Host
from workers.topics import CLUSTER

__all__ = [
    "ask_for",
    "forget",
    "forget_unused",
    "prepare",
    "store_environments",
]


_State = HostEnvironment.State
_ANSWERED = (_State.BUILDING, _State.READY, _State.FAILED)
#: Time after its last training during which hosts keep an environment that nobody has pinned.
_KEPT = timedelta(days=7)


@transaction.atomic
def ask_for(wanted: Mapping[int, Collection[str]]) -> None:
    """Ask hosts for the environments of jobs. wanted: job -> names of hosts."""
    if not wanted:
        return
    runs = JobRun.objects.filter(job__in=wanted, environment__isnull=False).select_related(
        "job__owner", "job__model__model", "environment"
    )
    live.hold(CLUSTER)
    hosts = {
        host.name: host for host in Host.objects.filter(name__in={name for names in wanted.values() for name in names})
    }
    asked = set[int]()
    for run in runs.order_by("job"):
        for name in wanted[run.job_id]:
            if (host := hosts.get(name)) is not None and _ask(run, host):
                asked.add(host.pk)
    if asked:
        raise_revisions(asked)


def _ask(run: JobRun, host: Host) -> bool:
    """Ask a host for a run's environment, unless it was asked; a build that failed is tried again for a later job."""
    assert run.environment is not None
    log = job_folder(run.job).attempt(run.attempt + (run.job.state == JobState.PENDING))
    columns = {
        "state": _State.ASKED,
        "since": timezone.now(),
        "log": str(log / "log" / f"environment@{host.name}" / "stdout"),
    }
    row, is_new = HostEnvironment.objects.get_or_create(host=host, environment=run.environment, defaults=columns)
    if is_new:
        return True
    is_over = row.state == _State.FAILED and run.job.state == JobState.PENDING and run.job.submitted_at > row.since
    if is_over:
        _ask_again(row, **columns)
    return is_over


def _ask_again(row: HostEnvironment, **columns: Any) -> None:
    HostEnvironment.objects.filter(pk=row.pk).update(number=F("number") + 1, why="", **columns)


def prepare(environment: RequiredEnvironment, logs: Mapping[Host, str], *, is_fresh: bool = False) -> None:
    """Ask hosts for an environment, within the caller's transaction. logs: host -> file for the output of its build.

    Those that have it, or are at it, are asked again only for a new build.
    """
    live.hold(CLUSTER)
    asked = set[int]()
    for host, log in sorted(logs.items(), key=lambda item: item[0].pk):
        columns = {"state": _State.ASKED, "since": timezone.now(), "log": log, "is_fresh": is_fresh}
        row, is_new = HostEnvironment.objects.get_or_create(host=host, environment=environment, defaults=columns)
        if is_fresh or row.state == _State.FAILED:
            _ask_again(row, **columns)
        elif not is_new:
            continue
        asked.add(host.pk)
    if asked:
        raise_revisions(asked)


def store_environments(report: Report) -> None:
    """Store the states of a host's environments. What it no longer knows is asked for again."""
    assert report.environments is not None
    told = {one.key: one for one in report.environments}
    rows = HostEnvironment.objects.filter(host__name=report.host).select_related("environment")
    forgotten, is_news = [], False
    for row in rows:
        one = told.get(row.environment.key)
        if one is None or one.number < row.number:
            if one is None and row.state in _ANSWERED:
                forgotten.append(row)
        elif changed := _changed(row, one):
            is_news |= "state" in changed
            HostEnvironment.objects.filter(pk=row.pk, number=one.number).update(**changed)
    if forgotten:
        _forget(forgotten)
    if is_news:
        wake_scheduler()


def _changed(row: HostEnvironment, told: EnvironmentState) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "state": told.state,
        "digest": told.digest,
        "why": told.why if told.state == "failed" else "",
        "size_bytes": told.size_bytes,
        "memory_bytes": told.memory_bytes,
    }
    changed = {name: value for name, value in columns.items() if getattr(row, name) != value}
    return changed | ({"since": timezone.now()} if "state" in changed else {})


@transaction.atomic
def _forget(rows: Collection[HostEnvironment]) -> None:
    live.hold(CLUSTER)
    for row in rows:
        _ask_again(row, state=_State.ASKED, since=timezone.now(), is_fresh=False)
    raise_revisions({row.host_id for row in rows})


@transaction.atomic
def forget_unused() -> None:
    """Delete environments that no training has used for a week, unless they are kept or have a name."""
    recent = JobRun.objects.filter(environment=OuterRef("pk")).filter(
        Q(job__state__in=ACTIVE) | Q(job__submitted_at__gte=timezone.now() - _KEPT)
    )
    forget(RequiredEnvironment.objects.filter(~Exists(recent), is_pinned=False, names=None))


def forget(unused: QuerySet[RequiredEnvironment]) -> None:
    """Delete environments, within the caller's transaction, and have hosts remove them."""
    live.hold(CLUSTER)
    gone = [row.pk for row in unused]
    hosts = set(HostEnvironment.objects.filter(environment__in=gone).values_list("host", flat=True))
    RequiredEnvironment.objects.filter(pk__in=gone).delete()
    if hosts:
        raise_revisions(hosts)

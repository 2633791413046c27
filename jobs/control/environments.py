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
from jobs.control.environment_states import is_kept
from jobs.control.lifecycle import raise_revisions
from jobs.files.job_folder import job_folder
from jobs.models import HostEnvironment, JobRun, RequiredEnvironment
from jobs.states import TERMINAL, JobState
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
#: Time after its last training during which hosts keep an environment that nobody has pinned.
_KEPT = timedelta(days=7)


def ask_for(wanted: Mapping[int, Collection[str]]) -> None:
    """Ask hosts for the environments of jobs, unless they were asked. wanted: job -> names of hosts.

    A build that failed is tried again for a job that was submitted later.
    """
    if not wanted:
        return
    runs = JobRun.objects.filter(job__in=wanted, required__isnull=False).select_related(
        "job__owner", "job__model__model"
    )
    names = {name for names in wanted.values() for name in names}
    known = {
        (row.environment_id, row.host.name): row
        for row in HostEnvironment.objects.filter(host__name__in=names, environment__runs__in=runs).select_related(
            "host"
        )
    }
    asking: dict[tuple[int, str], JobRun] = {}
    for run in runs.order_by("job"):
        assert run.required_id is not None
        for name in wanted[run.job_id]:
            row = known.get((run.required_id, name))
            waits_since = run.job.submitted_at if run.job.state == JobState.PENDING else None
            if row is None or (row.state == _State.FAILED and waits_since is not None and waits_since > row.since):
                asking.setdefault((run.required_id, name), run)
    if asking:
        _ask(asking)


@transaction.atomic
def _ask(asking: Mapping[tuple[int, str], JobRun]) -> None:
    """Ask hosts. asking: environment and host -> run whose folder gets the output of the build."""
    live.hold(CLUSTER)
    hosts = {host.name: host for host in Host.objects.filter(name__in={name for _, name in asking})}
    asked = set[int]()
    for (environment, name), run in asking.items():
        if (host := hosts.get(name)) is None:
            continue
        log = job_folder(run.job).attempt(run.attempt + (run.job.state == JobState.PENDING)) / "log"
        columns = {
            "state": _State.ASKED,
            "since": timezone.now(),
            "log": str(log / f"environment@{name}" / "stdout"),
        }
        row, is_new = HostEnvironment.objects.get_or_create(host=host, environment_id=environment, defaults=columns)
        if not is_new:
            _ask_again(row, **columns)
        asked.add(host.pk)
    raise_revisions(asked)


def _ask_again(row: HostEnvironment, **columns: Any) -> None:
    # Nobody has asked since the row was read, or this request would undo the newer one.
    rows = HostEnvironment.objects.filter(pk=row.pk, number=row.number)
    rows.update(number=F("number") + 1, why="", **{"is_fresh": False, **columns})


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


def store_environments(host: Host, report: Report) -> None:
    """Store the states of a host's environments. What it no longer has is asked for again if it is to stay."""
    assert report.environments is not None
    if report.boot != host.boot or report.at < host.reported_at:
        return  # newer reports have been taken before this one
    told = {one.key: one for one in report.environments}
    rows = HostEnvironment.objects.filter(host=host).select_related("environment").defer("environment__lines")
    forgotten, is_news = [], False
    for row in rows:
        one = told.get(row.environment.key)
        if one is None:
            # A host that has carried out all requests and does not know this one has forgotten it.
            is_lost = row.state != _State.ASKED or report.applied_revision >= host.desired_revision
            forgotten += [row] if is_lost else []
        elif one.number >= row.number and (changed := _changed(row, one)):
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
    """Ask a host again for what it has forgotten or lost; what need not stay there is forgotten, too."""
    live.hold(CLUSTER)
    kept = {*HostEnvironment.objects.filter(is_kept(), pk__in=[row.pk for row in rows]).values_list("pk", flat=True)}
    for row in rows:
        if row.pk in kept:
            _ask_again(row, state=_State.ASKED, since=timezone.now())
        else:
            HostEnvironment.objects.filter(pk=row.pk, number=row.number).delete()
    raise_revisions({row.host_id for row in rows})


@transaction.atomic
def forget_unused() -> None:
    """Delete environments that no training has used for a week, unless they are kept or have a name."""
    recent = JobRun.objects.filter(required=OuterRef("pk")).filter(
        ~Q(job__state__in=TERMINAL) | Q(job__submitted_at__gte=timezone.now() - _KEPT)
    )
    forget(RequiredEnvironment.objects.filter(~Exists(recent), is_pinned=False, names=None))


def forget(unused: QuerySet[RequiredEnvironment]) -> None:
    """Delete environments, within the caller's transaction, and have hosts remove them."""
    gone = [row.pk for row in unused.defer("lines")]
    if not gone:
        return
    live.hold(CLUSTER)
    hosts = set(HostEnvironment.objects.filter(environment__in=gone).values_list("host", flat=True))
    RequiredEnvironment.objects.filter(pk__in=gone).delete()
    if hosts:
        raise_revisions(hosts)

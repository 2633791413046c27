"""Reading of the environments that hosts have, or are to have."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef
from tidepool.protocol import WantedEnvironment

from jobs.models import HostEnvironment, JobRun, NamedEnvironment
from jobs.states import ACTIVE
from workers.models import Host

__all__ = ["JobFacts", "Lack", "lacks_of", "wanted_environments"]

_State = HostEnvironment.State


class JobFacts(NamedTuple):
    id: int
    #: Id of the required environment; None: the job requires nothing.
    environment: int | None
    submitted_at: datetime
    waits: bool
    elastic: bool


@dataclass(frozen=True)
class Lack:
    """Hosts that lack an environment."""

    unprepared: frozenset[str]
    #: Those of them where its build has failed.
    unfit: frozenset[str]


def lacks_of(jobs: Iterable[JobFacts]) -> dict[int, Lack]:
    """Return the hosts that lack the environment of each job, for jobs that require one.

    A job that waits is let in where the build has failed if it could start nowhere else: it fails there, with the
    reason.
    """
    wanted = [job for job in jobs if job.environment is not None]
    if not wanted:
        return {}
    hosts = frozenset(Host.objects.filter(prepares=True).values_list("name", flat=True))
    known: dict[int, dict[str, tuple[str, datetime]]] = defaultdict(dict)
    rows = HostEnvironment.objects.filter(environment__in={job.environment for job in wanted}).order_by()
    for environment, host, state, since in rows.values_list("environment", "host__name", "state", "since"):
        known[environment][host] = state, since
    found = {job.id: _lack(job, hosts, known[job.environment]) for job in wanted if job.environment is not None}
    return {job: lack for job, lack in found.items() if lack.unprepared}


def _lack(job: JobFacts, hosts: frozenset[str], known: Mapping[str, tuple[str, datetime]]) -> Lack:
    ready = {host for host, (state, _) in known.items() if state == _State.READY}
    failed = {host for host, (state, since) in known.items() if state == _State.FAILED and since >= job.submitted_at}
    is_hopeless = bool(failed) and all(state == _State.FAILED for state, _ in known.values())
    if job.waits and (is_hopeless or not job.elastic):
        return Lack(hosts - ready - failed, frozenset())
    return Lack(hosts - ready, frozenset(failed & hosts))


def wanted_environments(host: str) -> list[WantedEnvironment]:
    """Return the environments that a host is to have, for its desired state."""
    used = JobRun.objects.filter(environment=OuterRef("environment"), job__state__in=ACTIVE)
    named = NamedEnvironment.objects.filter(required=OuterRef("environment"))
    rows = HostEnvironment.objects.filter(host__name=host).select_related("environment")
    return [
        WantedEnvironment(
            row.environment.key,
            row.number,
            row.environment.lines if row.state == _State.ASKED else None,
            row.log,
            row.environment.is_pinned or row.is_used or row.is_named,
            row.is_fresh,
        )
        for row in rows.annotate(is_used=Exists(used), is_named=Exists(named)).order_by("pk")
    ]

"""Reading of the environments that hosts have, or are to have."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Case, Exists, F, OuterRef, Q, TextField, When
from tidepool.protocol import WantedEnvironment

from jobs.models import HostEnvironment, JobRun, NamedEnvironment
from jobs.states import TERMINAL
from workers.models import Host

__all__ = ["JobFacts", "Lack", "is_kept", "lacks_of", "wanted_environments"]

_State = HostEnvironment.State


class JobFacts(NamedTuple):
    id: int
    #: Id of the required environment; None: the job requires nothing.
    environment: int | None
    submitted_at: datetime
    waits: bool


@dataclass(frozen=True)
class Lack:
    """Hosts that lack an environment."""

    unprepared: frozenset[str]
    #: Hosts of `unprepared` where its build has failed.
    unfit: frozenset[str]


def lacks_of(jobs: Iterable[JobFacts]) -> dict[int, Lack]:
    """Return the hosts that lack the environment of each job, for jobs that require one."""
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
    # For a job that was submitted after it, a build that has failed is tried again.
    failed = {
        host
        for host, (state, since) in known.items()
        if state == _State.FAILED and (since >= job.submitted_at or not job.waits)
    }
    return Lack(hosts - ready, frozenset(failed & hosts))


def is_kept() -> Q:
    """Return the condition of a host's environment that stays although no job on the host uses it."""
    used = JobRun.objects.filter(required=OuterRef("environment")).exclude(job__state__in=TERMINAL)
    named = NamedEnvironment.objects.filter(required=OuterRef("environment"))
    return Q(environment__is_pinned=True) | Q(Exists(used)) | Q(Exists(named))


def wanted_environments(host: str) -> list[WantedEnvironment]:
    """Return the environments that a host is to have, for its desired state."""
    rows = HostEnvironment.objects.filter(host__name=host).annotate(
        stays=Case(When(is_kept(), then=True), default=False),
        # The lines may be very many, and a host that has answered knows them.
        lines=Case(When(state=_State.ASKED, then=F("environment__lines")), default=None, output_field=TextField()),
    )
    columns = ("environment__key", "number", "lines", "log", "stays", "is_fresh")
    return [WantedEnvironment(*row) for row in rows.order_by("pk").values_list(*columns)]

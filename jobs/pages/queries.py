"""Queries of pages about jobs; pages fetch the same shapes again when their live chain breaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from core.charts import Band, Step
from core.live import CLUSTER, current_seqs, job_topic, without_nan
from core.pages import or_404
from jobs.files.logs import first_written
from jobs.insight.curves import as_curves, thinned_metrics
from jobs.insight.curves_figure import Curve
from jobs.messages import ANOTHER_USERS_TRAINING
from jobs.models import AllocationPoint, InstanceGroup, Job
from jobs.queries.jobs import (
    allocation_as_json,
    event_list,
    held_before,
    job_as_json,
    slot_map,
    visible_jobs,
)
from jobs.states import HOLDING, JobState
from models_registry.models import RegisteredModel

__all__ = [
    "CHART_WINDOW",
    "ClusterPage",
    "JobPage",
    "cluster_live",
    "cluster_page",
    "job_live",
    "job_or_404",
    "job_page",
    "jobs_using",
    "models_proposing",
    "usable_groups",
]

#: How far back the overview's chart can be turned.
CHART_WINDOW = timedelta(hours=6)
#: Of more changes than these the chart has the newest, and begins later.
MAX_CHART_POINTS = 3000
MAX_ACTIVE_JOBS = 50
_MAX_USING = 20
_OF_RUN = ("slots", "target_slots", "progress")
_CLUSTER_FIELDS = ("state", "min_slots", "max_slots", "priority", *_OF_RUN)

User = AbstractBaseUser | AnonymousUser


@dataclass
class ClusterPage:
    """The contents of the overview."""

    live: dict[str, Any]
    hosts: list[dict[str, Any]]
    bands: list[Band]
    running: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)

    @property
    def capacity(self) -> int:
        """Number of slots of the present hosts."""
        return sum(len(host["slots"]) for host in self.hosts)

    @property
    def used(self) -> int:
        return sum(slot["job"] is not None for host in self.hosts for slot in host["slots"])

    @property
    def running_count(self) -> int:
        return sum(job["state"] in HOLDING for job in self.live["state"]["jobs"].values())

    @property
    def waiting_count(self) -> int:
        return sum(job["state"] == JobState.PENDING for job in self.live["state"]["jobs"].values())

    @property
    def utilisation_words(self) -> str:
        """Mean utilisation of the held GPUs that report it."""
        held = [slot for host in self.hosts for slot in host["slots"] if slot["job"] is not None]
        told = [slot["utilisation_percent"] for slot in held if slot["utilisation_percent"] is not None]
        return f"{sum(told) / len(told):.0f} %" if told else "–"


@dataclass(frozen=True)
class JobPage:
    live: dict[str, Any]
    band: Band
    curves: dict[str, Curve]


def job_or_404(user: User, job_id: int) -> Job:
    return or_404(visible_jobs(user).filter(pk=job_id).first())


def jobs_using(user: User, **version: Any) -> list[Job]:
    """Return the viewer's newest trainings with any version of a dataset or model: `dataset=` or `model=`."""
    [(kind, row)] = version.items()
    # First the keys, in the order of an index; the wide rows are read of those that are shown.
    using = visible_jobs(user).select_related(None).filter(**{f"{kind}__in": row.versions.all()}, validation=None)
    keys = list(using.order_by("-submitted_at", "-id").values_list("pk", flat=True)[:_MAX_USING])
    return list(visible_jobs(user).filter(pk__in=keys).order_by("-submitted_at", "-id"))


def models_proposing(dataset: str) -> QuerySet[RegisteredModel]:
    """Return the models that have this dataset as their default."""
    return RegisteredModel.objects.filter(versions__default_dataset=dataset).distinct().order_by("name")[:20]


def cluster_page(user: User) -> ClusterPage:
    # The numbers first: what is published meanwhile comes again, and changes nothing.
    seq, job_seqs = current_seqs([CLUSTER])[CLUSTER], _job_seqs(user)
    hosts = [host for host in slot_map(user) if host["state"] != "OFFLINE"]
    points = _recent_allocation(timezone.now() - CHART_WINDOW)
    jobs = _not_over(*_CLUSTER_FIELDS, "name")
    mine = _names(user, points) | {job["pk"]: job["name"] for job in jobs if _sees(user, job)}
    active = _active_jobs(user, jobs)
    live = {
        "seq": seq,
        "state": {"slots": _slots(hosts), "jobs": _cluster_jobs(jobs), "hosts": _hosts(hosts)},
        "append": {"allocation": [_point(point, point.job_id in mine) for point in points]},
        "labels": {str(job): name for job, name in mine.items()},
        "job_seqs": job_seqs,
    }
    return ClusterPage(
        live=live,
        hosts=hosts,
        bands=_bands(points, mine),
        running=[job for job in active if job.state in HOLDING],
        waiting=[job for job in active if job.state not in HOLDING],
    )


def cluster_live(user: User) -> dict[str, Any]:
    return cluster_page(user).live


def job_live(job: Job) -> dict[str, Any]:
    """Return a job's page as JSON: `state` and `append` have the shape of the live events of its topic."""
    live = _without_metrics(job)
    live["append"]["metrics"] = [point for thinned in thinned_metrics(job).values() for point in thinned.points]
    return live


def job_page(job: Job) -> JobPage:
    live = _without_metrics(job)  # the page's figure has them
    return JobPage(live, _job_band(job, live), as_curves(thinned_metrics(job)))


def _without_metrics(job: Job) -> dict[str, Any]:
    # The number first: what is published meanwhile comes again, and changes nothing.
    topic = job_topic(job.pk)
    seq = current_seqs([topic])[topic]
    points = AllocationPoint.objects.filter(job=job).order_by("at", "id")
    return {
        "seq": seq,
        "state": job_as_json(job),
        "append": {
            "allocation": [{"job": job.pk, **allocation_as_json(point)} for point in points],
            "metrics": [],
            "events": event_list(job),
        },
        "log": first_written(job),
    }


def usable_groups(user: User) -> list[InstanceGroup]:
    """Return the groups that the user may submit to now: a group without members is open to everybody."""
    groups = InstanceGroup.objects.filter(state=InstanceGroup.State.STARTED).order_by("name")
    if not getattr(user, "is_staff", False):
        groups = groups.filter(Q(members=None) | Q(members=user.pk)).distinct()
    return list(groups)


def _job_band(job: Job, live: dict[str, Any]) -> Band:
    steps = [
        Step(datetime.fromisoformat(point["at"]), point["slots"], point["reason"]["text"], point["pause_ms"])
        for point in live["append"]["allocation"]
    ]
    return Band(job.pk, job.name, steps)


def _not_over(*columns: str) -> list[dict[str, Any]]:
    """Everybody's jobs that are not over, the oldest first. By the small index of them, however many are over: asked
    for those of one owner, a database may well go through all that the owner ever had."""
    jobs = Job.objects.filter(finished_at__isnull=True).order_by("submitted_at", "id")
    of_job = [name for name in columns if name not in _OF_RUN]
    return list(
        jobs.values("pk", "owner_id", *of_job, **{name: F(f"run__{name}") for name in columns if name in _OF_RUN})
    )


def _sees(user: User, job: Mapping[str, Any]) -> bool:
    return getattr(user, "is_staff", False) or job["owner_id"] == user.pk


def _active_jobs(user: User, jobs: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Return the viewer's active jobs: first those that hold GPUs, then those that wait, in the order of the queue."""
    line = sorted((job for job in jobs if _sees(user, job)), key=lambda job: -job["priority"])
    numbers = [job["pk"] for job in line[:MAX_ACTIVE_JOBS]]
    rows = visible_jobs(user).filter(pk__in=numbers).order_by("-priority", "submitted_at", "id")
    return sorted(rows, key=lambda job: job.state not in HOLDING)


def _names(user: User, points: Iterable[AllocationPoint]) -> dict[int, str]:
    """Return the names of the jobs of these points, as far as the user may see them."""
    jobs = visible_jobs(user).select_related(None).order_by().filter(pk__in={point.job_id for point in points})
    return dict(jobs.values_list("pk", "name"))


def _job_seqs(user: User) -> dict[str, int]:
    newest = [job["pk"] for job in _not_over() if _sees(user, job)][-MAX_ACTIVE_JOBS:]
    topics = {job_topic(number): str(number) for number in newest}
    return {topics[topic]: seq for topic, seq in current_seqs(topics).items()}


def _recent_allocation(since: datetime) -> list[AllocationPoint]:
    """Return every change since then and what each job had before, at a cost that does not grow with finished jobs."""
    newest = AllocationPoint.objects.filter(at__gte=since).order_by("-at", "-id")
    points = list(newest[:MAX_CHART_POINTS])[::-1]
    if len(points) == MAX_CHART_POINTS:
        since = points[0].at
    return [*held_before(since), *points]


def _point(point: AllocationPoint, visible: bool) -> dict[str, Any]:
    values = {"job": point.job_id, **allocation_as_json(point)}
    if not visible:
        values["reason"] = {"code": values["reason"]["code"], "params": {}, "text": ""}
    return values


def _bands(points: Iterable[AllocationPoint], mine: dict[int, str]) -> list[Band]:
    steps: dict[int, list[Step]] = {}
    for point in points:
        text = point.reason_text if point.job_id in mine else ""
        steps.setdefault(point.job_id, []).append(Step(point.at, point.slots, text, point.pause_ms))
    return [Band(job, mine.get(job, ANOTHER_USERS_TRAINING), steps[job]) for job in sorted(steps)]


def _cluster_jobs(jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the jobs by number, without what only their owner may know."""
    return {str(job["pk"]): without_nan({name: job[name] for name in _CLUSTER_FIELDS}) for job in jobs}


def _slots(hosts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    shown = ("job", "vacating", "utilisation_percent")
    return {slot["key"]: {name: slot[name] for name in shown} for host in hosts for slot in host["slots"]}


def _hosts(hosts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {host["host"]: {"state": host["state"], "virtual": host["virtual"]} for host in hosts}

"""Queries of the overview, which fetches the same shape again when its live chain breaks, and of several pages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from core.charts import Band, Step
from core.live import CLUSTER, current_seqs, job_topic, without_nan
from core.pages import or_404
from core.roles import Asking, is_cluster_admin
from jobs.insight.cluster import host_slots
from jobs.messages import ANOTHER_USERS_TRAINING
from jobs.models import AllocationPoint, InstanceGroup, Job
from jobs.queries.jobs import held_before, visible_jobs
from jobs.queries.serializers import AllocationOutput, as_json
from jobs.states import HOLDING, JobState
from models_registry.models import RegisteredModel

__all__ = [
    "CHART_WINDOW",
    "ClusterPage",
    "cluster_live",
    "cluster_page",
    "job_or_404",
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
#: What everybody may know of a job, of its run and of a slot.
_OF_JOB = ("state", "min_slots", "max_slots", "priority")
_OF_RUN = {name: F(f"run__{name}") for name in ("slots", "target_slots", "progress")}
_OF_SLOT = ("job", "vacating", "utilisation_percent")


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


def job_or_404(user: Asking, job_id: int) -> Job:
    return or_404(visible_jobs(user).filter(pk=job_id).first())


def jobs_using(user: Asking, **version: Any) -> list[Job]:
    """Return the viewer's newest trainings with any version of a dataset or model: `dataset=` or `model=`."""
    [(kind, row)] = version.items()
    # First the keys, in the order of an index; the wide rows are read of those that are shown.
    using = visible_jobs(user).select_related(None).filter(**{f"{kind}__in": row.versions.all()}, validation=None)
    keys = list(using.order_by("-submitted_at", "-id").values_list("pk", flat=True)[:_MAX_USING])
    return list(visible_jobs(user).filter(pk__in=keys).order_by("-submitted_at", "-id"))


def models_proposing(dataset: str) -> QuerySet[RegisteredModel]:
    """Return the models that have this dataset as their default."""
    return RegisteredModel.objects.filter(versions__default_dataset=dataset).distinct().order_by("name")[:20]


def cluster_page(user: Asking) -> ClusterPage:
    # The numbers first: what is published meanwhile comes again, and changes nothing.
    seq = current_seqs([CLUSTER])[CLUSTER]
    newest = [pk for pk, owner in _not_over().values_list("pk", "owner_id") if _sees(user, owner)][-MAX_ACTIVE_JOBS:]
    topics = {job_topic(number): str(number) for number in newest}
    job_seqs = {topics[topic]: seq for topic, seq in current_seqs(topics).items()}
    hosts = [host for host in host_slots(user) if host["state"] != "OFFLINE"]
    points = _recent_allocation(timezone.now() - CHART_WINDOW)
    jobs = list(_not_over().values("pk", "owner_id", "name", *_OF_JOB, **_OF_RUN))
    readable = visible_jobs(user).select_related(None).order_by().filter(pk__in={point.job_id for point in points})
    mine = dict(readable.values_list("pk", "name"))
    mine |= {job["pk"]: job["name"] for job in jobs if _sees(user, job["owner_id"])}
    active = _active_jobs(user, jobs)
    slots = {slot["key"]: {name: slot[name] for name in _OF_SLOT} for host in hosts for slot in host["slots"]}
    live = {
        "seq": seq,
        "state": {
            "slots": slots,
            # Without what only their owner may know.
            "jobs": {str(job["pk"]): without_nan({name: job[name] for name in (*_OF_JOB, *_OF_RUN)}) for job in jobs},
            "hosts": {host["host"]: {"state": host["state"], "virtual": host["virtual"]} for host in hosts},
        },
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


def cluster_live(user: Asking) -> dict[str, Any]:
    return cluster_page(user).live


def usable_groups(user: Asking) -> list[InstanceGroup]:
    """Return the groups that the user may submit to now: a group without members is open to everybody."""
    groups = InstanceGroup.objects.filter(state=InstanceGroup.State.STARTED).order_by("name")
    if not is_cluster_admin(user):
        groups = groups.filter(Q(members=None) | Q(members=user.pk)).distinct()
    return list(groups)


def _not_over() -> QuerySet[Job]:
    """Everybody's jobs that are not over, the oldest first. By the small index of them, however many are over: asked
    for those of one owner, a database may well go through all that the owner ever had."""
    return Job.objects.filter(finished_at__isnull=True).order_by("submitted_at", "id")


def _sees(user: Asking, owner: int) -> bool:
    return is_cluster_admin(user) or owner == user.pk


def _active_jobs(user: Asking, jobs: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Return the viewer's active jobs: first those that hold GPUs, then those that wait, in the order of the queue."""
    line = sorted((job for job in jobs if _sees(user, job["owner_id"])), key=lambda job: -job["priority"])
    numbers = [job["pk"] for job in line[:MAX_ACTIVE_JOBS]]
    rows = visible_jobs(user).filter(pk__in=numbers).order_by("-priority", "submitted_at", "id")
    return sorted(rows, key=lambda job: job.state not in HOLDING)


def _recent_allocation(since: datetime) -> list[AllocationPoint]:
    """Return every change since then and what each job had before, at a cost that does not grow with finished jobs."""
    newest = AllocationPoint.objects.filter(at__gte=since).order_by("-at", "-id")
    points = list(newest[:MAX_CHART_POINTS])[::-1]
    if len(points) == MAX_CHART_POINTS:
        since = points[0].at
    return [*held_before(since), *points]


def _point(point: AllocationPoint, visible: bool) -> dict[str, Any]:
    values = {"job": point.job_id, **as_json(AllocationOutput, point)}
    if not visible:
        values["reason"] = {"code": values["reason"]["code"], "params": {}, "text": ""}
    return values


def _bands(points: Iterable[AllocationPoint], mine: dict[int, str]) -> list[Band]:
    steps: dict[int, list[Step]] = {}
    for point in points:
        text = point.reason_text if point.job_id in mine else ""
        steps.setdefault(point.job_id, []).append(Step(point.at, point.slots, text, point.pause_ms))
    return [Band(job, mine.get(job, ANOTHER_USERS_TRAINING), steps[job]) for job in sorted(steps)]

"""Queries about jobs for pages, the API and the scheduler. None of them writes."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import OuterRef, Q, QuerySet, Subquery

from core.errors import NotFound
from core.roles import Asking, is_cluster_admin
from jobs.models import AllocationPoint, Job, JobEvent, JobTag, Rank, Validation
from jobs.permissions import Verb, refusal
from jobs.states import TERMINAL, UNDOABLE, JobState
from models_registry.models import RegisteredModel
from workers.models import Slot

__all__ = [
    "allocation_series",
    "changes_of",
    "event_list",
    "get_visible_job",
    "held_before",
    "known_tags",
    "own_tags",
    "rank_list",
    "undoable_changes",
    "unknown_job",
    "validation_problem",
    "validations_of_job",
    "validations_of_model",
    "visible_jobs",
]


def visible_jobs(user: Asking) -> QuerySet[Job]:
    """Return the user's jobs, for staff all of them, joined with the rows that lists show."""
    jobs = Job.objects.select_related("run", "owner", "model__model", "dataset__dataset", "instance_group")
    if is_cluster_admin(user):
        return jobs
    return jobs.filter(owner_id=user.pk) if user.pk else jobs.none()


def get_visible_job(user: Asking, job_id: int) -> Job:
    job = visible_jobs(user).filter(pk=job_id).first()
    if job is None:
        raise unknown_job(job_id)
    return job


def known_tags(user: Asking) -> QuerySet[JobTag, str]:
    """Return the distinct tags of the jobs that the user may see."""
    if not is_cluster_admin(user):
        return own_tags(user)
    return JobTag.objects.order_by("name").values_list("name", flat=True).distinct()


def own_tags(user: Asking) -> QuerySet[JobTag, str]:
    """Return the distinct tags of the user's own jobs."""
    return JobTag.objects.filter(job__owner_id=user.pk).order_by("name").values_list("name", flat=True).distinct()


def unknown_job(job_id: int) -> NotFound:
    return NotFound(f"Training {job_id} not found: look it up in the list of trainings.")


def held_before(moment: datetime) -> QuerySet[AllocationPoint]:
    """Return the last change before the moment of each job that had GPUs then, without reading other jobs."""
    before = AllocationPoint.objects.filter(job=OuterRef("pk"), at__lt=moment).order_by("-at", "-id")
    started = Job.objects.filter(started_at__lt=moment).order_by().annotate(last=Subquery(before.values("pk")[:1]))
    # Two queries, each with its index; for both conditions at once, a database may read all jobs.
    training, ended = (started.filter(about) for about in (Q(finished_at__isnull=True), Q(finished_at__gte=moment)))
    last = training.values("last").union(ended.values("last"))
    return AllocationPoint.objects.filter(pk__in=last, slots__gt=0).order_by("at", "id")


def rank_list(job: Job) -> list[Rank]:
    """Return all processes of the job; `gpu` is the slot of a live one, with its reading."""
    ranks = list(Rank.objects.filter(job=job).order_by("attempt", "id"))
    hosts = {rank.host for rank in ranks if not rank.exit}
    slots = Slot.objects.filter(host__name__in=hosts).select_related("host", "reading")
    gpus = {(slot.host.name, slot.index): slot for slot in slots}
    for rank in ranks:
        rank.gpu = None if rank.exit else gpus.get((rank.host, rank.slot))  # type: ignore[attr-defined]
    return ranks


def allocation_series(job: Job) -> QuerySet[AllocationPoint]:
    """Return the job's world size over time: each point holds until the next one."""
    return AllocationPoint.objects.filter(job=job).order_by("at", "id")


def event_list(job: Job) -> QuerySet[JobEvent]:
    return JobEvent.objects.filter(job=job).order_by("seq")


def changes_of(jobs: Iterable[Job]) -> dict[int, list[JobEvent]]:
    """Return job -> events of undoable changes, the oldest first."""
    found: dict[int, list[JobEvent]] = {job.pk: [] for job in jobs}
    changes = JobEvent.objects.filter(job__in=found, reason__in=UNDOABLE.values(), detail__has_key="old")
    for event in changes.order_by("seq"):
        found[event.job_id].append(event)
    return found


def undoable_changes(job: Job) -> list[JobEvent]:
    """Return the newest change of each undoable column whose value is still in effect."""
    newest = {event.detail["field"]: event for event in changes_of([job])[job.pk]}
    if refusal(Verb.CHANGE_START, job.state):
        newest.pop("min_slots", None)
    return [event for field, event in newest.items() if event.detail["new"] == getattr(job, field)]


def validations_of_model(user: Asking, model: RegisteredModel) -> QuerySet[Validation]:
    """Return the validations, by trainings that the user may see, of any version of the model, the newest first."""
    return _validations().filter(trained__in=visible_jobs(user), trained__model__model=model)


def validations_of_job(trained: Job) -> QuerySet[Validation]:
    """Return the validations of a training, the newest first. The caller checks that the user may see the training."""
    return _validations().filter(trained=trained)


def validation_problem(validation: Validation) -> str | None:
    """Return why a finished run has no result; None if it has one or still runs."""
    job = validation.job
    if validation.result or job.state not in TERMINAL:
        return None
    if job.state == JobState.SUCCEEDED:
        return "The run succeeded without a valid result: its script ended before session.epochs."
    return job.error.get("message") or job.reason_text


def _validations() -> QuerySet[Validation]:
    return Validation.objects.select_related(
        "job__run", "job__model__model", "job__dataset__dataset", "job__owner", "trained__model"
    ).order_by("-job_id")

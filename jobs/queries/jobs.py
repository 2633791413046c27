"""What pages, the API and the scheduler read about jobs. Nothing here writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import OuterRef, Q, QuerySet, Subquery

from core.errors import NotFound
from core.live import without_nan
from core.time import iso
from jobs.messages import ANOTHER_USERS_TRAINING
from jobs.models import AllocationPoint, Checkpoint, Job, JobEvent, MetricPoint, Rank, SlotClaim
from jobs.permissions import Verb, refusal
from jobs.queries.metrics import metric_as_json, thinned_points
from jobs.states import UNDOABLE, Reason
from workers.models import Slot
from workers.queries import slots

__all__ = [
    "allocation_as_json",
    "allocation_series",
    "changed_field",
    "changes_of",
    "event_as_json",
    "event_list",
    "get_visible_job",
    "held_before",
    "job_as_json",
    "job_state_as_json",
    "metric_names",
    "metric_series",
    "rank_list",
    "slot_map",
    "undoable_changes",
    "usable_checkpoints",
    "visible_jobs",
]

User = AbstractBaseUser | AnonymousUser


def visible_jobs(user: User) -> QuerySet[Job]:
    """One's own jobs; for staff, everybody's. With what a list shows already joined."""
    jobs = Job.objects.select_related("run", "owner", "model__model", "dataset__dataset", "instance_group")
    if getattr(user, "is_staff", False):
        return jobs
    return jobs.filter(owner_id=user.pk) if user.pk else jobs.none()


def get_visible_job(user: User, job_id: int) -> Job:
    job = visible_jobs(user).filter(pk=job_id).first()
    if job is None:
        raise NotFound(f"There is no job {job_id} that you may see: look it up in the list of jobs.")
    return job


def job_as_json(job: Job) -> dict[str, Any]:
    """The job as the API and live events show it."""
    values: dict[str, Any] = without_nan(
        {
            "id": job.pk,
            "name": job.name,
            "owner": job.owner.get_username(),
            "model": job.model.model.name,
            "dataset": job.dataset.dataset.name,
            "instance_group": job.instance_group.name,
            **job_state_as_json(job),
            "exactness": job.exactness,
            "virtual_ranks": job.virtual_ranks,
            "submitted_at": iso(job.submitted_at),
        }
    )
    return values


def job_state_as_json(job: Job) -> dict[str, Any]:
    """The fields of a job that change after it was submitted. They need no other row."""
    values: dict[str, Any] = without_nan(
        {
            "state": str(job.state),
            "reason": {"code": str(job.reason_code), "params": job.reason_params, "text": job.reason_text},
            "min_slots": job.min_slots,
            "max_slots": job.max_slots,
            "slots": job.run.slots,
            "target_slots": job.run.target_slots,
            "priority": job.priority,
            "attempt": job.run.attempt,
            "generation": job.run.generation,
            "step": job.run.step,
            "epoch": job.run.epoch,
            "progress": job.run.progress,
            "final_metrics": job.run.final_metrics,
            "error": job.run.error or None,
            "started_at": iso(job.started_at),
            "finished_at": iso(job.finished_at),
        }
    )
    return values


def allocation_as_json(point: AllocationPoint) -> dict[str, Any]:
    return {
        "at": iso(point.at),
        "slots": point.slots,
        "generation": point.generation,
        "attempt": point.attempt,
        "reason": {"code": str(point.reason_code), "params": {}, "text": point.reason_text},
        "pause_ms": point.pause_ms,
    }


def allocation_series(job: Job) -> list[dict[str, Any]]:
    """The job's world size over time: each point holds until the next one."""
    return [allocation_as_json(point) for point in AllocationPoint.objects.filter(job=job).order_by("at", "id")]


def held_before(moment: datetime) -> QuerySet[AllocationPoint]:
    """Of each job that had GPUs then, its last change before; only jobs that were about then are looked at."""
    before = AllocationPoint.objects.filter(job=OuterRef("pk"), at__lt=moment).order_by("-at", "-id")
    started = Job.objects.filter(started_at__lt=moment).order_by().annotate(last=Subquery(before.values("pk")[:1]))
    # Each of the two by an index of its own; of both together a database may read all jobs.
    training, ended = (started.filter(about) for about in (Q(finished_at__isnull=True), Q(finished_at__gte=moment)))
    last = training.values("last").union(ended.values("last"))
    return AllocationPoint.objects.filter(pk__in=last, slots__gt=0).order_by("at", "id")


def metric_names(job: Job) -> list[str]:
    return list(MetricPoint.objects.filter(job=job).order_by("name").values_list("name", flat=True).distinct())


def metric_series(job: Job, name: str, every: int | None = None) -> list[dict[str, Any]]:
    """Every `every`-th value of a metric and always the last; without `every`, few enough for a chart."""
    points = MetricPoint.objects.filter(job=job, name=name).order_by("step")
    if every is None:
        return thinned_points(job, name).points
    rows = list(points.values_list("step", "epoch", "value", "at"))
    kept = rows[:: max(1, every)]
    if rows and kept[-1] != rows[-1]:
        kept.append(rows[-1])
    return [metric_as_json(name, *row) for row in kept]


def rank_list(job: Job) -> list[dict[str, Any]]:
    """Every process that trained or trains, with what the GPU of those that are there does now."""
    ranks = list(Rank.objects.filter(job=job).order_by("attempt", "id"))
    hosts = {rank.host for rank in ranks if not rank.exit}
    slots = Slot.objects.filter(host__name__in=hosts).select_related("host", "reading")
    gpus = {(slot.host.name, slot.index): _gpu_as_json(slot) for slot in slots}
    return [_rank_as_json(rank, None if rank.exit else gpus.get((rank.host, rank.slot))) for rank in ranks]


def _rank_as_json(rank: Rank, gpu: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "member_id": rank.member_id,
        "pid": rank.pid,
        "started_at": iso(datetime.fromtimestamp(rank.started_at, UTC)),
        "host": rank.host,
        "slot": rank.slot,
        "generation": rank.generation,
        "attempt": rank.attempt,
        "state": str(rank.state),
        "exit": rank.exit or None,
        "gpu": gpu,
    }


def _gpu_as_json(slot: Slot) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    return {
        "model": slot.device_model,
        "virtual": slot.virtual,
        "utilisation_percent": reading.utilisation_percent if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
    }


def event_as_json(event: JobEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "old": event.old,
        "new": event.new,
        "reason": {"code": str(event.reason), "params": event.detail, "text": event.text},
        "actor": event.actor,
        "at": iso(event.at),
    }


def event_list(job: Job) -> list[dict[str, Any]]:
    return [event_as_json(event) for event in JobEvent.objects.filter(job=job).order_by("seq")]


def slot_map(user: User) -> list[dict[str, Any]]:
    """Who holds each slot, host by host. Other users' jobs have a number and nothing else."""
    claims = {
        claim.slot_id: claim
        for claim in SlotClaim.objects.filter(released_at__isnull=True).order_by().select_related("job")
    }
    hosts: dict[str, dict[str, Any]] = {}
    for slot in slots().order_by("host__name", "index"):
        host = slot.host
        entry = hosts.setdefault(
            host.name, {"host": host.name, "state": str(host.state), "virtual": host.virtual, "slots": []}
        )
        if slot.index < host.ngpus:
            entry["slots"].append(_slot_as_json(slot, claims.get(slot.pk), user))
    return list(hosts.values())


def _slot_as_json(slot: Slot, claim: SlotClaim | None, user: User) -> dict[str, Any]:
    reading = getattr(slot, "reading", None)
    visible = claim is not None and (getattr(user, "is_staff", False) or claim.job.owner_id == user.pk)
    return {
        "key": f"{slot.host.name}:{slot.index}",
        "index": slot.index,
        "model": slot.device_model,
        "virtual": slot.virtual,
        "job": claim.job_id if claim else None,
        "label": None if claim is None else claim.job.name if visible else ANOTHER_USERS_TRAINING,
        "visible": visible,
        "vacating": claim is not None and claim.vacating_at is not None,
        "utilisation_percent": reading.utilisation_percent if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
    }


def changed_field(event: JobEvent) -> str:
    """The column that an undoable event changed. Those of former versions do not say it: their reason tells."""
    former = "priority" if event.reason == Reason.PRIORITY_CHANGED else "max_slots"
    return str(event.detail.get("field", former))


def changes_of(job: Job) -> QuerySet[JobEvent]:
    """The events that changed something and can be undone, the oldest first."""
    return JobEvent.objects.filter(job=job, reason__in=UNDOABLE.values(), detail__has_key="old").order_by("seq")


def undoable_changes(job: Job) -> list[JobEvent]:
    """The newest change of its priority and of its GPUs, where that is what it has now."""
    newest = {changed_field(event): event for event in changes_of(job)}
    if refusal(Verb.CHANGE_START, job.state):
        newest.pop("min_slots", None)
    return [event for field, event in newest.items() if event.detail["new"] == getattr(job, field)]


def usable_checkpoints(job: Job) -> QuerySet[Checkpoint]:
    """What the job's present attempt may continue from, the newest first."""
    former = Checkpoint.objects.filter(job=job, attempt__lt=job.run.attempt, problem="")
    return former.order_by("-step", "-attempt")

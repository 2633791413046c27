"""Changes of a job's two rows: under its lock, checked against the table, with an event and live news.

Every module that changes a job calls these; nothing else saves one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from core import live
from core.errors import Conflict
from jobs.models import Job, JobEvent, JobRun
from jobs.queries.serializers import EventOutput, JobStateOutput, as_json
from jobs.states import JOB_TRANSITIONS, AnyReason, JobState

__all__ = [
    "StaleJob",
    "Why",
    "change",
    "lock_job",
    "lock_jobs",
    "publish_in_cluster",
    "publish_slots",
    "record",
    "transition",
]

_RUN_COLUMNS = frozenset(field.name for field in JobRun._meta.get_fields()) - {"job"}
#: What the cluster topic shows of a job, to everybody: no names, no owners.
_CLUSTER_FIELDS = ("state", "slots", "target_slots", "min_slots", "max_slots", "priority", "progress")


class StaleJob(Conflict):
    """The job is no longer in the state that the caller saw; or the table has no such transition."""

    default_code = "stale_job"


@dataclass(frozen=True)
class Why:
    reason: AnyReason
    #: Of its sentence, see `jobs.messages.message`; JSON values only.
    params: dict[str, Any]
    #: User name, or "scheduler", "executor", "system".
    actor: str

    @property
    def columns(self) -> dict[str, Any]:
        return {"reason_code": self.reason, "reason_params": self.params}


def lock_job(job_id: int) -> Job:
    """The job as it is now, locked until the caller's transaction ends. Lock jobs in order of id, hosts after.

    The lock of its row stands for that of its run.
    """
    return _locked().get(pk=job_id)


def lock_jobs(numbers: Iterable[int]) -> list[Job]:
    """Like `lock_job`, those of these jobs that there are, in order of id."""
    return list(_locked().filter(pk__in=numbers).order_by("pk"))


def _locked() -> QuerySet[Job]:
    jobs = Job.objects.select_related(
        "run", "owner", "model__model", "dataset__dataset", "instance_group", "validation"
    )
    return jobs.select_for_update(of=("self",))


@transaction.atomic
def transition(job: Job, new: JobState, why: Why, *, explains: bool = True, **changes: Any) -> None:
    """Move `job` from the state that it was read in to `new`, together with `changes` to other columns.

    Unless `explains` is False, `why` becomes the reason that the job shows.
    """
    old = JobState(job.state)
    if (old, new) not in JOB_TRANSITIONS:
        raise StaleJob(f"Job {job.pk} is {old} and cannot become {new}: look at its page for what happened.")
    _update(job, {**changes, **(why.columns if explains else {}), "state": new})
    record(job, why, old=old)


@transaction.atomic
def change(job: Job, why: Why | None = None, **changes: Any) -> None:
    """Change columns of a job that stays in its state; `why` becomes its reason. Writes no event: see `record`."""
    _update(job, {**changes, **(why.columns if why else {})})


@transaction.atomic
def record(job: Job, why: Why, *, old: str | None = None) -> JobEvent:
    """Append an event. The caller holds the job's lock, so that numbers have neither gaps nor repeats."""
    newest = JobEvent.objects.filter(job=job).aggregate(seq=Max("seq"))["seq"] or 0
    event = JobEvent.objects.create(
        job=job,
        seq=newest + 1,
        old=job.state if old is None else old,
        new=job.state,
        reason=why.reason,
        detail={**why.params, "target_revision": job.run.target_revision},
        actor=why.actor,
        at=timezone.now(),
    )
    live.publish(live.job_topic(job.pk), "append", {"events": [as_json(EventOutput, event)]})
    return event


@transaction.atomic
def publish_in_cluster(job: Job, news: dict[str, Any]) -> None:
    """Tell everybody what they may know of a job's news."""
    shown = {name: news[name] for name in _CLUSTER_FIELDS if name in news}
    if shown:
        live.publish(live.CLUSTER, "state", {"jobs": {str(job.pk): shown}})


def publish_slots(news: dict[str, dict[str, Any]]) -> None:
    """Tell everybody what is new about slots, by `host:index`."""
    if news:
        live.publish(live.CLUSTER, "state", {"slots": news})


def _update(job: Job, changes: dict[str, Any]) -> None:
    """Write each change to the row that has the column, if the job is still in the state that it was read in."""
    before = as_json(JobStateOutput, job)
    of_run = {name: changes[name] for name in _RUN_COLUMNS & changes.keys()}
    of_job = {name: changes[name] for name in changes.keys() - _RUN_COLUMNS}
    # The run first: its condition is the state before.
    if of_run:
        _one(job, JobRun.objects.filter(job=job, job__state=job.state).update(**of_run))
    if of_job:
        _one(job, Job.objects.filter(pk=job.pk, state=job.state).update(**of_job))
    for row, columns in ((job.run, of_run), (job, of_job)):
        for name, value in columns.items():
            setattr(row, name, value)
    news = {name: value for name, value in as_json(JobStateOutput, job).items() if value != before[name]}
    if news:
        live.publish(live.job_topic(job.pk), "state", news)
        publish_in_cluster(job, news)


def _one(job: Job, updated: int) -> None:
    if updated != 1:
        raise StaleJob(f"Job {job.pk} is not {job.state} any more: load it again.")

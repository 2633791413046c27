"""Changes of a job's two rows: under its lock, checked against the table of transitions, with events and live updates.

Every module that changes a job uses these functions; no other code saves a job.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from core import live
from core.errors import Conflict
from core.row_updates import update_rows
from jobs.models import Job, JobEvent, JobRun
from jobs.queries.serializers import EventOutput, JobStateOutput, as_json, changed_fields
from jobs.states import JOB_TRANSITIONS, AnyReason, JobState
from jobs.topics import job_topic
from workers.topics import CLUSTER

__all__ = [
    "StaleJob",
    "Why",
    "change",
    "change_all",
    "lock_job",
    "lock_jobs",
    "publish_in_cluster",
    "publish_slots",
    "record",
    "record_all",
    "transition",
    "transition_all",
]

_RELATED = ("run", "owner", "model__model", "dataset__dataset", "instance_group", "validation")
_RUN_COLUMNS = frozenset(field.name for field in JobRun._meta.get_fields()) - {"job"}
#: Fields of a job that the cluster topic publishes to every user. They reveal neither names nor owners.
#: Not their progress: every step of any training would lock the topic.
_CLUSTER_FIELDS = ("state", "slots", "target_slots", "min_slots", "max_slots", "priority")


class StaleJob(Conflict):
    """The job is no longer in the state in which the caller read it, or the transition is illegal."""

    default_code = "stale_job"


@dataclass(frozen=True)
class Why:
    reason: AnyReason
    #: Params of the sentence, see `jobs.messages.message`; JSON values only.
    params: dict[str, Any]
    #: User name, or "scheduler", "executor", "system".
    actor: str

    @property
    def columns(self) -> dict[str, Any]:
        return {"reason_code": self.reason, "reason_params": self.params}


def lock_job(job_id: int) -> Job:
    """Return the job's current row, locked until the caller's transaction ends. Lock jobs in order of id, hosts after.

    The lock of the job's row covers its run.
    """
    return _locked().get(pk=job_id)


def lock_jobs(numbers: Iterable[int], related: Sequence[str] = _RELATED) -> list[Job]:
    """Like `lock_job`, for those of these jobs that exist, in order of id, with related rows as far as needed."""
    wanted = set(numbers)
    # Django builds the whole query, before it sees that no row can match.
    return list(_locked(related).filter(pk__in=wanted).order_by("pk")) if wanted else []


def _locked(related: Sequence[str] = _RELATED) -> QuerySet[Job]:
    return Job.objects.select_related(*related).select_for_update(of=("self",))


@transaction.atomic
def transition(job: Job, new: JobState, why: Why, *, explains: bool = True, **changes: Any) -> None:
    """Move `job` from the state that it was read in to `new`, together with `changes` to other columns.

    `why` becomes the reason that the job shows, unless `explains` is False.
    """
    transition_all([job], new, why, explains=explains, **changes)


@transaction.atomic
def transition_all(jobs: Sequence[Job], new: JobState, why: Why, *, explains: bool = True, **changes: Any) -> None:
    """Like `transition`, for all of these jobs in the number of queries of one."""
    old = {job.pk: JobState(job.state) for job in jobs}
    for number, state in old.items():
        if (state, new) not in JOB_TRANSITIONS:
            raise StaleJob(f"Training {number} is {state} and cannot become {new}: its page shows what happened.")
    columns = {**changes, **(why.columns if explains else {}), "state": new}
    _update([(job, columns) for job in jobs])
    record_all([(job, why) for job in jobs], old)


@transaction.atomic
def change(job: Job, why: Why | None = None, **changes: Any) -> None:
    """Change columns of a job that stays in its state; `why` becomes its reason. Writes no event: see `record`."""
    _update([(job, {**changes, **(why.columns if why else {})})])


@transaction.atomic
def change_all(wanted: Sequence[tuple[Job, Mapping[str, Any]]]) -> None:
    """Like `change`, for all of these jobs, each with new values of the same columns."""
    _update(wanted)


@transaction.atomic
def record(job: Job, why: Why, *, old: str | None = None) -> JobEvent:
    """Append an event. The caller holds the job's lock, so that numbers have neither gaps nor repeats."""
    [event] = record_all([(job, why)], {} if old is None else {job.pk: old})
    return event


@transaction.atomic
def record_all(told: Sequence[tuple[Job, Why]], old: Mapping[int, str] = {}) -> list[JobEvent]:
    """Like `record`, for all of these in order; a job may occur several times. `old`: job -> state before."""
    known = JobEvent.objects.filter(job__in={job.pk for job, _ in told}).order_by()
    newest = Counter(dict(known.values_list("job").annotate(Max("seq"))))
    events, now = list[JobEvent](), timezone.now()
    for job, why in told:
        newest[job.pk] += 1
        events.append(
            JobEvent(
                job=job,
                seq=newest[job.pk],
                old=old.get(job.pk, job.state),
                new=job.state,
                reason=why.reason,
                detail={**why.params, "target_revision": job.run.target_revision},
                actor=why.actor,
                at=now,
            )
        )
    JobEvent.objects.bulk_create(events)
    news: dict[str, dict[str, Any]] = {}
    for event in events:
        news.setdefault(job_topic(event.job_id), {"events": []})["events"].append(as_json(EventOutput, event))
    live.publish_all("append", news)
    return events


def publish_in_cluster(news: Mapping[int, dict[str, Any]]) -> None:
    """Publish the changes of jobs, by number, to the cluster topic, reduced to the fields that every user may see."""
    shown = {
        str(number): known
        for number, of_job in news.items()
        if (known := {name: of_job[name] for name in _CLUSTER_FIELDS if name in of_job})
    }
    if shown:
        live.publish(CLUSTER, "state", {"jobs": shown})


def publish_slots(news: dict[str, dict[str, Any]]) -> None:
    """Publish changes of slots, by `host:index`, to every user."""
    if news:
        live.publish(CLUSTER, "state", {"slots": news})


def _update(wanted: Sequence[tuple[Job, Mapping[str, Any]]]) -> None:
    """Write each change to the row that has the column, if the job is still in the state in which it was read."""
    columns = {name for _, changes in wanted for name in changes}
    before = {job.pk: changed_fields(JobStateOutput, job, columns) for job, _ in wanted}
    by_state: dict[str, list[Job]] = defaultdict(list)
    for job, changes in wanted:
        by_state[job.state].append(job)
        for name, value in changes.items():
            setattr(job.run if name in _RUN_COLUMNS else job, name, value)
    for state, jobs in by_state.items():
        # The run first: its condition is the job's old state.
        runs = [job.run for job in jobs]
        for rows, objects, names in (
            (JobRun.objects.filter(job__state=state), runs, columns & _RUN_COLUMNS),
            (Job.objects.filter(state=state), jobs, columns - _RUN_COLUMNS),
        ):
            if names and _write(rows, objects, names) != len(jobs):
                numbers = ", ".join(str(job.pk) for job in jobs)
                raise StaleJob(f"Training {numbers} is no longer {state}: load it again.")
    news = {}
    for job, _ in wanted:
        after = changed_fields(JobStateOutput, job, columns)
        if changed := {name: value for name, value in after.items() if value != before[job.pk][name]}:
            news[job.pk] = changed
    live.publish_all("state", {job_topic(number): changed for number, changed in news.items()})
    publish_in_cluster(news)


def _write(rows: QuerySet[Any], objects: Sequence[Job | JobRun], columns: Set[str]) -> int:
    """Write these columns of the objects; returns the number of objects that are among `rows`."""
    values = [{name: getattr(one, name) for name in columns} for one in objects]
    if all(same == values[0] for same in values):
        return rows.filter(pk__in=[one.pk for one in objects]).update(**values[0])
    return update_rows(rows, objects, columns)

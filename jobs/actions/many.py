"""What owners and administrators ask of many jobs at once: cancel, change the priority, undo that.

One that refuses does not hold up the others. They share a transaction, so that hosts and scheduler hear of all of
them together, and nobody waits for a commit per job.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.db import transaction

from core.errors import UserError, field_error
from jobs.actions.checks import Problems, check_priority
from jobs.actions.owner import JobChange, cancel_locked, change_locked, undo_locked
from jobs.control.lifecycle import stop_ranks
from jobs.control.transition import lock_jobs
from jobs.models import Job, JobEvent
from jobs.queries.jobs import unknown_job, visible_jobs

__all__ = ["MAX_JOBS", "Outcome", "RefusedJob", "cancel_many", "change_priority_of_many", "undo_many"]

MAX_JOBS = 1000
#: Jobs that share a transaction: reports of the hosts and the scheduler wait for no more than these.
_BATCH = 100


@dataclass(frozen=True)
class RefusedJob:
    job: int
    #: Its name; empty where the user may not know it.
    name: str
    sentence: str
    code: str


@dataclass(frozen=True)
class Outcome:
    done: list[int] = field(default_factory=list)
    refused: list[RefusedJob] = field(default_factory=list)
    #: Of those done: the events by which it can be undone.
    changes: dict[int, list[int]] = field(default_factory=dict)

    def refuse(self, number: int, name: str, error: UserError) -> None:
        self.refused.append(RefusedJob(number, name, error.message, error.code))


def cancel_many(jobs: Sequence[int], user: User) -> Outcome:
    """Stop those of these jobs for good that the user may see and that are not over."""
    stopping: list[Job] = []

    def stop(job: Job) -> list[JobEvent]:
        if cancel_locked(job, user.get_username()):
            stopping.append(job)
        return []

    def stop_their_ranks() -> None:
        stop_ranks(stopping)
        stopping.clear()

    return _each(jobs, user, stop, stop_their_ranks)


def change_priority_of_many(jobs: Sequence[int], priority: int, user: User) -> Outcome:
    problems = Problems()
    check_priority(problems, priority)
    problems.raise_if_any()
    return _each(jobs, user, lambda job: change_locked(job, JobChange(priority=priority), user.get_username()))


def undo_many(changes: Mapping[int, Sequence[int]], user: User) -> Outcome:
    """Undo what these events changed: all of it for each job, or nothing if it has been changed again since."""
    return _each(list(changes), user, lambda job: undo_locked(job, changes[job.pk], user.get_username()))


def _each(
    jobs: Sequence[int],
    user: User,
    act: Callable[[Job], list[JobEvent]],
    finally_: Callable[[], None] = lambda: None,
) -> Outcome:
    """Act on each job; call `finally_` at the end of each transaction."""
    if not jobs:
        raise field_error("jobs", "Choose at least one training.")
    if len(jobs) > MAX_JOBS:
        raise field_error("jobs", f"Choose at most {MAX_JOBS:,} trainings at once, not {len(jobs):,}.")
    outcome, numbers = Outcome(), list(dict.fromkeys(jobs))
    for at in range(0, len(numbers), _BATCH):
        with transaction.atomic():
            _batch(numbers[at : at + _BATCH], user, act, outcome)
            finally_()
    return outcome


def _batch(numbers: Sequence[int], user: User, act: Callable[[Job], list[JobEvent]], outcome: Outcome) -> None:
    visible = visible_jobs(user).select_related(None).filter(pk__in=numbers)
    jobs = {job.pk: job for job in lock_jobs(visible.values_list("pk", flat=True))}
    for number in numbers:
        job = jobs.get(number)
        if job is None:
            outcome.refuse(number, "", unknown_job(number))
            continue
        try:
            with transaction.atomic():
                events = act(job)
        except UserError as error:
            outcome.refuse(number, job.name, error)
            continue
        outcome.done.append(number)
        if events:
            outcome.changes[number] = [event.seq for event in events]

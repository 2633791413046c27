"""Bulk actions of owners and administrators: cancel jobs, change their priority, undo the change, and tag them.

A refused job does not stop the others. All share one transaction and its queries: hosts and the scheduler are
notified once, and the scheduler starts nothing that the same request is about to stop.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import prefetch_related_objects

from core.errors import UserError, field_error
from jobs.actions.job_commands import (
    CheckedChange,
    JobChange,
    cancel_locked,
    change_locked,
    check_change,
    check_undo,
    may_be_stopped,
)
from jobs.actions.submission_checks import Problems, check_priority
from jobs.actions.tags import TagChange, change_tags_locked, check_tags
from jobs.control.transition import lock_jobs
from jobs.models import Job, JobEvent
from jobs.queries.jobs import changes_of, unknown_job, visible_jobs

__all__ = ["MAX_JOBS", "Outcome", "RefusedJob", "cancel_many", "change_priority_of_many", "tag_many", "undo_many"]

MAX_JOBS = 1000

Checked = TypeVar("Checked")


@dataclass(frozen=True)
class RefusedJob:
    job: int
    #: Name of the job; "" if the user may not see the job.
    name: str
    sentence: str
    code: str


@dataclass(frozen=True)
class Outcome:
    done: list[int] = field(default_factory=list)
    refused: list[RefusedJob] = field(default_factory=list)
    #: Job -> numbers of its events, with which the change can be undone.
    changes: dict[int, list[int]] = field(default_factory=dict)


@transaction.atomic
def cancel_many(jobs: Sequence[int], user: User) -> Outcome:
    """Stop these jobs for good, if the user may see them and they are not finished."""
    chosen = _lock(jobs, user)
    stopping = chosen.allowed(lambda job: job if may_be_stopped(job) else None)
    cancel_locked([job for job in stopping if job], user.get_username())
    return chosen.outcome


@transaction.atomic
def change_priority_of_many(jobs: Sequence[int], priority: int, user: User) -> Outcome:
    problems = Problems()
    check_priority(problems, priority)
    problems.raise_if_any()
    chosen, wanted = _lock(jobs, user), JobChange(priority=priority)
    changes = chosen.allowed(lambda job: CheckedChange(job, check_change(job, wanted)))
    return chosen.changed(change_locked(changes, user.get_username()))


@transaction.atomic
def undo_many(changes: Mapping[int, Sequence[int]], user: User) -> Outcome:
    """Undo the changes of these events: for each job all of them, or none if it has been changed again since."""
    chosen = _lock(list(changes), user)
    told = changes_of(chosen.jobs.values())
    undone = chosen.allowed(lambda job: check_undo(job, changes[job.pk], told[job.pk]))
    return chosen.changed(change_locked(undone, user.get_username()))


@transaction.atomic
def tag_many(jobs: Sequence[int], wanted: TagChange, user: User) -> Outcome:
    chosen = _lock(jobs, user)
    prefetch_related_objects(list(chosen.jobs.values()), "tags")
    change_tags_locked(chosen.allowed(lambda job: check_tags(job, wanted)), wanted, user.get_username())
    return chosen.outcome


@dataclass(frozen=True)
class _Chosen:
    """The requested jobs, locked."""

    numbers: Sequence[int]
    #: Job number -> job, without jobs that the user may not see.
    jobs: Mapping[int, Job]
    outcome: Outcome = field(default_factory=Outcome)

    def allowed(self, check: Callable[[Job], Checked]) -> list[Checked]:
        """Check each job; return the results of the jobs that are not refused."""
        found = []
        for number in self.numbers:
            job = self.jobs.get(number)
            try:
                if job is None:
                    raise unknown_job(number)
                found.append(check(job))
            except UserError as error:
                refused = RefusedJob(number, job.name if job else "", error.message, error.code)
                self.outcome.refused.append(refused)
            else:
                self.outcome.done.append(number)
        return found

    def changed(self, events: Iterable[JobEvent]) -> Outcome:
        for event in events:
            self.outcome.changes.setdefault(event.job_id, []).append(event.seq)
        return self.outcome


def _lock(numbers: Sequence[int], user: User) -> _Chosen:
    if not numbers:
        raise field_error("jobs", "Select at least one training.")
    if len(numbers) > MAX_JOBS:
        raise field_error("jobs", f"Choose at most {MAX_JOBS:,} trainings at once, not {len(numbers):,}.")
    visible = visible_jobs(user).select_related(None).filter(pk__in=numbers)
    jobs = {job.pk: job for job in lock_jobs(visible.values_list("pk", flat=True))}
    return _Chosen(list(dict.fromkeys(numbers)), jobs)

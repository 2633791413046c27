"""Actions on many jobs: each job by itself, so that one that refuses does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.contrib.auth.models import User

from core.errors import UserError, field_error
from jobs.actions.change import JobChange, change_job, undo_changes
from jobs.actions.checks import Problems, check_priority
from jobs.actions.owner import cancel
from jobs.models import JobEvent
from jobs.queries.jobs import get_visible_job

__all__ = ["MAX_JOBS", "Outcome", "Refusal", "cancel_many", "change_priority_of_many", "undo_many"]

MAX_JOBS = 200


@dataclass(frozen=True)
class Refusal:
    job: int
    #: Its name; empty where the user may not know it.
    name: str
    sentence: str
    code: str


@dataclass(frozen=True)
class Outcome:
    done: list[int] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    #: Of those done: the events by which it can be undone.
    changes: dict[int, list[int]] = field(default_factory=dict)


def cancel_many(jobs: Sequence[int], user: User) -> Outcome:
    """Stop those of these jobs for good that the user may see and that are not over."""

    def stop(job_id: int) -> list[JobEvent]:
        cancel(job_id, user.get_username())
        return []

    return _each(jobs, user, stop)


def change_priority_of_many(jobs: Sequence[int], priority: int, user: User) -> Outcome:
    problems = Problems()
    check_priority(problems, priority)
    problems.raise_if_any()
    return _each(jobs, user, partial(change_job, wanted=JobChange(priority=priority), actor=user.get_username()))


def undo_many(changes: Mapping[int, Sequence[int]], user: User) -> Outcome:
    """Undo what these events changed: all of it for each job, or nothing if it has been changed again since."""
    return _each(list(changes), user, lambda job_id: undo_changes(job_id, changes[job_id], user.get_username()))


def _each(jobs: Sequence[int], user: User, act: Callable[[int], list[JobEvent]]) -> Outcome:
    if not jobs:
        raise field_error("jobs", "Choose at least one training.")
    if len(jobs) > MAX_JOBS:
        raise field_error("jobs", f"Choose at most {MAX_JOBS} trainings at once, not {len(jobs)}.")
    outcome = Outcome()
    for job_id in dict.fromkeys(jobs):
        name = ""
        try:
            name = get_visible_job(user, job_id).name
            events = act(job_id)
        except UserError as error:
            outcome.refused.append(Refusal(job_id, name, error.message, error.code))
        else:
            outcome.done.append(job_id)
            if events:
                outcome.changes[job_id] = [event.seq for event in events]
    return outcome

"""The same wish for many jobs: each by itself, so that one that refuses holds up none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.contrib.auth.models import User

from jobs.actions.checks import Problems, check_priority
from jobs.actions.owner import cancel
from jobs.actions.wishes import change_priority
from jobs.models import Job
from jobs.queries import get_visible_job
from webapp.lib.errors import UserError, field_error

__all__ = ["MAX_JOBS", "Outcome", "Refusal", "cancel_many", "change_priority_of_many"]

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


def cancel_many(jobs: Sequence[int], user: User) -> Outcome:
    """Stop these jobs for good, as far as they are the user's and not over."""
    return _each(jobs, user, partial(cancel, actor=user.get_username()))


def change_priority_of_many(jobs: Sequence[int], priority: int, user: User) -> Outcome:
    problems = Problems()
    check_priority(problems, priority)
    problems.raise_if_any()
    return _each(jobs, user, partial(change_priority, priority=priority, actor=user.get_username()))


def _each(jobs: Sequence[int], user: User, act: Callable[[int], Job]) -> Outcome:
    if not jobs:
        raise field_error("jobs", "Choose at least one training.")
    if len(jobs) > MAX_JOBS:
        raise field_error("jobs", f"Choose at most {MAX_JOBS} trainings at once, not {len(jobs)}.")
    outcome = Outcome()
    for job_id in dict.fromkeys(jobs):
        name = ""
        try:
            name = get_visible_job(user, job_id).name
            act(job_id)
        except UserError as error:
            outcome.refused.append(Refusal(job_id, name, error.message, error.code))
        else:
            outcome.done.append(job_id)
    return outcome

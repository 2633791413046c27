"""Look-ups of rows that the user may see by WMLA's identifiers, and identifiers of rows."""

from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.crypto import salted_hmac

from core.errors import NotFound, UserError
from core.text import is_storable, shown_text
from jobs.models import InstanceGroup, Job, Rank
from jobs.queries.groups import visible_groups
from jobs.queries.jobs import visible_jobs
from wmla.job_names import Identities, Submitted, job_numbers_in

__all__ = [
    "executor_of",
    "existing",
    "group_meant",
    "group_named",
    "group_of",
    "identities",
    "job_of",
    "submitted",
    "wmla_jobs",
]

Row = TypeVar("Row")
_GROUPS_NAMED = 5


def identities() -> Identities:
    """Return this installation's identities. They depend on its secret key, so they survive restarts and restores."""
    return _identities(settings.SECRET_KEY)


@lru_cache(maxsize=4)
def _identities(secret_key: str) -> Identities:
    digest = salted_hmac("wmla.identities", "", secret=secret_key, algorithm="sha256").digest()
    return Identities(UUID(bytes=digest[:16], version=5))


def submitted(job: Job) -> Submitted:
    """Return the parts of the job's identifiers. Needs the job's owner."""
    return Submitted(job.pk, job.owner.get_username(), job.submitted_at, job.dialect)


def wmla_jobs(user: User) -> QuerySet[Job]:
    """Return the jobs that the user may see, without those deleted by a WMLA client."""
    return visible_jobs(user).filter(hidden_at=None)


def job_of(user: User, identifier: str) -> Job:
    """Find a job by its id as an exec, driver or application, in either dialect. Raise NotFound for other users'
    jobs."""
    ids = identities()
    for number in job_numbers_in(identifier):
        job = wmla_jobs(user).filter(pk=number).first()
        if job is not None and identifier in ids.names_of(submitted(job)):
            return job
    raise NotFound(f"Training {shown_text(identifier)} not found: list yours with GET /execs.")


def executor_of(job: Job, identifier: str) -> Rank:
    """Find the rank of an executor's id; the number before its uuid may be outdated."""
    _, _, wanted = identifier.partition("-")
    ids = identities()
    for rank in Rank.objects.filter(job=job).order_by("-attempt", "-id"):
        if str(ids.executor_uuid(job.pk, rank.attempt, rank.member_id)) == wanted:
            return rank
    raise NotFound(f"Executor {shown_text(identifier)} not found: the list of applications has the executors of each.")


def group_of(user: User, identifier: str) -> InstanceGroup:
    """Find an instance group by sigId or name."""
    ids = identities()
    for group in visible_groups(user):
        if identifier in (group.name, ids.group_id(group.pk)):
            return group
    raise NotFound(f"Instance group {shown_text(identifier)} not found. {_others(user, identifier)}")


def group_meant(user: User, identifier: str) -> InstanceGroup:
    """Find the instance group in a body by sigId or name; WMLA returns 400, not 404, if there is none."""
    try:
        return group_of(user, identifier)
    except NotFound as error:
        raise UserError(error.message) from error


def group_named(user: User, name: str) -> InstanceGroup:
    """Find the instance group of a submission by name; WMLA returns 400, not 404, if there is none."""
    group = visible_groups(user).filter(name=name).first() if is_storable(name) else None
    if group is None:
        raise UserError(f"Instance group name {shown_text(name)} not found. {_others(user, name)}")
    return group


def existing(row: Row | None, what: str, name: str, address: str) -> Row:
    """Return the row. If it is None, raise NotFound with the URL that lists the existing rows."""
    if row is None:
        raise NotFound(f"{what} {shown_text(name)} not found: list them with GET {address}.")
    return row


def _others(user: User, name: str) -> str:
    """Return a sentence that names the existing groups."""
    names = sorted(visible_groups(user).values_list("name", flat=True))
    if not names:
        return "You may use no instance group: ask an administrator."
    near = get_close_matches(name[:64], names, n=1)
    more = f" and {len(names) - _GROUPS_NAMED} more" if len(names) > _GROUPS_NAMED else ""
    meant = f"Did you mean {near[0]}? " if near else ""
    return f"{meant}You may use {', '.join(names[:_GROUPS_NAMED])}{more}."

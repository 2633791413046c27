"""The list of jobs: what it can be filtered and sorted by, the same on the page, in the API and in a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from core.errors import UserError
from core.keyset import AFTER, BEFORE, KeysetPage, Order, keyset_page, parsed_cursor
from core.live import JOBS, jobs_topic_of
from core.time import parsed_moment
from datasets.models import DatasetVersion
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL, JobState
from models_registry.models import RegisteredModelVersion

__all__ = [
    "ACTIVE",
    "FINISHED",
    "ORDERS",
    "PERIODS",
    "JobFilter",
    "all_pages",
    "job_page_of",
    "jobs_topic",
    "list_keys",
    "parsed_filter",
]

#: In place of one state: not over, and over.
ACTIVE, FINISHED = "active", "finished"
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_CHUNK = 1000

User = AbstractBaseUser | AnonymousUser


def _text(text: str) -> str:
    if "\0" in text or any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        raise ValueError(text)
    return text


#: Each has an index (see Job.Meta).
ORDERS = {
    "newest": Order("submitted_at", descending=True, parse=parsed_moment),
    "oldest": Order("submitted_at", descending=False, parse=parsed_moment),
    "name": Order("name_folded", descending=False, parse=_text),
    "-name": Order("name_folded", descending=True, parse=_text),
    "priority": Order("priority", descending=True, parse=int),
    "-priority": Order("priority", descending=False, parse=int),
    #: Only what is over.
    "ended": Order("finished_at", descending=True, parse=parsed_moment),
}


@dataclass(frozen=True)
class JobFilter:
    """Empty: everything that the viewer may see, the newest first."""

    #: A JobState, ACTIVE or FINISHED.
    state: str = ""
    #: Part of its name, or its number.
    search: str = ""
    #: Names.
    owner: str = ""
    model: str = ""
    dataset: str = ""
    instance_group: str = ""
    #: One of PERIODS: submitted since then.
    within: str = ""
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None
    sort: str = "newest"
    #: The parameters that said so, without empty ones.
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def order(self) -> Order:
        return ORDERS[self.sort]

    @property
    def address(self) -> str:
        """Its parameters, as an address has them."""
        return urlencode(self.given)

    @property
    def is_narrowing(self) -> bool:
        return bool(set(self.given) - {"sort"}) or self.sort == "ended"


_PARAMETERS = tuple(name for name in JobFilter.__dataclass_fields__ if name != "given")
_STATES = frozenset({ACTIVE, FINISHED, *JobState})
_CHOICES: dict[str, tuple[frozenset[str], str]] = {
    "state": (_STATES, f"There is no such state: take {ACTIVE}, {FINISHED} or one of {', '.join(JobState)}."),
    "within": (frozenset(PERIODS), f"There is no such period: take one of {', '.join(PERIODS)}."),
    "sort": (frozenset(ORDERS), f"The list has no such order: take one of {', '.join(ORDERS)}."),
}
_MOMENTS = ("submitted_after", "submitted_before")


def jobs_topic(user: User) -> str:
    """The live topic on which new jobs are announced that this user may see."""
    return JOBS if getattr(user, "is_staff", False) else jobs_topic_of(user.pk or 0)


def parsed_filter(given: Mapping[str, str]) -> JobFilter:
    """The filter of an address's parameters, others left out; UserError with what is wrong with each."""
    texts = {name: text for name in _PARAMETERS if (text := given.get(name, "").strip())}
    values: dict[str, Any] = {}
    problems: dict[str, list[str]] = {}
    for name, text in texts.items():
        try:
            values[name] = _parsed(name, text)
        except ValueError as error:
            problems[name] = [str(error)]
    if problems:
        raise UserError(next(iter(problems.values()))[0], fields=problems)
    return JobFilter(**values, given=texts)


def job_page_of(user: User, wanted: JobFilter, given: Mapping[str, str], size: int) -> KeysetPage[Job]:
    """The page of the list that `after` or `before` in an address asks for."""
    cursor = parsed_cursor(wanted.order, given.get(AFTER, ""), given.get(BEFORE, ""))
    return keyset_page(list_keys(user, wanted), visible_jobs(user), wanted.order, cursor, size)


def all_pages(user: User, wanted: JobFilter) -> Iterator[Job]:
    """Every job of the list, read piece by piece."""
    keys, cursor = list_keys(user, wanted), None
    while True:
        page = keyset_page(keys, visible_jobs(user), wanted.order, cursor, _CHUNK)
        yield from page.rows
        if page.next is None:
            return
        cursor = parsed_cursor(wanted.order, page.next, "")


def _parsed(name: str, text: str) -> Any:
    if name in _MOMENTS:
        try:
            return parsed_moment(text)
        except (ValueError, OverflowError):
            raise ValueError(
                "This is no moment: write a day as 2026-03-01, or a moment as 2026-03-01T12:00Z."
            ) from None
    if name in _CHOICES and text not in _CHOICES[name][0]:
        raise ValueError(_CHOICES[name][1])
    try:
        return _text(text)
    except ValueError:
        raise ValueError("This has characters that no name has: leave them out.") from None


def list_keys(user: User, wanted: JobFilter) -> QuerySet[Job]:
    """The jobs wanted, without joins: what is compared stands in the indexes."""
    jobs = Job.objects.all()
    if not getattr(user, "is_staff", False):
        jobs = jobs.filter(owner_id=user.pk) if user.pk else jobs.none()
    return jobs.filter(_state(wanted), _referred(wanted), _submitted(wanted), _named(wanted.search))


def _state(wanted: JobFilter) -> Q:
    is_over = Q(finished_at__isnull=False)
    states = {"": Q(), ACTIVE: ~is_over, FINISHED: is_over}
    state = states[wanted.state] if wanted.state in states else Q(state=wanted.state)
    # A database that does not know what a state means takes the small index of what is not over by this.
    if wanted.state and wanted.state not in states and wanted.state not in TERMINAL:
        state &= ~is_over
    return state & is_over if wanted.sort == "ended" else state


def _referred(wanted: JobFilter) -> Q:
    found = Q()
    if wanted.owner:
        found &= Q(owner__username=wanted.owner)
    if wanted.instance_group:
        found &= Q(instance_group__name=wanted.instance_group)
    if wanted.model:
        found &= Q(model__in=RegisteredModelVersion.objects.filter(model__name=wanted.model))
    if wanted.dataset:
        found &= Q(dataset__in=DatasetVersion.objects.filter(dataset__name=wanted.dataset))
    return found


def _submitted(wanted: JobFilter) -> Q:
    found = Q()
    if wanted.within:
        found &= Q(submitted_at__gte=timezone.now() - PERIODS[wanted.within])
    if wanted.submitted_after:
        found &= Q(submitted_at__gte=wanted.submitted_after)
    if wanted.submitted_before:
        found &= Q(submitted_at__lt=wanted.submitted_before)
    return found


def _named(search: str) -> Q:
    if not search:
        return Q()
    named = Q(name_folded__contains=search.casefold())
    is_number = search.isascii() and search.isdecimal() and len(search) < 19
    return named | Q(pk=int(search)) if is_number else named

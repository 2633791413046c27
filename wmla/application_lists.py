"""Queries of WMLA's lists of applications, and the trainings that match them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from rest_framework import serializers

from core.errors import NotFound, UserError, field_error
from core.references import is_storable
from jobs.models import InstanceGroup, Job
from jobs.queries.jobs import visible_jobs
from jobs.queries.listing import JobFilter, list_keys
from jobs.states import TERMINAL, JobState
from wmla.lookup import group_of, job_of
from wmla.messages import KNOWN_WORDS, states_behind

__all__ = ["ApplicationQuery", "EngineQuery", "OutsideList", "StateQuery", "jobs_in_list"]

DEFAULT_LENGTH = 200
MAX_LENGTH = 1000
#: What a list is sorted by, in either generation's words -> column. Each goes together with the id.
_SORTED_BY = {
    "submittedtime": "submitted_at",
    "submit_time": "submitted_at",
    "endtime": "finished_at",
    "end_time": "finished_at",
    "applicationname": "name_folded",
    "name": "name_folded",
    "username": "owner__username",
    "submit_user": "owner__username",
    "applicationid": "pk",
    "id": "pk",
    "priority": "priority",
    "state": "state",
}


class OutsideList(UserError):
    """The requested part begins behind the last application."""

    status = 416
    default_code = "outside_list"


class StateQuery(serializers.Serializer[Any]):
    state = serializers.CharField(
        default="", allow_blank=True, max_length=500, help_text=f"Several with commas: {', '.join(KNOWN_WORDS)}."
    )


class EngineQuery(StateQuery):
    start = serializers.IntegerField(default=0, min_value=0, max_value=2**31 - 1, help_text="The first is 0.")
    length = serializers.IntegerField(
        default=DEFAULT_LENGTH, min_value=0, max_value=2**31 - 1, help_text=f"At most {MAX_LENGTH} are answered."
    )
    sort = serializers.CharField(
        default="", allow_blank=True, max_length=100, help_text=f"{', '.join(_SORTED_BY)}; with - the last ones first."
    )


class ApplicationQuery(EngineQuery):
    order = serializers.CharField(default="", allow_blank=True, max_length=4, help_text="asc or desc.")
    applicationid = serializers.CharField(default="", allow_blank=True, max_length=300)
    driverid = serializers.CharField(default="", allow_blank=True, max_length=300)
    applicationname = serializers.CharField(default="", allow_blank=True, max_length=255, help_text="The whole name.")
    search = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="Part of its name, or its number."
    )
    sigId = serializers.CharField(default="", allow_blank=True, max_length=300, help_text="Id or name of a group.")


@dataclass(frozen=True)
class _Span:
    start: int
    length: int
    order: tuple[str, str]


def jobs_in_list(user: User, wanted: Mapping[str, Any], group: InstanceGroup | None = None) -> list[Job]:
    """Return the trainings of this part of the list that the user may see. Raises OutsideList behind its end."""
    if not all(is_storable(text) for text in wanted.values() if isinstance(text, str)):
        raise UserError("The address has characters that no name has: leave them out.")
    span = _Span(wanted.get("start", 0), min(wanted.get("length", DEFAULT_LENGTH), MAX_LENGTH), _order(wanted))
    # Without those that one of WMLA's clients deleted, as everywhere in its interface.
    keys = list_keys(user, JobFilter({"search": wanted.get("search", "")})).filter(hidden_at=None)
    keys = keys.filter(**_states(wanted["state"]))
    if group is None and wanted.get("sigId"):
        group = group_of(user, wanted["sigId"])
    if group is not None:
        keys = keys.filter(instance_group=group)
    if wanted.get("applicationname"):
        keys = keys.filter(name=wanted["applicationname"])
    for identifier in filter(None, (wanted.get("applicationid"), wanted.get("driverid"))):
        keys = keys.filter(pk__in=_numbers_of(user, identifier))
    page = list(keys.order_by(*span.order).values_list("pk", flat=True)[span.start : span.start + span.length])
    if not page and span.start and span.length:
        raise OutsideList(f"The list has no application {span.start}: begin with a lower start.")
    rows = visible_jobs(user).in_bulk(page)
    return [rows[key] for key in page if key in rows]


def _numbers_of(user: User, identifier: str) -> list[int]:
    """Return the numbers of the jobs asked for: clients look for one, and expect an empty list without it."""
    try:
        return [job_of(user, identifier).pk]
    except NotFound:
        return []


def _states(text: str) -> dict[str, Any]:
    """Return the filter of the jobs that these words ask for."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in KNOWN_WORDS:
            raise field_error("state", f"There is no state {word[:40]!a}: take of {', '.join(KNOWN_WORDS)}.")
    if not words:
        return {}
    states: set[JobState] = set().union(*(states_behind(word) for word in words))
    wanted = {"state__in": sorted(states)}
    # A database that does not know what states mean takes the small index of what is not over by this.
    return wanted if states & TERMINAL else {**wanted, "finished_at__isnull": True}


def _order(wanted: Mapping[str, Any]) -> tuple[str, str]:
    sort, direction = wanted.get("sort", "").strip() or "-submittedtime", wanted.get("order", "").strip().lower()
    column = _SORTED_BY.get(sort.removeprefix("-").lower())
    if column is None:
        raise field_error("sort", f"The list cannot be sorted by {sort[:40]!a}: take one of {', '.join(_SORTED_BY)}.")
    if direction not in ("", "asc", "desc"):
        raise field_error("order", "The order is asc or desc.")
    sign = "-" if (direction == "desc" if direction else sort.startswith("-")) else ""
    return f"{sign}{column}", f"{sign}pk"

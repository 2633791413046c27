"""Trainings as the applications of WMLA's schedulers, Conductor's and Cloud Pak's, with driver and executors.

The driver is the training's coordinator, and its output is that of rank 0; each rank is an executor. Unmeasured values
(memory and CPU use of a training's processes) are null.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q
from django.utils import timezone
from rest_framework import serializers

from core.errors import NotFound, UserError, field_error
from core.text import is_storable
from core.time import iso
from jobs.models import Generation, InstanceGroup, Job, Rank, SlotClaim
from jobs.queries.job_list import JobFilter, list_keys
from jobs.queries.jobs import visible_jobs
from jobs.states import LIVE_RANKS, TERMINAL, JobState, RankState
from wmla.answer_fields import Flag, Json, Many, Real, Shape, Text, Whole
from wmla.identifiers import group_of, identities, job_of, submitted
from wmla.job_names import KNOWN_WORDS, Submitted, state_word, states_behind

__all__ = [
    "ApplicationOutput",
    "ApplicationQuery",
    "EngineApplicationOutput",
    "EngineQuery",
    "Executor",
    "ScheduledApplicationOutput",
    "StateQuery",
    "TotalMemory",
    "applications",
    "consumer_of",
    "executors_of",
    "jobs_in_list",
]

_MEBIBYTE = 1024**2
_NOT_MEASURED = "Always null: not measured by Tidepool."
_CONDUCTOR = "/platform/rest/conductor/v1"
_EXECUTOR_WORDS = {RankState.RUNNING: "RUNNING", RankState.STOPPING: "RUNNING", RankState.LOST: "LOST"}
_DEFAULT_LENGTH = 200
_MAX_LENGTH = 1000
#: Sort key in either dialect -> column. Ties are sorted by id.
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


@dataclass(frozen=True)
class Executor:
    """A rank with its present or last number; None if it never trained."""

    rank: Rank
    number: int | None

    @property
    def id(self) -> str:
        """Return an identifier that begins with the rank's number or, without one, its slot's, which is unique on the
        host."""
        rank = self.rank
        number = rank.slot if self.number is None else self.number
        return identities().executor_id(rank.job_id, rank.attempt, rank.member_id, number)


@dataclass
class Application:
    """A training with the resources that it holds now, and the executors of its newest attempt, also after its end."""

    job: Job
    #: Identifiers of the job, in the dialect of its submission.
    submitted: Submitted
    executors: list[Executor]
    #: (host, utilization in percent, memory in bytes) of each GPU; None: not measured.
    gpus: list[tuple[str, float | None, int | None]] = field(default_factory=list)

    @property
    def state(self) -> str:
        return state_word(self.job.state, self.submitted.dialect)

    @property
    def memory_mebibytes(self) -> int | None:
        """Sum over the GPUs that report it; None if none does."""
        measured = [used for _, _, used in self.gpus if used is not None]
        return round(sum(measured) / _MEBIBYTE) if measured or not self.gpus else None

    @property
    def utilisation_percent(self) -> float | None:
        """Sum over the GPUs: 200 for two that are fully busy."""
        measured = [percent for _, percent, _ in self.gpus if percent is not None]
        return round(sum(measured), 1) if measured or not self.gpus else None

    @property
    def minutes(self) -> float:
        """Return the minutes since the first start; 0 before it."""
        if self.job.started_at is None:
            return 0.0
        end = self.job.finished_at or timezone.now()
        return round(max(0.0, (end - self.job.started_at).total_seconds()) / 60, 4)


def applications(jobs: Sequence[Job], dialect: str | None = None) -> list[Application]:
    """Return the trainings as applications, in a fixed number of queries.

    dialect: dialect of ids and state names; None: the one in which each training was submitted.
    """
    executors = executors_of(jobs)
    found = {}
    for job in jobs:
        names = submitted(job)
        names = names if dialect is None else replace(names, dialect=dialect)
        found[job.pk] = Application(job, names, executors.get(job.pk, []))
    claims = SlotClaim.objects.open().filter(job__in=jobs).order_by()
    columns = ("slot__host__name", "slot__reading__utilisation_percent", "slot__reading__memory_used_bytes")
    for job_id, *gpu in claims.values_list("job", *columns):
        found[job_id].gpus.append(tuple(gpu))
    return list(found.values())


def executors_of(jobs: Iterable[Job]) -> dict[int, list[Executor]]:
    """Return job -> its executors in order of their numbers: the live ones, or all of a job that has ended.

    Monitoring scripts count executors, so ranks of a live training that ended in a resize are left out.
    """
    numbers = _numbers_in_newest_generation(jobs)
    found: dict[int, list[Executor]] = defaultdict(list)
    ranks = Rank.objects.filter(Q(state__in=LIVE_RANKS) | Q(job__state__in=TERMINAL), job__in=jobs)
    for rank in ranks.filter(attempt=F("job__run__attempt")).order_by("job", "id"):
        last = numbers.get((rank.job_id, rank.member_id))
        found[rank.job_id].append(Executor(rank, rank.rank if rank.rank is not None else last))
    for executors in found.values():
        executors.sort(key=lambda each: (each.rank.rank is None, each.number is None, each.number or 0, each.rank.pk))
    return found


def _numbers_in_newest_generation(jobs: Iterable[Job]) -> dict[tuple[int, str], int]:
    """Return (job, member_id) -> rank number in the newest generation. The rows of ended ranks have no number."""
    newest = Generation.objects.filter(
        job__in=jobs, attempt=F("job__run__attempt"), number=F("job__run__generation")
    ).order_by()
    return {
        (job, member["member_id"]): member["rank"]
        for job, members in newest.values_list("job", "members")
        for member in members
    }


def consumer_of(group: InstanceGroup) -> str:
    """Return the group's path in the tree of consumers, which has one level here."""
    return f"/{group.name}"


def _executor_word(executor: Executor) -> str:
    rank = executor.rank
    if not rank.exit:
        return _EXECUTOR_WORDS.get(RankState(rank.state), "LAUNCHING")
    if rank.exit.get("signal"):
        return "KILLED"
    return "FINISHED" if rank.exit.get("code") == 0 else "ERROR"


class ExecutorOutput(serializers.Serializer[Any]):
    id = Text()
    state = Text(_executor_word, help_text="LAUNCHING, RUNNING, FINISHED, ERROR, KILLED or LOST.")
    host = Text(source="rank.host")
    slot = Whole(source="rank.slot", help_text="Index of its GPU on the host.")
    rank = Whole(source="rank.rank", allow_null=True, help_text="Rank number while it trains.")


class DriverOutput(serializers.Serializer[Any]):
    id = Text(lambda app: identities().submission_id(app.submitted))
    containerid = Text(allow_null=True, help_text="Always null: Tidepool uses no containers.")
    state = Text()
    host = Text(lambda app: app.job.run.lead_host or None, allow_null=True)
    coresused = Real(allow_null=True, help_text=_NOT_MEASURED)
    memused = Real(allow_null=True, help_text=_NOT_MEASURED)
    timestamp = Text(lambda app: iso(app.job.started_at), allow_null=True, help_text="Time of its first start.")


def _log_address(app: Application, stream: str) -> str:
    ids = identities()
    group, driver = ids.group_id(app.job.instance_group_id), ids.driver_id(app.submitted)
    return f"{_CONDUCTOR}/instances/{group}/applications/{driver}/logs/{stream}/download"


class ListedDriverOutput(DriverOutput):
    driverstdout = Text(lambda app: _log_address(app, "stdout"), help_text="URL of its standard output.")
    driverstderr = Text(lambda app: _log_address(app, "stderr"))


class TotalMemory(Shape):
    total = Whole(allow_null=True, help_text="Sum over its GPUs in MiB; null if no GPU reports it.")


class TotalUtilisation(Shape):
    total = Real(allow_null=True, help_text="Sum over its GPUs in percent; null if no GPU reports it.")


class ApplicationOutput(serializers.Serializer[Any]):
    sparkinstancegroupid = Text(lambda app: identities().group_id(app.job.instance_group_id))
    sigName = Text(source="job.instance_group.name")
    applicationid = Text(lambda app: identities().app_id(app.submitted))
    applicationname = Text(source="job.name")
    type = Text(lambda app: "BATCH", help_text="Always BATCH.")
    state = Text()
    uiport = Whole(allow_null=True, help_text="Always null: there is no Spark page.")
    driver = ListedDriverOutput(source="*")
    executors = ExecutorOutput(many=True, help_text="Its ranks, also after its end.")
    slots = Whole(lambda app: len(app.gpus))
    gpuslots = Whole(lambda app: len(app.gpus))
    demandslots = Whole(
        lambda app: 0 if app.job.state in TERMINAL else app.job.max_slots,
        help_text="Maximum number of GPUs that it requests; 0 after its end.",
    )
    hosts = Whole(
        lambda app: len({host for host, _, _ in app.gpus}), help_text="Number of hosts on which it holds GPUs."
    )
    coresused = Real(allow_null=True, help_text=_NOT_MEASURED)
    memused = Real(allow_null=True, help_text=_NOT_MEASURED)
    gpumemused = TotalMemory(lambda app: {"total": app.memory_mebibytes})
    gpudevutil = TotalUtilisation(lambda app: {"total": app.utilisation_percent})
    username = Text(source="submitted.user")
    priority = Whole(source="job.priority")
    submittedtime = Text(lambda app: iso(app.job.submitted_at))
    endtime = Text(lambda app: iso(app.job.finished_at), allow_null=True)
    apprunduration = Real(source="minutes", help_text="Minutes from its first start to now, or to its end.")
    model = Text(source="job.model.model.name")
    dataset = Text(source="job.dataset_name")
    dltype = Text(source="job.model.framework")
    tunningname = Text(lambda app: "")


class ScheduledApplicationOutput(ApplicationOutput):
    # Clients find logs by `task0` and `task12n`.
    task0 = Many(lambda app: [app], child=ListedDriverOutput(), help_text="The driver.")
    task12n = ExecutorOutput(many=True, source="executors", help_text="The executors.")


class EngineApplicationOutput(serializers.Serializer[Any]):
    id = Text(lambda app: identities().app_id(app.submitted))
    consumer = Text(lambda app: consumer_of(app.job.instance_group))
    submit_user = Text(source="submitted.user")
    tag = Text(lambda app: f"{consumer_of(app.job.instance_group)}/{app.submitted.user}")
    name = Text(source="job.name")
    priority = Whole(source="job.priority")
    type = Text(lambda app: "BATCH")
    state = Text()
    task12n_num = Whole(lambda app: len(app.gpus))
    task0_resreq = Text(lambda app: "ngpus=0")
    task12n_resreq = Text(lambda app: "ngpus=1")
    used_gpu = Whole(lambda app: len(app.gpus))
    used_mem = Real(allow_null=True, help_text=_NOT_MEASURED)
    used_cpu = Real(allow_null=True, help_text=_NOT_MEASURED)
    submit_time = Whole(
        lambda app: _unix(app.job.submitted_at), help_text="Unix seconds, like start_time and end_time."
    )
    start_time = Whole(lambda app: _unix(app.job.started_at), allow_null=True)
    end_time = Whole(lambda app: _unix(app.job.finished_at), allow_null=True)
    is_packing = Flag(lambda app: False)
    pack_id = Text(lambda app: "")
    kernels = Many(lambda app: [], child=Json())
    task0 = Many(lambda app: [app], child=DriverOutput())
    task12n = ExecutorOutput(many=True, source="executors")


def _unix(moment: datetime | None) -> int | None:
    """Return whole Unix seconds: WMLA's own command line only accepts an int."""
    return None if moment is None else int(moment.timestamp())


# --- filters of lists ---


class OutsideList(UserError):
    """The requested page begins after the last application."""

    status = 416
    default_code = "outside_list"


class StateQuery(serializers.Serializer[Any]):
    state = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=500,
        help_text=f"One or more states, separated by commas: {', '.join(KNOWN_WORDS)}.",
    )


class EngineQuery(StateQuery):
    start = serializers.IntegerField(
        default=0, min_value=0, max_value=2**31 - 1, help_text="Number of applications to skip."
    )
    length = serializers.IntegerField(
        default=_DEFAULT_LENGTH,
        min_value=0,
        max_value=2**31 - 1,
        help_text=f"Maximum number of applications to return; larger values count as {_MAX_LENGTH}.",
    )
    sort = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=100,
        help_text=f"Sort key; a leading - sorts in descending order: {', '.join(_SORTED_BY)}.",
    )


class ApplicationQuery(EngineQuery):
    order = serializers.CharField(
        default="", allow_blank=True, max_length=4, help_text="asc or desc; overrides the sign of sort."
    )
    applicationid = serializers.CharField(default="", allow_blank=True, max_length=300)
    driverid = serializers.CharField(default="", allow_blank=True, max_length=300)
    applicationname = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="The complete name."
    )
    search = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="Part of the name, or the number, of a training."
    )
    sigId = serializers.CharField(default="", allow_blank=True, max_length=300, help_text="Id or name of a group.")


def jobs_in_list(user: User, wanted: Mapping[str, Any], group: InstanceGroup | None = None) -> list[Job]:
    """Return the trainings in this part of the list that the user may see. Raise OutsideList beyond its end."""
    if not all(is_storable(text) for text in wanted.values() if isinstance(text, str)):
        raise UserError("The query has characters that no name can contain: remove them.")
    start, length = wanted.get("start", 0), min(wanted.get("length", _DEFAULT_LENGTH), _MAX_LENGTH)
    order = _order(wanted)
    # Trainings that a WMLA client deleted are hidden everywhere in this interface.
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
    page = list(keys.order_by(*order).values_list("pk", flat=True)[start : start + length])
    if not page and start and length:
        raise OutsideList(f"start is {start}, beyond the end of the list: send a lower start.")
    rows = visible_jobs(user).in_bulk(page)
    return [rows[key] for key in page if key in rows]


def _numbers_of(user: User, identifier: str) -> list[int]:
    """Return the number of the job with this identifier in a list; clients expect an empty list if there is none."""
    try:
        return [job_of(user, identifier).pk]
    except NotFound:
        return []


def _states(text: str) -> dict[str, Any]:
    """Return the filter for jobs in these states."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in KNOWN_WORDS:
            raise field_error("state", f"State {word[:40]!a} is not known: use {', '.join(KNOWN_WORDS)}.")
    if not words:
        return {}
    states: set[JobState] = set().union(*(states_behind(word) for word in words))
    wanted = {"state__in": sorted(states)}
    # The extra condition lets the database use the small partial index of unfinished jobs.
    return wanted if states & TERMINAL else {**wanted, "finished_at__isnull": True}


def _order(wanted: Mapping[str, Any]) -> tuple[str, str]:
    sort, direction = wanted.get("sort", "").strip() or "-submittedtime", wanted.get("order", "").strip().lower()
    column = _SORTED_BY.get(sort.removeprefix("-").lower())
    if column is None:
        raise field_error("sort", f"The list cannot be sorted by {sort[:40]!a}: use one of {', '.join(_SORTED_BY)}.")
    if direction not in ("", "asc", "desc"):
        raise field_error("order", "order must be asc or desc.")
    sign = "-" if (direction == "desc" if direction else sort.startswith("-")) else ""
    return f"{sign}{column}", f"{sign}pk"

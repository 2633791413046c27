"""Reads what happens to trainings and groups, for the rules that there are. Decides nothing."""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Subquery

from alerts.alert_kinds import NOT_OF_TRIALS, Kind
from alerts.models import AlertRule
from alerts.routing import Happening, Rule, kind_of_event
from core.roles import is_cluster_admin
from insights.advisor import job_advice
from jobs.models import InstanceGroup, Job, JobEvent, JobRun, SlotClaim
from jobs.states import TERMINAL, JobState
from workers.lateness import is_behind, reports_delay

__all__ = [
    "FullGroup",
    "events_since",
    "full_groups",
    "has_rules",
    "idle",
    "losses",
    "newest_event",
    "of_full_groups",
    "rules",
    "training",
    "waits",
]

_MAX_EVENTS = 5000
#: An older reading says nothing of now.
_FRESH = timedelta(minutes=2)
_LOSS_CODES = frozenset({"LOSS_NOT_A_NUMBER", "LOSS_DIVERGES", "LOSS_STALLED"})

FullGroup = tuple[InstanceGroup, int]


def rules() -> list[Rule]:
    """Return the rules of users who may log in."""
    rows = AlertRule.objects.filter(channel__owner__is_active=True).select_related("channel__owner")
    return [
        Rule(
            row.channel_id, row.channel.owner_id, is_cluster_admin(row.channel.owner),
            row.kind, row.group_id, row.minutes, row.created_at,
        )
        for row in rows
    ]  # fmt: skip


def has_rules() -> bool:
    """Return whether a user who may log in has a rule."""
    return AlertRule.objects.filter(channel__owner__is_active=True).exists()


def newest_event() -> int:
    return JobEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0


def events_since(mark: int, settled: datetime) -> tuple[list[Happening], int]:
    """Return the happenings in the events behind the mark, and the mark for the next call.

    It stays before events that are younger than `settled`: a transaction may still write one with a lower number.
    """
    columns = ("pk", "at", "old", "new", "reason")
    rows = list(JobEvent.objects.filter(pk__gt=mark).order_by("pk").values_list(*columns)[:_MAX_EVENTS])
    kinds = {pk: kind for pk, _, old, new, reason in rows if (kind := kind_of_event(old, new, reason))}
    events = JobEvent.objects.filter(pk__in=kinds).select_related("job").order_by("pk") if kinds else ()
    happenings = [
        _of_event(event, kinds[event.pk])
        for event in events
        if event.job.bundle is None or kinds[event.pk] not in NOT_OF_TRIALS
    ]
    old_ones = takewhile(lambda row: row[1] < settled, rows)
    return happenings, max((row[0] for row in old_ones), default=mark)


def waits(now: datetime, asked: Sequence[Rule]) -> list[Happening]:
    """Trainings that wait, each since it came into the line.

    A study counts as one training: its first trial waits if none has GPUs.
    """
    came = JobEvent.objects.filter(job=OuterRef("pk"), new=JobState.PENDING).exclude(old=JobState.PENDING)
    before = Job.objects.filter(bundle=OuterRef("bundle")).exclude(state__in=TERMINAL)
    before = before.filter(~Q(state=JobState.PENDING) | Q(pk__lt=OuterRef("pk")))
    waiting = Job.objects.filter(Q(bundle=None) | ~Exists(before), state=JobState.PENDING)
    jobs = _concerned(asked, waiting)
    found = []
    for job in jobs.annotate(came=Subquery(came.order_by("-seq").values("at")[:1])):
        since = job.came or job.submitted_at
        found.append(_lasting(Kind.WAITS, job, since, now, because=dict(job.reason_params)))
    return found


def idle(now: datetime, asked: Sequence[Rule]) -> list[Happening]:
    """Trainings none of whose GPUs does anything, as far as the hosts tell, and that make no step.

    None while reports wait. Steps of a small model may not show in the utilization.
    """
    delay = reports_delay(now)
    if delay is not None and is_behind(delay):
        return []
    jobs = _concerned(asked, Job.objects.filter(state=JobState.RUNNING)).in_bulk()
    claims = SlotClaim.objects.open().filter(job__in=jobs).order_by()
    stepped = dict(JobRun.objects.filter(job__in=jobs, stepped_at__isnull=False).values_list("job", "stepped_at"))
    by_job: dict[int, list[tuple[datetime | None, datetime | None]]] = defaultdict(list)
    for number, *reading in claims.values_list("job", "slot__reading__idle_since", "slot__reading__at"):
        by_job[number].append((reading[0], reading[1]))
    found = []
    for number, readings in by_job.items():
        since = [idle_since for idle_since, read_at in readings if idle_since and read_at and now - read_at <= _FRESH]
        if len(since) == len(readings):
            # From the last step on, too, and while the GPUs were this training's.
            found.append(_lasting(Kind.IDLE, jobs[number], max([*since, *filter(None, [stepped.get(number)])]), now))
    return found


def losses(jobs: Iterable[Job], now: datetime) -> list[Happening]:
    """Return the advisor's findings about the loss of these trainings: one for each training and advice."""
    return [
        Happening(
            Kind.LOSS, f"loss {advice.code} {job.pk}", now, job.instance_group_id, job.pk, job.owner_id,
            params={"name": job.name, "advice": advice.text},
        )
        for job in jobs
        for advice in job_advice(job).advice
        if advice.code in _LOSS_CODES
    ]  # fmt: skip


def training(asked: Sequence[Rule]) -> QuerySet[Job]:
    """Return the trainings whose loss is of interest."""
    return _concerned(asked, Job.objects.filter(state=JobState.RUNNING)).select_related("run").order_by("pk")


def full_groups(asked: Sequence[Rule]) -> list[FullGroup]:
    """Return the groups of these rules whose trainings hold as many GPUs as their quota, with that number."""
    groups = InstanceGroup.objects.filter(pk__in={rule.group for rule in asked}, quota__gte=1).in_bulk()
    held = SlotClaim.objects.open().filter(job__instance_group__in=groups).order_by().values("job__instance_group")
    counts: dict[int, int] = dict(held.annotate(count=Count("pk")).values_list("job__instance_group", "count"))
    return [(group, counts[pk]) for pk, group in groups.items() if counts.get(pk, 0) >= (group.quota or 0)]


def of_full_groups(full: Iterable[FullGroup], before: Set[int], now: datetime) -> list[Happening]:
    """Return the groups that have become full since the last look."""
    return [
        Happening(Kind.QUOTA, f"quota {group.pk} {now:%Y-%m-%dT%H:%M:%S}", now, group.pk,
                  params={"held": held, "quota": group.quota})
        for group, held in full
        if group.pk not in before
    ]  # fmt: skip


def _of_event(event: JobEvent, kind: Kind) -> Happening:
    job = event.job
    params = {"name": job.name, "because": event.detail}
    return Happening(kind, f"event {event.pk}", event.at, job.instance_group_id, job.pk, job.owner_id, params=params)


def _lasting(kind: Kind, job: Job, since: datetime, now: datetime, **params: Any) -> Happening:
    lasted = (now - since).total_seconds()
    key = f"{kind} {job.pk} {since:%Y-%m-%dT%H:%M:%S}"
    params = {"name": job.name, "lasted_seconds": round(lasted), **params}
    return Happening(kind, key, since, job.instance_group_id, job.pk, job.owner_id, lasted, params)


def _concerned(asked: Sequence[Rule], jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return the groups that some rule may be about."""
    owners = {rule.owner for rule in asked}
    if any(rule.sees_all and rule.group is not None for rule in asked):
        return jobs
    return jobs.filter(owner__in=owners)

"""Snapshot for the scheduler, read in a fixed number of queries. Called by its process, previews and metrics."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast, get_args

from django.db.models import Exists, Min, OuterRef

from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.states import ACTIVE, JobState
from models_registry.models import RegisteredModelVersion
from scheduling.snapshot import GroupView, JobView, PolicyName, SlotRef, SlotView, Snapshot
from workers.models import Host, ResourceGroup, Slot
from workers.offers import Offer, offer_of

__all__ = ["group_view", "snapshot"]

_ELASTIC = RegisteredModelVersion.Engine.ELASTIC
_JOB_VIEW = (
    "pk", "name", "instance_group__name", "state", "priority", "submitted_at", "min_slots", "max_slots",
    "model__engine", "owner",
)  # fmt: skip


def snapshot(now: datetime, cycle: int = 0, *, instead: Mapping[int, Offer] | None = None) -> Snapshot:
    """Everything that the scheduler decides about, as it is now.

    instead: id of a resource group -> what it would offer, for previews.
    """
    groups = InstanceGroup.objects.select_related("resource_group").order_by("name")
    return Snapshot(
        at=now.timestamp(),
        cycle=cycle,
        groups=tuple(group_view(group) for group in groups),
        slots=_slot_views(instead or {}),
        jobs=_job_views(_starts() if any(group.minimum_run_seconds for group in groups) else {}),
    )


def group_view(group: InstanceGroup) -> GroupView:
    assert group.policy in get_args(PolicyName)
    return GroupView(
        name=group.name,
        resource_group=group.resource_group.name,
        policy=cast(PolicyName, str(group.policy)),
        preemption=group.preemption,
        quota=group.quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=group.lends,
        reclaim_grace_seconds=group.reclaim_grace_seconds,
        minimum_run_seconds=group.minimum_run_seconds,
        started=group.state == InstanceGroup.State.STARTED,
    )


def _slot_views(instead: Mapping[int, Offer]) -> tuple[SlotView, ...]:
    # Values, not models: there are very many slots and jobs, and each cycle reads them all.
    hosts = list(Host.objects.all())
    offers = _offers(hosts, instead)
    open_claims = SlotClaim.objects.open().order_by()
    claims = {slot: (job, at is not None) for slot, job, at in open_claims.values_list("slot", "job", "vacating_at")}
    by_host = {host.pk: (host.name, host.state, offers[host.name]) for host in hosts}
    views = []
    for pk, host, index in Slot.objects.order_by().values_list("pk", "host", "index"):
        name, state, offered = by_host[host]
        names = tuple(group for group, count in offered if index < count)
        held_by, vacating = claims.get(pk, (None, False))
        if not names and held_by is None:
            continue
        # Silence takes nothing from a job: its ranks there may well train on, until it is taken off the host.
        is_kept = held_by is not None and not vacating
        claimable = state == Host.State.ONLINE or (state == Host.State.LOST and is_kept)
        views.append(SlotView(SlotRef(name, index), names, claimable, held_by, vacating))
    return tuple(sorted(views, key=lambda view: view.ref))


def _offers(hosts: Iterable[Host], instead: Mapping[int, Offer]) -> dict[str, list[tuple[str, int]]]:
    """Host name -> (GPU resource group, how many slots it offers to it)."""
    offers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    groups = ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).prefetch_related("hosts").order_by("name")
    for group in groups:
        offer = instead.get(group.pk) or offer_of(group)
        for name, count in offer.slots(hosts).items():
            offers[name].append((group.name, count))
    return offers


def _starts() -> dict[int, datetime]:
    """Job -> when it began to hold slots; one that has moved since, with the first of those that it still has."""
    running = SlotClaim.objects.open().filter(job__instance_group__minimum_run_seconds__gt=0)
    return dict(running.order_by().values_list("job").annotate(Min("claimed_at")))


def _job_views(starts: Mapping[int, datetime]) -> tuple[JobView, ...]:
    # A job that waits while processes of its former life still end cannot start yet.
    ending = SlotClaim.objects.open().filter(job=OuterRef("pk"))
    jobs = Job.objects.filter(state__in=sorted(ACTIVE), finished_at__isnull=True).annotate(holds=Exists(ending))
    rows = jobs.order_by("pk").values_list("holds", *_JOB_VIEW)
    return tuple(
        _job_view(*row, starts.get(row[0])) for holds, *row in rows if not (row[3] == JobState.PENDING and holds)
    )


def _job_view(*row: Any) -> JobView:
    pk, name, group, state, priority, submitted_at, least, most, engine, owner, start = row
    return JobView(
        pk, name, group, state, priority, submitted_at.timestamp(), least, most, engine == _ELASTIC, owner,
        start and start.timestamp(),
    )  # fmt: skip

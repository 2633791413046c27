"""The scheduler's input, read from the database in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import cast, get_args

from django.db.models import Exists, OuterRef

from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.scheduling.snapshot import GroupView, JobView, PolicyName, SlotRef, SlotView, Snapshot
from jobs.states import ACTIVE, JobState
from models_registry.models import RegisteredModelVersion
from workers.models import Host, ResourceGroup, Slot
from workers.queries import offered_slots

__all__ = ["snapshot"]

_ELASTIC = RegisteredModelVersion.Engine.ELASTIC


def snapshot(now: datetime, cycle: int = 0) -> Snapshot:
    """Everything that the scheduler decides about, as it is now."""
    groups = InstanceGroup.objects.select_related("resource_group").order_by("name")
    return Snapshot(
        at=now.timestamp(),
        cycle=cycle,
        groups=tuple(_group_view(group) for group in groups),
        slots=_slot_views(),
        jobs=_job_views(),
    )


def _group_view(group: InstanceGroup) -> GroupView:
    assert group.policy in get_args(PolicyName)
    return GroupView(
        name=group.name,
        resource_group=group.resource_group.name,
        policy=cast(PolicyName, str(group.policy)),
        preemption=group.preemption,
        quota=group.quota,
        weight=group.weight,
    )


def _slot_views() -> tuple[SlotView, ...]:
    hosts = list(Host.objects.all())
    offers = _offers(hosts)
    claims = {claim.slot_id: claim for claim in SlotClaim.objects.filter(released_at__isnull=True)}
    by_host = {host.pk: host for host in hosts}
    views = []
    for slot in Slot.objects.all():
        host, claim = by_host[slot.host_id], claims.get(slot.pk)
        names = tuple(name for name, count in offers[host.name] if slot.index < count)
        if not names and claim is None:
            continue
        views.append(
            SlotView(
                ref=SlotRef(host.name, slot.index),
                resource_groups=names,
                claimable=host.state == Host.State.ONLINE or (host.state == Host.State.LOST and _is_kept(claim)),
                held_by=claim.job_id if claim else None,
                vacating=claim is not None and claim.vacating_at is not None,
            )
        )
    return tuple(sorted(views, key=lambda view: view.ref))


def _is_kept(claim: SlotClaim | None) -> bool:
    """Silence takes nothing from a job: its ranks there may well train on, until it is taken off the host."""
    return claim is not None and claim.vacating_at is None


def _offers(hosts: Iterable[Host]) -> dict[str, list[tuple[str, int]]]:
    """Host name -> (GPU resource group, how many slots it offers to it)."""
    offers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    groups = ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).prefetch_related("hosts").order_by("name")
    for group in groups:
        for name, count in offered_slots(group, hosts).items():
            offers[name].append((group.name, count))
    return offers


def _job_views() -> tuple[JobView, ...]:
    # A job that waits while processes of its former life still end cannot start yet.
    ending = SlotClaim.objects.filter(job=OuterRef("pk"), released_at__isnull=True)
    jobs = Job.objects.filter(state__in=sorted(ACTIVE)).annotate(holds=Exists(ending))
    rows = jobs.select_related("model", "instance_group").order_by("pk")
    return tuple(_job_view(job) for job in rows if not (job.state == JobState.PENDING and job.holds))


def _job_view(job: Job) -> JobView:
    return JobView(
        id=job.pk,
        name=job.name,
        group=job.instance_group.name,
        state=job.state,  # type: ignore[arg-type]
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        min_slots=job.min_slots,
        max_slots=job.max_slots,
        elastic=job.model.engine == _ELASTIC,
        owner=job.owner_id,
    )

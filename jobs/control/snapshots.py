"""Snapshot for the scheduler, read in a fixed number of queries. Used by its process, previews and metrics."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, cast, get_args

from django.db.models import Q

from jobs.control.environment_states import JobFacts, Lack, lacks_of
from jobs.control.goodput_inputs import with_measures
from jobs.control.kind_ratios import remembered
from jobs.gpu_weights import weights_of
from jobs.models import InstanceGroup, Job, JobRun, SlotClaim
from jobs.option_words import wish_of
from jobs.options import IS_BITWISE
from jobs.states import ACTIVE, HOLDING, JobState
from models_registry.models import RegisteredModelVersion
from scheduling.policies.kind_ratios import medians
from scheduling.snapshot import Aim, GroupView, JobView, KindRatio, PolicyName, Share, SlotRef, SlotView, Snapshot
from workers.group_rules import Offer, offer_of
from workers.isolation import ANY, part_of, with_parts
from workers.models import Host, ResourceGroup, Slot

__all__ = ["former_hosts", "group_view", "host_shares", "offers", "snapshot"]

#: Slot, job, time since which the slot is being given back, and time of the claim.
_Claim = tuple[int, int, datetime | None, datetime]
_ELASTIC = RegisteredModelVersion.Engine.ELASTIC
#: State of a host in service that is of a former release, see `former_hosts`.
_FORMER = "FORMER"
_LACKS_NONE = Lack(frozenset(), frozenset())
_JOB_VIEW = (
    "pk", "name", "instance_group__name", "state", "priority", "submitted_at", "min_slots", "max_slots",
    "model__engine", "owner", "max_seconds", "run__ends_at", "run__backfilled_for", "run__over_quota",
    "run__saved_at", "placement", "run__growth_limit", "run__idle_shrunk_at", "bundle", "bundle_rank",
    "cpus_per_gpu", "memory_gib_per_gpu", IS_BITWISE, "run__began_on", "run__required",
)  # fmt: skip


def snapshot(
    now: datetime,
    cycle: int = 0,
    *,
    instead: Mapping[int, Offer] | None = None,
    measures: bool = False,
    levels: Collection[str] = (),
) -> Snapshot:
    """Return everything that the scheduler decides about, in its current state.

    instead: id of a resource group -> its hypothetical offer, for previews.
    measures: include profiles of all jobs, not only of those in groups whose policy uses them.
    levels: of isolation that a group might demand, besides those that some do.
    """
    groups = InstanceGroup.objects.select_related("resource_group").order_by("name")
    claims = list(SlotClaim.objects.open().order_by().values_list("slot", "job", "vacating_at", "claimed_at"))
    jobs = _job_views(claims, {group.name for group in groups if group.minimum_run_seconds})
    measuring = {group.name for group in groups if measures or group.policy == InstanceGroup.Policy.GOODPUT}
    demanded = {*levels, *(group.least_isolation for group in groups)} - {ANY}
    slots = _slot_views(claims, instead or {}, demanded)
    views = with_measures(jobs, measuring, _held_since(claims), now)
    ending = _ending_wishes(claims, jobs)
    return Snapshot(
        at=now.timestamp(),
        cycle=cycle,
        groups=tuple(group_view(group) for group in groups),
        slots=slots,
        jobs=views,
        ratios=_ratios(slots, views, now) if measuring else (),
        shares=host_shares() if ending or any(job.wish for job in jobs) else {},
        ending=ending,
    )


def host_shares() -> dict[str, Share]:
    """Return the share that each slot of a host stands for, by the host's name, where it is known."""
    return {host.name: share for host in Host.objects.all() if (share := host.share) is not None}


def _ending_wishes(open_claims: Iterable[_Claim], jobs: Iterable[JobView]) -> dict[int, Share]:
    """Return the wishes of jobs that are over, or wait again, and whose processes still hold slots."""
    ending = {job for _, job, _, _ in open_claims}.difference(job.id for job in jobs)
    asked = Q(cpus_per_gpu__isnull=False) | Q(memory_gib_per_gpu__isnull=False)
    rows = Job.objects.filter(asked, pk__in=ending) if ending else Job.objects.none()
    found = ((pk, wish_of(*wish)) for pk, *wish in rows.values_list("pk", "cpus_per_gpu", "memory_gib_per_gpu"))
    return {pk: wish for pk, wish in found if wish is not None}


def _ratios(slots: Iterable[SlotView], jobs: Collection[JobView], now: datetime) -> tuple[KindRatio, ...]:
    """Return the ratios of GPU models, where the pool and the jobs' profiles have several."""
    kinds = {slot.device for slot in slots}
    kinds.update(*(job.profile.parameters for job in jobs if job.profile is not None))
    if len(kinds) < 2:
        return ()
    codes = {job.code for job in jobs if job.code}
    return medians(remembered(codes, now), codes)


def group_view(group: InstanceGroup) -> GroupView:
    assert group.policy in get_args(PolicyName)
    return GroupView(
        name=group.name,
        resource_group=part_of(group.resource_group.name, group.least_isolation),
        part_of="" if group.least_isolation == ANY else group.resource_group.name,
        policy=cast(PolicyName, str(group.policy)),
        preemption=group.preemption,
        quota=group.quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=group.lends,
        reclaim_grace_seconds=group.reclaim_grace_seconds,
        minimum_run_seconds=group.minimum_run_seconds,
        started=group.state == InstanceGroup.State.STARTED,
        aim=cast(Aim, str(group.aim)),
        gpu_weights=tuple(weights_of(group.gpu_weights).items()),
    )


def _slot_views(
    open_claims: Iterable[_Claim], instead: Mapping[int, Offer], levels: Collection[str]
) -> tuple[SlotView, ...]:
    # Values instead of models: each cycle reads all slots and jobs, which are very many.
    hosts = list(Host.objects.all())
    # Hosts that have left are missed, but not those that are removed from the lists.
    offered_by = offers([host for host in hosts if host.removed_at is None], instead, were_there=True)
    claims = {slot: (job, vacating_at is not None) for slot, job, vacating_at, _ in open_claims}
    former = former_hosts(hosts)
    by_host = {host.pk: (host, _state_of(host, former), offered_by[host.name]) for host in hosts}
    views = []
    columns = ("pk", "host", "index", "device_model", "sick_since")
    for pk, host_pk, index, device, sick_since in Slot.objects.order_by().values_list(*columns):
        host, state, offered = by_host[host_pk]
        names = tuple(group for group, count in offered if index < count)
        held_by, vacating = claims.get(pk, (None, False))
        if not names and held_by is None:
            continue
        # A silent host's slots stay with their job until it is taken off the host: its ranks may well keep training.
        is_kept = held_by is not None and not vacating
        is_sick = sick_since is not None
        # Ranks that a former release took over when it came back know the handshake.
        claimable = (state == Host.State.ONLINE and not is_sick) or (state in (Host.State.LOST, _FORMER) and is_kept)
        out = state.lower() if state != Host.State.ONLINE else "sick" if is_sick else ""
        names = with_parts(host, names, levels) if levels else names
        views.append(SlotView(SlotRef(host.name, index), names, claimable, held_by, vacating, device, out))
    return tuple(sorted(views, key=lambda view: view.ref))


def _state_of(host: Host, former: Collection[str]) -> str:
    """Return the state of a host; of one in service that runs no training, why not."""
    is_unwalled = host.state == Host.State.ONLINE and host.isolation == Host.Isolation.NONE
    return "UNWALLED" if is_unwalled else _FORMER if host.name in former else host.state


def former_hosts(hosts: Iterable[Host]) -> frozenset[str]:
    """Return the hosts in service whose release does not know the handshake, while trainings need it.

    Its processes could not join these trainings. The site cannot start others there meanwhile: they would be open.
    """
    names = frozenset(host.name for host in hosts if host.state == Host.State.ONLINE and not host.handshake)
    needs = bool(names) and JobRun.objects.filter(sealed=True, job__state__in=sorted(HOLDING)).exists()
    return names if needs else frozenset()


def offers(
    hosts: Iterable[Host], instead: Mapping[int, Offer], *, were_there: bool = False
) -> dict[str, list[tuple[str, int]]]:
    """Return host name -> (GPU resource group, number of offered slots). `were_there`: see `Offer.slots`."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    groups = ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).prefetch_related("hosts").order_by("name")
    for group in groups:
        offer = instead.get(group.pk) or offer_of(group)
        for name, count in offer.slots(hosts, were_there=were_there).items():
            found[name].append((group.name, count))
    return found


def _held_since(open_claims: Iterable[_Claim]) -> dict[int, list[datetime]]:
    """Return job -> times since which it holds each of its slots."""
    held = defaultdict[int, list[datetime]](list)
    for _, job, _, claimed_at in open_claims:
        held[job].append(claimed_at)
    return held


def _job_views(open_claims: Iterable[_Claim], with_minimum_run: Collection[str]) -> tuple[JobView, ...]:
    """Return views of active jobs. `with_minimum_run`: groups that stop no job before a minimum time."""
    held, kept = _held_since(open_claims), defaultdict[int, list[datetime]](list)
    for _, job, vacating_at, claimed_at in open_claims:
        if vacating_at is None:
            kept[job].append(claimed_at)
    jobs = Job.objects.filter(state__in=sorted(ACTIVE), finished_at__isnull=True)
    rows = list(jobs.order_by("pk").values_list(*_JOB_VIEW))
    lacks = lacks_of(JobFacts(row[0], row[-1], row[5], row[3] == JobState.PENDING) for row in rows)
    views = []
    for row in rows:
        pk, group, state = row[0], row[2], row[3]
        # A job whose former attempt still has processes cannot start yet.
        if state == JobState.PENDING and pk in held:
            continue
        # A job that has moved counts from the oldest slot that it still holds.
        start = min(held[pk]) if pk in held and group in with_minimum_run else None
        views.append(_job_view(*row[:-1], start, kept.get(pk, ()), lacks.get(pk, _LACKS_NONE)))
    return tuple(views)


def _job_view(*row: Any) -> JobView:
    (
        pk, name, group, state, priority, submitted_at, least, most, engine, owner, lasts, end, backfilled_for, above,
        saved_at, placement, growth_limit, idle_shrunk_at, bundle, bundle_rank, cores, memory, is_bitwise, began_on,
        start, claimed, lack,
    ) = row  # fmt: skip
    # A job that has kept nothing begins anew.
    has_begun = state != JobState.PENDING or saved_at is not None
    keeps_size = growth_limit is not None and growth_limit < most and state != JobState.PENDING
    is_idle = idle_shrunk_at is not None and state != JobState.PENDING
    if is_idle:
        most = least
    return JobView(
        pk, name, group, state, priority, submitted_at.timestamp(), least,
        min(growth_limit, most) if keeps_size else most, engine == _ELASTIC, owner,
        start and start.timestamp(), lasts, end and end.timestamp(), backfilled_for, above,
        _unsaved_since(claimed, saved_at), engine == _ELASTIC or saved_at is not None,
        newcomers_fail=keeps_size, is_idle=is_idle, one_host=placement == Job.Placement.ONE_HOST,
        equal_hosts=placement == Job.Placement.EQUAL,
        bundle=bundle, bundle_rank=bundle_rank, wish=wish_of(cores, memory),
        unprepared=lack.unprepared, unfit=lack.unfit,
        one_kind=is_bitwise, began_on=began_on if has_begun else "",
    )  # fmt: skip


def _unsaved_since(claimed: Collection[datetime], saved_at: datetime | None) -> float | None:
    """Return the mean time since which work on the slots is unsaved, in Unix seconds; None without slots.

    Work on a slot is unsaved since the claim or since the newest checkpoint, whichever is later. Slots released since
    the checkpoint are ignored: they are few, and including them would cost each cycle a query.
    """
    if not claimed:
        return None
    since = claimed if saved_at is None else [max(at, saved_at) for at in claimed]
    return sum(at.timestamp() for at in since) / len(since)

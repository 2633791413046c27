"""The slots of a snapshot as one instance group sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from operator import attrgetter

from jobs.scheduling.demand import Demand
from jobs.scheduling.snapshot import GroupView, JobView, SlotRef, Snapshot

__all__ = ["Pool", "demand_of", "pool_of"]

_BY_REF = attrgetter("ref")


@dataclass(frozen=True)
class Pool:
    group: GroupView
    #: In order of id.
    jobs: tuple[JobView, ...]
    #: Nobody holds them, and they may be claimed now.
    free: tuple[SlotRef, ...]
    #: Job -> slots that it holds, in service, and has not been told to give back.
    held: dict[int, tuple[SlotRef, ...]]
    #: Job -> slots that it holds where nothing new may be claimed: their host is draining, or left the group.
    away: dict[int, tuple[SlotRef, ...]]
    #: Holder -> slots that it gives back, and that this group may claim once they are free.
    coming: dict[int, tuple[SlotRef, ...]]

    @property
    def capacity(self) -> int:
        """How many slots the group's jobs may share, now or once they have changed hands."""
        return len(self.free) + sum(map(len, self.held.values())) + sum(map(len, self.coming.values()))


def pool_of(snapshot: Snapshot, group: GroupView, counted_on: Set[SlotRef]) -> Pool:
    """`counted_on` are slots that the groups decided before this one have claimed or reserved.

    A holder that is not among the snapshot's jobs is ending: what it holds is coming, to every group that may use it.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    free: list[SlotRef] = []
    held: dict[int, list[SlotRef]] = defaultdict(list)
    away: dict[int, list[SlotRef]] = defaultdict(list)
    coming: dict[int, list[SlotRef]] = defaultdict(list)
    name, resource_group = group.name, group.resource_group
    for slot in sorted(snapshot.slots, key=_BY_REF):
        ref, held_by = slot.ref, slot.held_by
        offered = slot.claimable and resource_group in slot.resource_groups and ref not in counted_on
        if held_by is None:
            if offered:
                free.append(ref)
            continue
        holder = jobs.get(held_by)
        if holder is not None and holder.group != name:
            continue
        if holder is not None and holder.state != "PENDING" and not slot.vacating:
            (held if offered else away)[held_by].append(ref)
        elif offered:
            coming[held_by].append(ref)
    members = sorted((job for job in snapshot.jobs if job.group == name), key=lambda job: job.id)
    return Pool(group, tuple(members), tuple(free), _frozen(held), _frozen(away), _frozen(coming))


def demand_of(job: JobView, pool: Pool) -> Demand:
    held, away = pool.held.get(job.id, ()), pool.away.get(job.id, ())
    running = bool(held or away)
    least, most = job.min_slots, job.max_slots
    if not job.elastic:
        least = most = len(held) if running else job.max_slots
    return Demand(job.id, job.priority, job.submitted_at, least, most, running, len(held))


def _frozen(slots: dict[int, list[SlotRef]]) -> dict[int, tuple[SlotRef, ...]]:
    return {holder: tuple(refs) for holder, refs in slots.items()}

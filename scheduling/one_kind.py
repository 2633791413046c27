"""Jobs whose results depend on the model of their GPUs: each gets GPUs of one model, that on which it began.

A host with GPUs of several models counts as a model of its own, named after all of them. A job that has not begun gets
the model of which most GPUs are free for it, of those that have its minimum free.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from scheduling.snapshot import JobView, SlotView, Snapshot

__all__ = ["JOINT", "OneKind", "on_one_kind"]

#: Text between the models of a host that has several.
JOINT = " + "


@dataclass(frozen=True)
class OneKind:
    #: The snapshot in which such jobs can use no other hosts than those of their model.
    snapshot: Snapshot
    #: Waiting job for whose minimum there are too few GPUs of any such model -> number of GPUs that there are.
    lacking: Mapping[int, int]
    #: Job -> hosts that offer GPUs to its group, of other models.
    other_kinds: Mapping[int, frozenset[str]]


def on_one_kind(snapshot: Snapshot) -> OneKind:
    if not any(job.one_kind for job in snapshot.jobs):
        return OneKind(snapshot, {}, {})
    kind_of = _kinds_of_hosts(snapshot.slots)
    by_resource_group = defaultdict[str, list[SlotView]](list)
    for slot in snapshot.slots:
        for name in slot.resource_groups:
            by_resource_group[name].append(slot)
    groups = {group.name: group for group in snapshot.groups}
    held = defaultdict[int, list[SlotView]](list)
    for slot in snapshot.slots:
        if slot.held_by is not None:
            held[slot.held_by].append(slot)
    jobs, lacking, other_kinds = [], dict[int, int](), dict[int, frozenset[str]]()
    for job in snapshot.jobs:
        if not job.one_kind:
            jobs.append(job)
            continue
        offered = by_resource_group[groups[job.group].resource_group]
        own = held.get(job.id, ())
        usable = [*own, *(slot for slot in offered if _is_usable(slot, job))]
        kind = job.began_on or _most_common(own, kind_of) or _best_kind(usable, job, kind_of)
        others = frozenset(slot.ref.host for slot in offered if kind_of[slot.ref.host] != kind)
        count = sum(kind_of[slot.ref.host] == kind for slot in usable)
        if others:
            other_kinds[job.id] = others
            if job.state == "PENDING" and count < job.min_slots:
                lacking[job.id] = count
            job = _limited(job, kind, count, others)
        jobs.append(job if job.began_on == kind else replace(job, began_on=kind))
    return OneKind(replace(snapshot, jobs=tuple(jobs)), lacking, other_kinds)


def _kinds_of_hosts(slots: Iterable[SlotView]) -> dict[str, str]:
    found = defaultdict[str, set[str]](set)
    for slot in slots:
        found[slot.ref.host].add(slot.device)
    return {host: JOINT.join(sorted(devices)) for host, devices in found.items()}


def _is_usable(slot: SlotView, job: JobView) -> bool:
    """Return whether the job may get a slot that it does not hold."""
    return slot.claimable and slot.held_by != job.id and slot.ref.host not in job.unfit


def _most_common(slots: Iterable[SlotView], kind_of: Mapping[str, str]) -> str:
    """Return the model of which there are most slots; "": there are none."""
    counts = defaultdict[str, int](int)
    for slot in slots:
        counts[kind_of[slot.ref.host]] += 1
    return min(counts, key=lambda kind: (-counts[kind], kind), default="")


def _best_kind(usable: Collection[SlotView], job: JobView, kind_of: Mapping[str, str]) -> str:
    free, everything = defaultdict[str, int](int), defaultdict[str, int](int)
    for slot in usable:
        kind = kind_of[slot.ref.host]
        everything[kind] += 1
        free[kind] += slot.held_by is None
    starts = {kind: free[kind] >= job.min_slots for kind in everything}
    return min(
        everything,
        key=lambda kind: (not starts[kind], -free[kind] if starts[kind] else 0, -everything[kind], kind),
        default="",
    )


def _limited(job: JobView, kind: str, count: int, others: frozenset[str]) -> JobView:
    most = max(job.min_slots, min(job.max_slots, count))
    return replace(
        job,
        max_slots=most,
        kind_is_all=job.kind_is_all or most < job.max_slots,
        unprepared=job.unprepared | others,
        unfit=job.unfit | others,
    )

"""The slots of a snapshot as its instance groups see them."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from scheduling.one_kind import JOINT
from scheduling.policies.bundles import in_bundles
from scheduling.policies.demand import Demand, by_priority, by_submission
from scheduling.policies.kind_ratios import Ratios
from scheduling.policies.speedups import NO_RATIOS, JobScaling, Shape, scaling_of, scalings_of
from scheduling.policies.weighted_share import weighted_scalings
from scheduling.sharing.entitlement import SlotClass
from scheduling.sharing.slot_classes import (
    ByJob,
    Refs,
    SlotClasses,
    kind_of_class,
    resource_groups,
    slot_class,
    sort_slots,
)
from scheduling.snapshot import GroupView, JobView, SlotRef, Snapshot

__all__ = [
    "Pool",
    "RemainingSlots",
    "SlotIndex",
    "index_slots",
    "shapes_of",
    "sharing_groups",
    "too_large_for_hosts",
]

_BY_ID = attrgetter("id")
_BY_NAME = attrgetter("name")
_BY_PRIORITY = attrgetter("priority")

Key = TypeVar("Key", int, str)

#: Host -> slots, both in order.
ByHost = Mapping[str, Refs]


@dataclass(frozen=True)
class Pool:
    group: GroupView
    #: Jobs in order of id.
    jobs: tuple[JobView, ...]
    #: Nobody holds them, and they may be claimed now.
    free: ByHost
    #: Job -> slots that it holds, in service, and has not been told to give back.
    held: ByJob
    #: Job -> slots that it holds and shall leave: their host is draining or left the group, or others are to have them.
    away: ByJob
    #: Holder -> slots that it gives back, and that this group may claim once they are free.
    coming: ByJob
    #: Jobs that have not run for the group's minimum run time yet: they are not stopped.
    protected: frozenset[int] = frozenset()
    #: Jobs that hold slots which are to be another group's, though other slots would do for them -> how many. They move
    #: as soon as they keep their minimum; those of fixed size are stopped, and start elsewhere.
    displaced: Mapping[int, int] = field(default_factory=dict)
    #: Number of slots of each class it may have, where groups share only some of theirs. None: any that is open to it.
    allotted: Mapping[SlotClass, int] | None = None
    #: Jobs that are stopped whatever slots they hold, so no other has to leave in their place.
    stopped: frozenset[int] = frozenset()
    #: Jobs that wait for more slots on one host than any could have for them -> how many that would be.
    too_large_for_hosts: Mapping[int, int] = field(default_factory=dict)
    #: The moment of the snapshot, in Unix seconds.
    at: float = 0.0
    #: Hosts of each kind of GPU, the kind with most slots first; empty where the policy does not ask for them.
    shapes: tuple[Shape, ...] = ()
    #: Slot -> kind of GPU. None: it has to do with one kind at most.
    kinds: Mapping[SlotRef, str] | None = None
    #: Remembered speeds of kinds of GPU relative to others.
    ratios: Ratios = NO_RATIOS
    #: See `SlotIndex`.
    classes: SlotClasses | None = None

    @property
    def capacity(self) -> int:
        """Number of slots that its jobs may share without other groups, now or after all pending changes."""
        return self.free_count + self.in_use + _count(self.coming)

    @property
    def free_count(self) -> int:
        return _count(self.free)

    @property
    def in_use(self) -> int:
        """Slots in service that its jobs hold."""
        return _count(self.held)

    @property
    def draining(self) -> int:
        """Number of slots out of service that its fixed-size jobs keep."""
        return sum(len(refs) for job, refs in self.away.items() if not self.views[job].elastic)

    @cached_property
    def views(self) -> dict[int, JobView]:
        return {job.id: job for job in self.jobs}

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """Demands of its jobs, in the order in which they are served."""
        in_order = by_submission if self.group.policy == "fifo" else by_priority
        return tuple(in_bundles(in_order(self._demand(job) for job in self.jobs)))

    def kind_counts(self, refs: Iterable[SlotRef]) -> dict[str, int]:
        assert self.kinds is not None
        return Counter(map(self.kinds.__getitem__, refs))

    def rooms(self, pinned: Collection[int]) -> dict[str, int] | None:
        """Kind of GPU -> how many slots of it there are beside those of `pinned` jobs. None: there is one kind."""
        if self.kinds is None:
            return None
        rooms = Counter({shape.kind: 0 for shape in self.shapes})
        if self.allotted is None:
            rooms.update(self.kind_counts(chain(*self.free.values(), *self.held.values(), *self.coming.values())))
        for offered, count in (self.allotted or {}).items():
            # A class of slots that are all out of service may be of a kind that has no shape.
            if count:
                rooms[kind_of_class(offered)] += count
        rooms.subtract(self.kind_counts(ref for job in pinned for ref in self.held.get(job, ())))
        return {kind: max(0, count) for kind, count in rooms.items()}

    @cached_property
    def _gives_way(self) -> bool:
        return self.group.gives_way

    def leaving(self, moving: Mapping[int, Set[SlotRef]]) -> "Pool":
        """Return this pool with these jobs away on these slots of theirs."""
        held, away = dict(self.held), dict(self.away)
        for job, refs in moving.items():
            _take_out(held, job, refs)
            away[job] = tuple(sorted({*refs, *away.get(job, ())}))
        return replace(self, held=held, away=away)

    def _demand(self, job: JobView) -> Demand:
        held, away = self.held.get(job.id, ()), self.away.get(job.id, ())
        running = bool(held or away)
        least, most, kept = job.min_slots, job.max_slots, len(held)
        if not job.elastic:
            least = most = kept if running else job.max_slots
        elif job.id in self.displaced:
            kept += self.displaced[job.id]
        scaling: JobScaling | None = None
        scalings: dict[str, JobScaling] = {}
        held_on: dict[str, int] = {}
        if self.kinds is not None:
            held_on = self.kind_counts(held)
        if self.shapes and job.elastic:
            shapes = _shapes_for(job, self.shapes)
            if self.group.weighs_kinds:
                scalings = weighted_scalings(job, shapes, held_on, self.group)
                scaling = max(scalings.values(), key=lambda one: one.most)
            elif self.kinds is None:
                scaling = scaling_of(job, self.shapes[0], kept, self.ratios)
            else:
                scalings = scalings_of(job, shapes, held_on, self.ratios)
                scaling = max(scalings.values(), key=lambda one: one.most)
            # Without preemption nothing shrinks, a job above its knee neither.
            most = max(least, scaling.most, 0 if self.group.preemption else min(kept, most))
        hosts = self.shapes if job.one_host else ()
        host_kinds = frozenset(shape.kind for shape in hosts if shape.slots and shape.largest_host >= job.max_slots)
        is_protected = job.id in self.protected
        may_give_way = job.elastic and self._gives_way
        return Demand(
            job.id, job.priority, job.submitted_at, least, most, running, kept, is_protected,
            None, job.lasts, job.ends_at, job.backfilled_for, may_give_way,
            job.loses(len(held) + len(away), self.at), job.continues, scaling, job.gpu_seconds, job.target,
            scalings, held_on, job.target_kind, job.elastic, host_kinds, job.bundle, job.bundle_rank,
            running and job.is_restarting, job.per_gpu, job.changes,
        )  # fmt: skip


def _shapes_for(job: JobView, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Return those of the models that the job's results depend on; all if there are none of them, or any will do."""
    models = job.began_on.split(JOINT) if job.one_kind else ()
    return tuple(shape for shape in shapes if shape.kind in models) or shapes


@dataclass(frozen=True)
class SlotIndex:
    """All slots, sorted once, by who offers and who holds them."""

    snapshot: Snapshot
    #: The groups that count: those with jobs, and those that keep a quota which they do not lend. In order of name.
    groups: tuple[GroupView, ...]
    free: Mapping[SlotClass, ByHost]
    #: Group -> job -> slots; see `Pool`.
    held: Mapping[str, ByJob]
    away: Mapping[str, ByJob]
    coming: Mapping[SlotClass, ByJob]
    #: Slots in service of each class, whoever holds them, but for those whose holder is out of place there.
    sizes: Mapping[SlotClass, int]
    #: Of each slot in service; of one that a job keeps in place, its own resource group alone. None where there is one
    #: class alone.
    classes: SlotClasses | None
    members: Mapping[str, tuple[JobView, ...]]
    #: Group -> how many slots of each class its jobs hold.
    held_in: Mapping[str, Mapping[SlotClass, int]]
    #: Resource group -> classes of its slots.
    offers: Mapping[str, Sequence[SlotClass]]
    #: Resource group -> its hosts; only of groups to which kinds of GPU matter.
    shapes: Mapping[str, tuple[Shape, ...]]
    #: See `Pool`.
    kinds: Mapping[SlotRef, str] | None
    #: Group -> see `Pool`.
    too_large_for_hosts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def open_to(self, group: GroupView) -> Sequence[SlotClass]:
        return self.offers.get(group.resource_group, ())

    def classes_of(self, refs: Collection[SlotRef]) -> Counter[SlotClass]:
        """Count these slots in service by class."""
        return Counter(_by_class({0: tuple(refs)}, self.classes, self.sizes))

    def pool(self, group: GroupView) -> Pool:
        """Return the pool of a group.

        What a job has been told to give back is coming, to every group that may use it. So is what a holder has that is
        not among the snapshot's jobs: it is ending.
        """
        open_to = self.open_to(group)
        shapes = self.shapes.get(group.resource_group, ()) if _asks_for_shapes(group) else ()
        return Pool(
            at=self.snapshot.at,
            group=group,
            jobs=self.members[group.name],
            free=_joined([self.free[offered] for offered in open_to if offered in self.free]),
            held=self.held.get(group.name, {}),
            away=self.away.get(group.name, {}),
            coming=_joined([self.coming[offered] for offered in open_to if offered in self.coming]),
            protected=self._protected(group),
            too_large_for_hosts=self.too_large_for_hosts.get(group.name, {}),
            shapes=shapes if group.policy == "goodput" or len(shapes) > 1 else (),
            kinds=self.kinds if len(shapes) > 1 else None,
            ratios=self.ratios,
            classes=self.classes,
        )

    @cached_property
    def ratios(self) -> Ratios:
        return Ratios(self.snapshot.ratios) if self.snapshot.ratios else NO_RATIOS

    def movable_for(self, group: GroupView, jobs: Iterable[JobView]) -> Iterator[tuple[int, SlotRef]]:
        """Slots that a group may use and that elastic ones of these jobs hold, who would do with others as well."""
        for job in jobs:
            for ref in self.held.get(job.group, {}).get(job.id, ()) if job.elastic else ():
                if self.is_open_to(group, ref):
                    yield job.id, ref

    def is_open_to(self, group: GroupView, ref: SlotRef) -> bool:
        return self.classes is None or group.resource_group in self.classes[ref]

    def with_too_large(self, jobs: Mapping[int, int]) -> "SlotIndex":
        """Return this index with further jobs that are too large for any host; see `Pool.too_large_for_hosts`."""
        found = {name: dict(known) for name, known in self.too_large_for_hosts.items()}
        for job in chain.from_iterable(self.members.values()):
            if job.id in jobs:
                found.setdefault(job.group, {})[job.id] = jobs[job.id]
        return replace(self, too_large_for_hosts=found)

    def beside_free(self) -> "SlotIndex":
        """Return this index without what is free or coming: all that counts for how many slots each job gets."""
        return replace(self, free={}, coming={})

    def _protected(self, group: GroupView) -> frozenset[int]:
        if not group.minimum_run_seconds:
            return frozenset()
        since = self.snapshot.at - group.minimum_run_seconds
        return frozenset(job.id for job in self.members[group.name] if _is_protected(job, since))


def index_slots(snapshot: Snapshot) -> SlotIndex:
    members: dict[str, list[JobView]] = defaultdict(list)
    for job in sorted(snapshot.jobs, key=_BY_ID):
        members[job.group].append(job)
    unknown = members.keys() - {group.name for group in snapshot.groups}
    assert not unknown, f"jobs of groups that the snapshot lacks: {sorted(unknown)}"
    counted = (one for one in snapshot.groups if one.name in members or (one.quota and one.keeps_quota))
    groups = tuple(sorted(counted, key=_BY_NAME))
    relevant = frozenset(group.resource_group for group in groups)
    shapes = {
        name: shapes_of(snapshot, name)
        for name in sorted({group.resource_group for group in groups if _asks_for_shapes(group)})
    }
    kinds = None
    if any(len(found) > 1 for found in shapes.values()):
        kinds = {slot.ref: slot.device for slot in snapshot.slots}
    sorted_slots = sort_slots(snapshot, groups, relevant, kinds)
    kept = _kept_in_place(snapshot, groups, sorted_slots.held, kinds)
    found = sorted({*sorted_slots.classes, *kept.values()}, key=sorted)
    classes = SlotClasses(sorted_slots.runs, kept) if len(found) > 1 else None
    free, coming = dict(sorted_slots.free), dict(sorted_slots.coming)
    sizes = {offered: 0 for offered in found if offered}
    for there in (free, coming):
        for offered, slots in there.items():
            sizes[offered] += _count(slots)
    held_in: Mapping[str, Mapping[SlotClass, int]] = sorted_slots.held_in
    if kept:
        held_in = {name: _by_class(held, classes, found) for name, held in sorted_slots.held.items()}
    for offered, count in chain.from_iterable(counts.items() for counts in held_in.values()):
        sizes[offered] += count
    offers: dict[str, list[SlotClass]] = defaultdict(list)
    for offered in sizes:
        for name in offered:
            offers[name].append(offered)
    index = SlotIndex(
        snapshot=snapshot,
        groups=groups,
        free=free,
        held=sorted_slots.held,
        away=sorted_slots.away,
        coming=coming,
        sizes=sizes,
        classes=classes,
        members={group.name: tuple(members[group.name]) for group in groups},
        held_in=held_in,
        offers=offers,
        shapes=shapes,
        kinds=kinds,
    )
    return replace(index, too_large_for_hosts={group.name: _too_large_for_hosts(index, group) for group in groups})


def _asks_for_shapes(group: GroupView) -> bool:
    return group.policy == "goodput" or group.weighs_kinds


def _too_large_for_hosts(index: SlotIndex, group: GroupView) -> dict[int, int]:
    held, away = index.held.get(group.name, {}), index.away.get(group.name, {})
    jobs = index.members[group.name] if group.started else ()
    waiting = [job for job in jobs if job.one_host and job.id not in held and job.id not in away]
    if not waiting:
        return {}
    pool = index.pool(group)
    movable = (ref for _, ref in index.movable_for(group, [job for jobs in index.members.values() for job in jobs]))
    stops = group.preemption and group.policy == "priority"
    fixed = [job for job in jobs if stops and not job.elastic and job.id not in pool.protected]
    stoppable = [(job.priority, held.get(job.id, ())) for job in fixed]
    return too_large_for_hosts(waiting, chain(*pool.free.values(), *pool.coming.values(), movable), stoppable)


def too_large_for_hosts(
    waiting: Iterable[JobView], usable: Iterable[SlotRef], stoppable: Iterable[tuple[int, Sequence[SlotRef]]] = ()
) -> dict[int, int]:
    """Job that needs one host -> the most slots that any could have for it, which is less than it needs.

    usable: slots that are free, coming, or held by elastic jobs. stoppable: priority and slots of each job that is
    stopped for a higher one, and leaves its host, too: else one that starts there would keep it out.
    """
    there, lower = Counter(ref.host for ref in usable), deque(sorted(stoppable, key=itemgetter(0)))
    most, found = max(there.values(), default=0), dict[int, int]()
    for job in sorted(waiting, key=_BY_PRIORITY):
        while lower and lower[0][0] < job.priority:
            for ref in lower.popleft()[1]:
                there[ref.host] += 1
                most = max(most, there[ref.host])
        if job.max_slots > most:
            found[job.id] = most
    return found


def shapes_of(snapshot: Snapshot, resource_group: str) -> tuple[Shape, ...]:
    """The hosts of each kind of GPU: first of the kind that most slots are; one without hosts if there are none."""
    offered = [slot for slot in snapshot.slots if slot.claimable and resource_group in slot.resource_groups]
    hosts_of: dict[str, Counter[str]] = defaultdict(Counter)
    for (kind, host), count in Counter((slot.device, slot.ref.host) for slot in offered).items():
        hosts_of[kind][host] = count
    found = [Shape(tuple(sorted(hosts.values(), reverse=True)), kind, hosts) for kind, hosts in hosts_of.items()]
    return tuple(sorted(found, key=lambda shape: (-shape.slots, shape.kind))) or (Shape(()),)


def _kept_in_place(
    snapshot: Snapshot,
    groups: Iterable[GroupView],
    held: Mapping[str, ByJob],
    kinds: Mapping[SlotRef, str] | None,
) -> dict[SlotRef, SlotClass]:
    """Slots of protected jobs that cannot move: those of fixed size, and elastic ones whose slots in service are fewer
    than their minimum. These jobs do not stop either, so only their own resource group can count on the slots."""
    since = {group.name: snapshot.at - group.minimum_run_seconds for group in groups if group.minimum_run_seconds}
    home_of = {group.name: frozenset({group.resource_group}) for group in groups}
    return {
        ref: slot_class(home_of[job.group], [] if kinds is None else [kinds[ref]])
        for job in snapshot.jobs
        if job.group in since and _is_protected(job, since[job.group])
        if (refs := held.get(job.group, {}).get(job.id, ())) and (not job.elastic or len(refs) < job.min_slots)
        for ref in refs
    }


def _is_protected(job: JobView, since: float) -> bool:
    return job.started_at is not None and job.started_at > since


def _by_class(slots: ByJob, classes: SlotClasses | None, found: Iterable[SlotClass]) -> dict[SlotClass, int]:
    """Number of these slots of each class. `classes` is None where only one is found."""
    if classes is None:
        return {offered: _count(slots) for offered in found}
    return Counter(map(classes.__getitem__, chain.from_iterable(slots.values())))


def sharing_groups(groups: Iterable[GroupView], offers: Collection[SlotClass]) -> Iterator[tuple[GroupView, ...]]:
    """Groups that share slots, directly or by way of others. `offers`: who offers the same slots."""
    left = list(groups)
    while left:
        names = {left[0].resource_group}
        while more := {name for offered in offers if offered & names for name in resource_groups(offered)} - names:
            names |= more
        yield tuple(group for group in left if group.resource_group in names)
        left = [group for group in left if group.resource_group not in names]


class RemainingSlots:
    """Remainder of what is free and coming, while one group after the other counts on some of it."""

    def __init__(self, index: SlotIndex) -> None:
        self._free = {offered: dict(free) for offered, free in index.free.items()}
        self._coming = {offered: dict(coming) for offered, coming in index.coming.items()}
        self._index = replace(index, free=self._free, coming=self._coming)

    def take(self, group: GroupView, slots: Sequence[SlotRef]) -> None:
        """Keep these slots for the group, which counts on them."""
        taken = defaultdict[str, list[SlotRef]](list)
        for ref in slots:
            taken[ref.host].append(ref)
        everything = frozenset(slots) if self._coming else frozenset()
        for offered in self._index.open_to(group):
            if free := self._free.get(offered):
                for host in free.keys() & taken.keys():
                    _take_out(free, host, taken[host])
            coming = self._coming.get(offered, {})
            for job in list(coming):
                _take_out(coming, job, everything)

    def pool(self, pool: Pool, leaving: Collection[SlotRef]) -> Pool:
        """Return the pool with what is left, as far as that is allotted to it, beside slots that its jobs leave."""
        group, index = pool.group, self._index
        if pool.allotted is None:
            found = index.pool(group)
            return replace(found, free=dict(found.free), coming=dict(found.coming))
        free, coming = [], []
        staying = Counter(index.held_in.get(group.name, {}))
        staying.subtract(index.classes_of(leaving))
        for offered in index.open_to(group):
            left = pool.allotted.get(offered, 0) - staying[offered]
            if left > 0 and offered in index.free:
                free.append(_first(index.free[offered], left))
                left -= _count(free[-1])
            if left > 0 and offered in index.coming:
                coming.append(_first(index.coming[offered], left))
        return replace(pool, free=_joined(free), coming=_joined(coming))


def _first(slots: Mapping[Key, Refs], count: int) -> dict[Key, Refs]:
    """Return the first `count` of these slots."""
    found: dict[Key, Refs] = {}
    for key, refs in slots.items():
        if count <= 0:
            break
        found[key] = refs[:count]
        count -= len(refs)
    return found


def _count(slots: Mapping[Any, Refs]) -> int:
    return sum(map(len, slots.values()))


def _joined(parts: Sequence[Mapping[Key, Refs]]) -> Mapping[Key, Refs]:
    if len(parts) == 1:
        return parts[0]
    found: dict[Key, list[Refs]] = defaultdict(list)
    for key, refs in chain.from_iterable(part.items() for part in parts):
        found[key].append(refs)
    return {key: tuple(sorted(chain(*found[key]))) if len(found[key]) > 1 else found[key][0] for key in sorted(found)}


def _take_out(slots: dict[Key, Refs], key: Key, taken: Collection[SlotRef]) -> None:
    """Leave out those of `taken` at this key of `slots`."""
    # Most often all of a host.
    left = () if list(slots[key]) == taken else tuple([ref for ref in slots[key] if ref not in taken])
    if left:
        slots[key] = left
    else:
        del slots[key]

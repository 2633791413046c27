"""The slots of a snapshot as its instance groups see them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

from scheduling.entitlement import SlotClass
from scheduling.policies import Demand, by_priority, by_submission
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot

__all__ = ["ByJob", "Pool", "SlotIndex", "confine", "index_slots", "sharing_groups"]

_BY_REF = attrgetter("ref")
_BY_ID = attrgetter("id")
_BY_NAME = attrgetter("name")
_BY_OFFER = attrgetter("ref.host", "resource_groups", "claimable")
_NOWHERE: SlotClass = frozenset()

Key = TypeVar("Key", int, str)

Refs = tuple[SlotRef, ...]
#: Job -> slots, in order of (host, index).
ByJob = Mapping[int, Refs]
#: Host -> slots, both in order.
ByHost = Mapping[str, Refs]


@dataclass(frozen=True)
class Pool:
    group: GroupView
    #: In order of id.
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
    #: How many slots of each class it may have, where groups share only some of theirs. None: any that is open to it.
    allotted: Mapping[SlotClass, int] | None = None

    @property
    def capacity(self) -> int:
        """How many slots its jobs may share, now or once they have changed hands, if no other group is there."""
        return self.free_count + self.in_use + _count(self.coming)

    @property
    def free_count(self) -> int:
        return _count(self.free)

    @property
    def in_use(self) -> int:
        """Slots in service that its jobs hold."""
        return _count(self.held)

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """What its jobs ask for, in the order in which they are served."""
        in_order = by_submission if self.group.policy == "fifo" else by_priority
        return tuple(in_order(self._demand(job) for job in self.jobs))

    def _demand(self, job: JobView) -> Demand:
        held, away = self.held.get(job.id, ()), self.away.get(job.id, ())
        running = bool(held or away)
        least, most, kept = job.min_slots, job.max_slots, len(held)
        if not job.elastic:
            least = most = kept if running else job.max_slots
        elif job.id in self.displaced:
            kept += self.displaced[job.id]
        return Demand(job.id, job.priority, job.submitted_at, least, most, running, kept, job.id in self.protected)


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
    #: Of each slot that may be claimed. Empty where there is one class alone.
    classes: Mapping[SlotRef, SlotClass]
    members: Mapping[str, tuple[JobView, ...]]

    def open_to(self, group: GroupView) -> list[SlotClass]:
        return [offered for offered in self.sizes if group.resource_group in offered]

    def held_in(self, group: GroupView) -> Mapping[SlotClass, int]:
        """How many slots of each class its jobs hold."""
        return _by_class(self.held.get(group.name, {}), self.classes, self.sizes)

    def pool(self, group: GroupView) -> Pool:
        """A holder that is not among the snapshot's jobs is ending: what it holds is coming, to every group that may
        use it; so is what a job has been told to give back."""
        open_to = self.open_to(group)
        return Pool(
            group=group,
            jobs=self.members[group.name],
            free=_joined([self.free[offered] for offered in open_to if offered in self.free]),
            held=self.held.get(group.name, {}),
            away=self.away.get(group.name, {}),
            coming=_joined([self.coming[offered] for offered in open_to if offered in self.coming]),
            protected=self._protected(group),
        )

    def without(self, counted_on: Set[SlotRef]) -> "SlotIndex":
        """What is left of what is free and coming, if some groups count on these slots."""
        hosts = {ref.host for ref in counted_on}
        return replace(
            self,
            free={offered: _less(free, hosts, counted_on) for offered, free in self.free.items()},
            coming={offered: _less(coming, coming.keys(), counted_on) for offered, coming in self.coming.items()},
        )

    def _protected(self, group: GroupView) -> frozenset[int]:
        if not group.minimum_run_seconds:
            return frozenset()
        since = self.snapshot.at - group.minimum_run_seconds
        return frozenset(
            job.id for job in self.members[group.name] if job.started_at is not None and job.started_at > since
        )


def index_slots(snapshot: Snapshot) -> SlotIndex:
    members: dict[str, list[JobView]] = defaultdict(list)
    for job in sorted(snapshot.jobs, key=_BY_ID):
        members[job.group].append(job)
    unknown = members.keys() - {group.name for group in snapshot.groups}
    assert not unknown, f"jobs of groups that the snapshot lacks: {sorted(unknown)}"
    counted = (one for one in snapshot.groups if one.name in members or (one.quota and not one.lends))
    groups = tuple(sorted(counted, key=_BY_NAME))
    relevant = frozenset(group.resource_group for group in groups)
    class_of = {names: relevant.intersection(names) for names in {slot.resource_groups for slot in snapshot.slots}}
    shelves = _shelved(snapshot, groups, class_of)
    found = sorted(set(class_of.values()), key=sorted)
    classes: dict[SlotRef, SlotClass] = {}
    if len(found) > 1:
        classes = {slot.ref: class_of[slot.resource_groups] for slot in snapshot.slots if slot.claimable}
    sizes = {offered: _count(shelves.free[offered]) + _count(shelves.coming[offered]) for offered in found if offered}
    for held in shelves.held.values():
        for offered, count in _by_class(held, classes, found).items():
            sizes[offered] += count
    return SlotIndex(
        snapshot=snapshot,
        groups=groups,
        free=shelves.free,
        held=shelves.held,
        away=shelves.away,
        coming=shelves.coming,
        sizes=sizes,
        classes=classes,
        members={group.name: tuple(members[group.name]) for group in groups},
    )


def _by_class(slots: ByJob, classes: Mapping[SlotRef, SlotClass], found: Iterable[SlotClass]) -> dict[SlotClass, int]:
    """How many slots of each class these are. `classes` is empty where only one is found."""
    if not classes:
        return {offered: _count(slots) for offered in found}
    return Counter(classes[ref] for refs in slots.values() for ref in refs)


@dataclass
class _Shelves:
    """See `SlotIndex`."""

    free: dict[SlotClass, dict[str, Refs]] = field(default_factory=lambda: defaultdict(dict))
    held: dict[str, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))
    away: dict[str, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))
    coming: dict[SlotClass, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))


def _shelved(
    snapshot: Snapshot, groups: Iterable[GroupView], class_of: Mapping[tuple[str, ...], SlotClass]
) -> _Shelves:
    # Very many slots come by here: what can be found out once for a holder is not asked for each of its slots.
    by_holder: dict[int | None, list[SlotView]] = defaultdict(list)
    for slot in sorted(snapshot.slots, key=_BY_REF):
        by_holder[slot.held_by].append(slot)
    shelves = _Shelves()
    _shelve_free(shelves, by_holder.pop(None, []), class_of)
    jobs = {job.id: job for job in snapshot.jobs if job.state != "PENDING"}
    home_of = {group.name: group.resource_group for group in groups}
    for number, slots in by_holder.items():
        assert number is not None
        group = jobs[number].group if number in jobs else None
        home = home_of[group] if group is not None else None
        held: list[SlotRef] = []
        away: list[SlotRef] = []
        coming: dict[SlotClass, list[SlotRef]] = defaultdict(list)
        for slot in slots:
            offered = class_of[slot.resource_groups] if slot.claimable else _NOWHERE
            if home is not None and not slot.vacating:
                (held if home in offered else away).append(slot.ref)
            elif offered:
                coming[offered].append(slot.ref)
        if group is not None and held:
            shelves.held[group][number] = tuple(held)
        if group is not None and away:
            shelves.away[group][number] = tuple(away)
        for offered, refs in coming.items():
            shelves.coming[offered][number] = tuple(refs)
    return shelves


def _shelve_free(shelves: _Shelves, slots: Iterable[SlotView], class_of: Mapping[tuple[str, ...], SlotClass]) -> None:
    for (host, names, claimable), there in groupby(slots, key=_BY_OFFER):
        if claimable and class_of[names]:
            free = shelves.free[class_of[names]]
            free[host] = free.get(host, ()) + tuple(map(_BY_REF, there))


def sharing_groups(groups: Iterable[GroupView], offers: Collection[SlotClass]) -> Iterator[tuple[GroupView, ...]]:
    """Groups that share slots, directly or by way of others. `offers`: who offers the same slots."""
    left = list(groups)
    while left:
        names = {left[0].resource_group}
        while more := {name for offered in offers if offered & names for name in offered} - names:
            names |= more
        yield tuple(group for group in left if group.resource_group in names)
        left = [group for group in left if group.resource_group not in names]


def confine(pool: Pool, classes: Mapping[SlotRef, SlotClass]) -> Pool:
    """The pool with no more slots of any class than are allotted to it; what is held beyond that is to be left."""
    assert pool.allotted is not None
    left = Counter(pool.allotted)
    left.subtract(_by_class(pool.held, classes, pool.allotted))

    def taken(refs: Iterable[SlotRef]) -> Refs:
        result = []
        for ref in refs:
            if left[classes[ref]] > 0:
                left[classes[ref]] -= 1
                result.append(ref)
        return tuple(result)

    displaced = _displaced(pool, {offered: -count for offered, count in left.items() if count < 0}, classes)
    free = {host: some for host, refs in pool.free.items() if (some := taken(refs))}
    coming = {holder: some for holder, refs in pool.coming.items() if (some := taken(refs))}
    elastic = {job.id for job in pool.jobs if job.elastic}
    moving = {job: frozenset(refs) for job, refs in displaced.items() if job in elastic}
    staying = _less(pool.held, moving.keys(), frozenset().union(*moving.values()))
    away = dict(pool.away)
    for job, refs in moving.items():
        away[job] = tuple(sorted(refs.union(away.get(job, ()))))
    counts = {job: len(refs) for job, refs in displaced.items()}
    return replace(pool, free=free, coming=coming, held=staying, away=away, displaced=counts)


def _displaced(
    pool: Pool, excess: dict[SlotClass, int], classes: Mapping[SlotRef, SlotClass]
) -> dict[int, list[SlotRef]]:
    """Job -> which of its slots it shall leave: of elastic jobs first, and the newest ones of the lowest priority."""
    found: dict[int, list[SlotRef]] = {}
    if not excess:
        return found
    for job in sorted(pool.jobs, key=lambda job: (not job.elastic, job.priority, -job.submitted_at, -job.id)):
        if not job.elastic and job.id in pool.protected:
            continue
        for ref in reversed(pool.held.get(job.id, ())):
            if excess.get(classes[ref], 0) > 0:
                excess[classes[ref]] -= 1
                found.setdefault(job.id, []).append(ref)
    return found


def _count(slots: Mapping[Any, Refs]) -> int:
    return sum(map(len, slots.values()))


def _joined(parts: Sequence[Mapping[Key, Refs]]) -> Mapping[Key, Refs]:
    if len(parts) == 1:
        return parts[0]
    keys = sorted({key for part in parts for key in part})
    return {key: tuple(sorted(chain.from_iterable(part.get(key, ()) for part in parts))) for key in keys}


def _less(slots: Mapping[Key, Refs], where: Set[Key], taken: Set[SlotRef]) -> dict[Key, Refs]:
    """`slots` without those of `taken`, which are at these keys."""
    left = dict(slots)
    for key in where & left.keys():
        left[key] = tuple(ref for ref in left[key] if ref not in taken)
        if not left[key]:
            del left[key]
    return left

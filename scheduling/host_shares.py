"""Cores and memory as further dimensions of a host: a GPU that needs more than its share counts as several.

A slot stands for its share of its host's cores and memory. A job that asks for more with each GPU takes further slots
of the same host, as many as together stand for what it needs. No rank runs on these *companions*. So no core and no
byte is promised twice, and every rule about slots holds for cores and memory as well: quotas, fair shares,
reservations, backfill, victims.

Before a cycle, the snapshot is expanded: such a job asks for `per_gpu` times as many slots, and holds its companions.
After it, the real slots are picked from those that the job has on each host. Without such a job, nothing is done.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import ceil, inf
from typing import NamedTuple

from scheduling.placement.slot_choice import JobSlots
from scheduling.placement.slots_by_host import SlotsLeft, by_host
from scheduling.sharing.decision import Decision
from scheduling.sharing.pool import Pool, SlotIndex
from scheduling.snapshot import JobView, Share, SlotRef, SlotView, Snapshot

__all__ = ["Counting", "Expansion", "HostKinds", "counting_on", "expand", "slots_for", "within_hosts"]

#: Tolerance of a quotient of cores.
_SLACK = 1e-6
_ByJob = Mapping[int, JobSlots]
#: Places of a job's slots: host, job, whether they are being given back.
_Place = tuple[str, int, bool]


class Counting(NamedTuple):
    """The number of slots that a job's GPUs count as."""

    per_gpu: int
    #: Hosts of its resource group that cannot give that much with a GPU.
    unfit: frozenset[str] = frozenset()


def slots_for(wish: Share, share: Share | None) -> float:
    """Return the number of slots that stand for a wish on a host; infinite: none would do.

    share: what one slot of the host stands for; None: unknown, so that one slot is taken to be enough.
    """
    if share is None:
        return 1
    asked = ((wish.cores, share.cores), (wish.memory, share.memory))
    if any(need and not has for need, has in asked):
        return inf
    return max([1, *(ceil(need / has - _SLACK) for need, has in asked if need)])


class _Kind(NamedTuple):
    """A kind of host: what one of its slots stands for, None: unknown; and how many it has."""

    share: Share | None
    size: int


class HostKinds:
    """Hosts of a resource group by what they have: there are few kinds, however many hosts."""

    def __init__(self, sizes: Mapping[str, int], shares: Mapping[str, Share]) -> None:
        """sizes: slots of each host. shares: what a slot of it stands for, as far as that is known."""
        self.kinds = {host: _Kind(shares.get(host), size) for host, size in sizes.items()}
        self.numbers = Counter(self.kinds.values())
        self._hosts: dict[frozenset[_Kind], frozenset[str]] = {}

    def hosts_of(self, kinds: frozenset[_Kind]) -> frozenset[str]:
        """Return the hosts of these kinds, the same set for the same kinds."""
        if kinds not in self._hosts:
            self._hosts[kinds] = frozenset(host for host, kind in self.kinds.items() if kind in kinds)
        return self._hosts[kinds]


def counting_on(wish: Share, least: int, hosts: HostKinds, held_on: Collection[str] = ()) -> Counting:
    """Return what GPUs with a wish count as: the least number that some hosts give `least` GPUs with.

    hosts: those of the job's resource group. held_on: hosts where it trains already, which it keeps.
    """
    needed = {kind: slots_for(wish, kind.share) for kind in hosts.numbers}
    held = (hosts.kinds[host] for host in held_on if host in hosts.kinds)
    kept = max((min(needed[kind], kind.size) for kind in held), default=1)
    counts = sorted({int(count) for kind, count in needed.items() if kept <= count <= kind.size})

    def gpus(count: int) -> int:
        return sum(kind.size // count * number for kind, number in hosts.numbers.items() if needed[kind] <= count)

    enough = (count for count in counts if gpus(count) >= least)
    per_gpu = next(enough, max(counts, key=gpus, default=int(kept)))
    unfit = hosts.hosts_of(frozenset(kind for kind, count in needed.items() if count > per_gpu))
    return Counting(per_gpu, unfit if unfit.isdisjoint(held_on) else unfit.difference(held_on))


@dataclass(frozen=True)
class Expansion:
    real: Snapshot
    #: The snapshot in which jobs ask for all slots that they count as, and hold their companions.
    snapshot: Snapshot
    #: Jobs whose GPUs count as several, or not everywhere.
    countings: Mapping[int, Counting]

    @cached_property
    def _held(self) -> dict[int, dict[str, list[SlotRef]]]:
        """Job -> host -> real slots that it holds and has not been told to give back."""
        found: dict[int, dict[str, list[SlotRef]]] = defaultdict(lambda: defaultdict(list))
        for slot in self.real.slots:
            if slot.held_by is not None and slot.held_by in self.countings and not slot.vacating:
                found[slot.held_by][slot.ref.host].append(slot.ref)
        return found

    @cached_property
    def _free(self) -> set[SlotRef]:
        hosts = {slot.ref.host for slot in self.snapshot.slots if slot.held_by in self.countings}
        usable = (slot for slot in self.real.slots if slot.claimable and slot.held_by is None)
        return {slot.ref for slot in usable if slot.ref.host in hosts or slot.resource_groups}

    @cached_property
    def _views(self) -> dict[int, JobView]:
        return {job.id: job for job in self.real.jobs if job.id in self.countings}

    def real_slots(self, job: int, counted: JobSlots) -> JobSlots:
        """Return a job's slots without companions."""
        if job not in self.countings or self.countings[job].per_gpu == 1:
            return counted
        view, held, per_gpu = self._views[job], self._held.get(job, {}), self.countings[job].per_gpu
        mine = sorted(ref for refs in held.values() for ref in refs)
        if counted.preempt or not (counted.target or mine):
            return replace(counted, target=0, kept=(), claim=(), vacate=tuple(mine), kept_for=())
        kept, claim = self._picked(held, counted, per_gpu)
        has, least = len(kept) + len(claim), view.min_slots if view.elastic else view.max_slots
        if not mine:
            claim = claim if has >= least else []
        elif not view.elastic or has < view.min_slots:
            # Less than it needs: it goes on where it is, and gives nothing back.
            kept, claim = mine, []
        target = max(counted.target // per_gpu, len(kept) + len(claim))
        return replace(
            counted,
            target=target,
            kept=tuple(sorted(kept)),
            claim=tuple(claim),
            vacate=tuple(sorted(set(mine).difference(kept))),
            leaving=tuple(ref for ref in counted.leaving if ref in set(kept)),
            makes_room=tuple(ref for ref in counted.makes_room if ref in set(mine)),
            kept_for=counted.kept_for[: len(counted.kept_for) // per_gpu],
        )

    def _picked(
        self, held: Mapping[str, list[SlotRef]], counted: JobSlots, per_gpu: int
    ) -> tuple[list[SlotRef], list[SlotRef]]:
        """Return the slots of a job's ranks: those that it keeps, and those that it claims, on each host one for so
        many that it has there."""
        kept, claim, there = list[SlotRef](), list[SlotRef](), defaultdict[str, list[SlotRef]](list)
        for ref in counted.kept + counted.claim:
            there[ref.host].append(ref)
        for host, refs in there.items():
            mine, count = set(held.get(host, ())), len(refs) // per_gpu
            staying = sorted(mine.intersection(refs)) + sorted(mine.difference(refs))
            kept += staying[:count]
            claim += [ref for ref in sorted(refs) if ref in self._free][: max(0, count - len(staying))]
        return kept, claim


def expand(snapshot: Snapshot) -> Expansion | None:
    """Return the expanded snapshot; None if every GPU counts as one everywhere."""
    wishing = [job for job in snapshot.jobs if job.wish is not None]
    if not (wishing or snapshot.ending):
        return None
    groups = {group.name: group.resource_group for group in snapshot.groups}
    sizes = _sizes(snapshot, {groups[job.group] for job in wishing})
    hosts = {name: HostKinds(of_group, snapshot.shares) for name, of_group in sizes.items()}
    held_on = defaultdict[int, set[str]](set)
    for slot in snapshot.slots:
        if slot.held_by is not None and not slot.vacating:
            held_on[slot.held_by].add(slot.ref.host)
    countings = {}
    for job in wishing:
        assert job.wish is not None
        least = job.min_slots if job.elastic else job.max_slots
        found = counting_on(job.wish, least, hosts[groups[job.group]], held_on.get(job.id, ()))
        if found != (1, frozenset()):
            countings[job.id] = found
    per_gpu = {job: counting.per_gpu for job, counting in countings.items()}
    if not (countings or snapshot.ending):
        return None
    jobs = tuple(_expanded(job, countings[job.id]) if job.id in countings else job for job in snapshot.jobs)
    slots = _with_companions(snapshot, per_gpu)
    return Expansion(snapshot, replace(snapshot, jobs=jobs, slots=slots, shares={}, ending={}), countings)


def _sizes(snapshot: Snapshot, names: Collection[str]) -> dict[str, Counter[str]]:
    """Return resource group -> host -> slots."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for slot in snapshot.slots:
        for name in slot.resource_groups:
            if name in found:
                found[name][slot.ref.host] += 1
    return found


def _expanded(job: JobView, counting: Counting) -> JobView:
    per_gpu = counting.per_gpu
    return replace(
        job,
        min_slots=job.min_slots * per_gpu,
        max_slots=job.max_slots * per_gpu,
        per_gpu=per_gpu,
        target=job.target and job.target * per_gpu,
        # A profile counts GPUs.
        profile=job.profile if per_gpu == 1 else None,
        unprepared=job.unprepared | counting.unfit if job.unprepared else counting.unfit,
        unfit=job.unfit | counting.unfit if job.unfit else counting.unfit,
    )


def _with_companions(snapshot: Snapshot, per_gpu: Mapping[int, int]) -> tuple[SlotView, ...]:
    """Return the slots, of which jobs hold as many as their GPUs count as, as far as there are free ones."""
    ranks, free = defaultdict[_Place, list[SlotView]](list), defaultdict[str, list[SlotView]](list)
    for slot in snapshot.slots:
        if slot.held_by is None:
            free[slot.ref.host].append(slot)
        elif per_gpu.get(slot.held_by, 1) > 1 or slot.held_by in snapshot.ending:
            ranks[slot.ref.host, slot.held_by, slot.vacating].append(slot)
    found: dict[SlotRef, SlotView] = {}
    for (host, job, vacating), there in sorted(ranks.items()):
        like = there[0]
        count = per_gpu.get(job, 0) or _ending_count(snapshot, job, host)
        # A slot whose GPU is out of service still has its cores; then those that are of no use to other groups.
        candidates = sorted(free[host], key=lambda slot: (slot.claimable, slot.resource_groups != like.resource_groups))
        for slot in candidates[: (count - 1) * len(there)]:
            found[slot.ref] = replace(like, ref=slot.ref, held_by=job, vacating=vacating)
        free[host] = [slot for slot in free[host] if slot.ref not in found]
    return tuple(found.get(slot.ref, slot) for slot in snapshot.slots) if found else snapshot.slots


def _ending_count(snapshot: Snapshot, job: int, host: str) -> int:
    count = slots_for(snapshot.ending[job], snapshot.shares.get(host))
    return len(snapshot.slots) if count == inf else int(count)


class Limits(NamedTuple):
    """Changes after which counted jobs get no slots that make no GPU."""

    jobs: tuple[JobView, ...]
    #: Jobs that no host has room for -> the most slots that one has.
    too_large: Mapping[int, int]


def within_hosts(expansion: Expansion, groups: Iterable[tuple[Decision, _ByJob]], index: SlotIndex) -> Limits | None:
    """Return what has to change because a GPU's slots are on one host; None: nothing.

    A job's maximum is lowered to what it makes use of. One that waits and would find too little on any way starts with
    its minimum on one host, which elastic jobs leave for it, or else waits, and others may overtake it.
    """
    groups = [*groups]
    room, largest_hosts = _Room(groups, index), _LargestHosts(expansion)
    changed, too_large = dict[int, JobView](), dict[int, int]()
    for decision, placed in groups:
        for demand in decision.demands:
            view, slots = decision.pool.views[demand.id], placed[demand.id]
            if demand.id not in expansion.countings or not slots.target or (view.one_host and not demand.running):
                continue
            most = room.most_for(decision, view, slots)
            least = view.min_slots if view.elastic else view.max_slots
            if demand.running:
                if view.elastic and max(most, view.min_slots) < view.max_slots and most < slots.target:
                    changed[demand.id] = replace(view, max_slots=max(most, view.min_slots))
            elif most >= least:
                if most < slots.target:
                    changed[demand.id] = replace(view, max_slots=most)
            elif (largest := largest_hosts.size_for(decision.pool.group.resource_group, view.unfit)) >= least:
                changed[demand.id] = replace(view, one_host=True, elastic=False, min_slots=least, max_slots=least)
            else:
                too_large[demand.id] = largest
    if not (changed or too_large):
        return None
    return Limits(tuple(changed.get(job.id, job) for job in expansion.snapshot.jobs), too_large)


class _LargestHosts:
    """The most slots in service that a host of a resource group has, counted once for each set of unfit hosts."""

    def __init__(self, expansion: Expansion) -> None:
        self._slots = expansion.snapshot.slots
        self._found: dict[tuple[str, frozenset[str]], int] = {}

    def size_for(self, resource_group: str, unfit: frozenset[str]) -> int:
        key = resource_group, unfit
        if key not in self._found:
            slots = (slot for slot in self._slots if slot.claimable and resource_group in slot.resource_groups)
            sizes = Counter(slot.ref.host for slot in slots if slot.ref.host not in unfit)
            self._found[key] = max(sizes.values(), default=0)
        return self._found[key]


class _Room:
    """Slots that jobs may still get after a cycle, each promised to one job."""

    def __init__(self, groups: Iterable[tuple[Decision, _ByJob]], index: SlotIndex) -> None:
        placed = [slots for _, found in groups for slots in found.values()]
        self._index = index
        self._vacated = [ref for slots in placed for ref in slots.vacate]
        self._taken = {ref for slots in placed for ref in slots.claim + slots.kept_for}
        #: Slots open to a group, whose jobs come one after the other.
        self._open_to: tuple[Decision, SlotsLeft] | None = None

    def most_for(self, decision: Decision, view: JobView, slots: JobSlots) -> int:
        """Return the slots, at most its target, of which the job makes use once others have left theirs."""
        own, per_gpu = Counter(ref.host for ref in slots.kept + slots.claim), view.per_gpu
        most, wanted = sum(count // per_gpu for count in own.values()), slots.target // per_gpu
        if most >= wanted:
            return most * per_gpu
        left = self._left_to(decision)
        there = left.on_others(view.unfit)
        found = list[SlotRef]()
        for host in sorted(own, key=lambda host: (-there.size_of(host), host)):
            begun = own[host] % per_gpu
            more = min(wanted - most, (begun + there.size_of(host)) // per_gpu)
            found += there.take_on({host}, more * per_gpu - begun)
            most += more
        whole = there.take_whole((wanted - most) * per_gpu, per_gpu, ())
        self._taken.update(left.taken(found + whole, there))
        return most * per_gpu + len(whole)

    def _left_to(self, decision: Decision) -> SlotsLeft:
        if self._open_to is None or self._open_to[0] is not decision:
            pool = decision.pool
            offered = chain(*pool.free.values(), *pool.coming.values())
            left = {*offered, *self._vacated_for(pool)}.difference(self._taken)
            self._open_to = decision, SlotsLeft(by_host(left))
        return self._open_to[1]

    def _vacated_for(self, pool: Pool) -> Iterator[SlotRef]:
        """Yield the slots that jobs leave and the group may have: on each host no more of a class than it is allotted
        beside those that its jobs keep and those offered to it, or it would not get them in the end."""
        vacated = [ref for ref in self._vacated if self._index.is_open_to(pool.group, ref)]
        if pool.allotted is None or (classes := self._index.classes) is None:
            yield from vacated
            return
        has = {*chain(*pool.free.values(), *pool.coming.values(), *pool.held.values())}
        left, taken = Counter(pool.allotted), Counter[tuple[str, object]]()
        left.subtract(self._index.classes_of(has.difference(vacated)))
        for ref in vacated:
            place = ref.host, classes[ref]
            if taken[place] < left[classes[ref]]:
                taken[place] += 1
                yield ref

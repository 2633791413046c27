"""Fair share of instance groups: what each has, borrows and lends, and who waits for whom.

All of it is read from one cycle of the scheduler. Groups that share slots, directly or by way of others, form a sharing
pool. Slots of a pool beyond all quotas belong to nobody. What groups hold beyond their own quotas is counted as those
slots first; the rest is borrowed from groups that hold less than they own, so as much is lent as is borrowed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from scheduling.policies.goodput import GoodputDivision
from scheduling.schedule import CycleResult, run_cycle
from scheduling.sharing.decision import Decision
from scheduling.sharing.pool import sharing_groups
from scheduling.snapshot import GroupView, Snapshot

__all__ = ["FairShare", "GroupShare", "JobShare", "PendingReclaim", "SharingPool", "fair_share", "split"]


@dataclass(frozen=True)
class JobShare:
    job: int
    group: str
    priority: int
    #: Slots that it holds and has not been told to give back.
    held: int
    #: Slots that it shall have, by its group's policy.
    deserved: int
    #: The most that it asks for.
    wants: int


@dataclass(frozen=True)
class GroupShare:
    group: GroupView
    #: The most that its jobs can use.
    wants: int
    #: Exact part now, by quota, weight and demand.
    deserved: Fraction
    #: Slots that its jobs hold and have not been told to give back.
    held: int
    #: Number of slots that its jobs have after all pending changes.
    target: int
    borrowed: int
    lent: int
    #: Under policy goodput: what a further slot would be worth, and the part that may be missing to the best division;
    #: see `scheduling.policies.goodput.GoodputDivision`. None: another policy, or no job.
    price: float | None
    prices: Mapping[str, float]
    gap: float | None


@dataclass(frozen=True)
class PendingReclaim:
    """Slots that one group is to have and another one still holds."""

    owner: str
    holder: str
    slots: int
    #: They are being given back. Else they are kept for now: for a minimum run time, or for want of another place.
    returning: bool
    #: Seconds that stopped jobs may take to end; None: its jobs shrink live, after the step that they are at.
    stops_within_seconds: int | None


@dataclass(frozen=True)
class SharingPool:
    resource_groups: tuple[str, ...]
    #: Slots in service.
    total: int
    free: int
    #: Groups in order of name.
    groups: tuple[GroupShare, ...]
    pending_reclaims: tuple[PendingReclaim, ...]


@dataclass(frozen=True)
class FairShare:
    sharing_pools: tuple[SharingPool, ...]
    #: Jobs in order of id.
    jobs: tuple[JobShare, ...]


def fair_share(snapshot: Snapshot) -> FairShare:
    result = run_cycle(snapshot)
    counts = _Counts(snapshot, result)
    jobs = tuple(counts.job(number) for number in sorted(counts.groups_of))
    # Every group of the snapshot, also those without jobs: they may lend.
    groups = sorted(snapshot.groups, key=lambda group: group.name)
    pools = sharing_groups(groups, {frozenset(slot.resource_groups) for slot in snapshot.slots})
    return FairShare(tuple(_sharing_pool(snapshot, counts, members) for members in pools), jobs)


def split(total: int, parts: Mapping[str, int]) -> dict[str, int]:
    """Divide `total` into whole numbers in proportion to `parts`, none more than its part if they reach."""
    whole = sum(parts.values())
    if not whole:
        return dict.fromkeys(parts, 0)
    exact = {name: Fraction(total * part, whole) for name, part in parts.items()}
    result = {name: floor(value) for name, value in exact.items()}
    line = sorted(parts, key=lambda name: (-(exact[name] % 1), name))
    for name in line[: total - sum(result.values())]:
        result[name] += 1
    return result


class _Counts:
    """Counts of slots held, given back and to be had, job by job and group by group."""

    def __init__(self, snapshot: Snapshot, result: CycleResult) -> None:
        self.groups_of = {job.id: job.group for job in snapshot.jobs}
        self.decisions: dict[str, Decision] = {decision.pool.group.name: decision for decision, _ in result.groups}
        self._views = {job.id: job for job in snapshot.jobs}
        self._placed = result.placed
        self._held: Counter[int] = Counter()
        self.held: Counter[str] = Counter()
        self._leaving: Counter[str] = Counter()
        for slot in snapshot.slots:
            group = None if slot.held_by is None else self.groups_of.get(slot.held_by)
            if group is None or slot.held_by is None:
                continue
            if slot.vacating:
                self._leaving[group] += 1
            else:
                self.held[group] += 1
                self._held[slot.held_by] += 1
        self.target: Counter[str] = Counter()
        #: Groups of which a job is being stopped.
        self.stopping = {self.groups_of[job] for job, placed in self._placed.items() if placed.preempt}
        #: Slots of targets that others still hold.
        self.missing: Counter[str] = Counter()
        for job, placed in self._placed.items():
            self.target[self.groups_of[job]] += placed.target
            self.missing[self.groups_of[job]] += placed.missing

    def job(self, number: int) -> JobShare:
        view = self._views[number]
        return JobShare(
            number, view.group, view.priority, self._held[number], self._placed[number].target, view.max_slots
        )

    def gives_back(self, group: str) -> int:
        """Return what it gives back to other groups: what its jobs hand over among themselves does not count."""
        return max(0, self.held[group] + self._leaving[group] - self.target[group])

    def kept(self, group: str) -> int:
        """Held by jobs that are not stopped yet, or that finish where they are."""
        decision = self.decisions.get(group)
        staying = decision.pool.protected | decision.pinned if decision else ()
        return sum(self._held[job] for job in staying)

    def wants(self, group: GroupView, total: int) -> int:
        decision = self.decisions.get(group.name)
        if decision is None:
            return 0
        if decision.entitlement is not None:
            return decision.entitlement.wants
        asking = (demand for demand in decision.pool.demands if demand.id not in decision.closed)
        return min(total, sum(max(demand.max_slots, demand.least) for demand in asking))

    def goodput(self, group: GroupView) -> GoodputDivision | None:
        decision = self.decisions.get(group.name)
        return decision.goodput if decision else None

    def deserved(self, group: GroupView, wants: int) -> Fraction:
        decision = self.decisions.get(group.name)
        entitlement = decision.entitlement if decision else None
        return Fraction(wants) if entitlement is None else entitlement.deserved


def _sharing_pool(snapshot: Snapshot, counts: _Counts, groups: Sequence[GroupView]) -> SharingPool:
    names = {group.resource_group for group in groups}
    slots = [slot for slot in snapshot.slots if slot.claimable and names.intersection(slot.resource_groups)]
    total = len(slots)
    owned = {group.name: group.quota or 0 for group in groups}
    over = {name: max(0, counts.held[name] - quota) for name, quota in owned.items()}
    unused = {name: max(0, quota - counts.held[name]) for name, quota in owned.items()}
    changed_hands = max(0, sum(over.values()) - max(0, total - sum(owned.values())))
    changed_hands = min(changed_hands, sum(unused.values()))
    borrowed, lent = split(changed_hands, over), split(changed_hands, unused)
    shares = []
    for group in groups:
        wants, division = counts.wants(group, total), counts.goodput(group)
        shares.append(
            GroupShare(
                group=group,
                wants=wants,
                deserved=counts.deserved(group, wants),
                held=counts.held[group.name],
                target=counts.target[group.name],
                borrowed=borrowed[group.name],
                lent=lent[group.name],
                price=division.price if division else None,
                prices=division.prices if division else {},
                gap=division.gap if division else None,
            )
        )
    free = sum(slot.held_by is None for slot in slots)
    return SharingPool(tuple(sorted(names)), total, free, tuple(shares), tuple(_pending_reclaims(shares, counts)))


def _pending_reclaims(shares: Iterable[GroupShare], counts: _Counts) -> Iterator[PendingReclaim]:
    by_name = {share.group.name: share for share in shares}
    coming = {name: counts.missing[name] for name in by_name}
    giving = {name: counts.gives_back(name) for name in by_name}
    within = {name: by_name[name].group.reclaim_grace_seconds for name in counts.stopping & by_name.keys()}
    for owner, holder, slots in _matched(coming, giving):
        yield PendingReclaim(owner, holder, slots, returning=True, stops_within_seconds=within.get(holder))
    lacking = {name: max(0, floor(share.deserved) - share.target) for name, share in by_name.items()}
    kept = {name: min(counts.kept(name), max(0, share.held - ceil(share.deserved))) for name, share in by_name.items()}
    for owner, holder, slots in _matched(lacking, kept):
        yield PendingReclaim(owner, holder, slots, returning=False, stops_within_seconds=None)


def _matched(owed: Mapping[str, int], had: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """(owner, holder, slots): each slot is owed to one group only, in the order that they are given in."""
    left = dict(had)
    for owner, slots in owed.items():
        for holder in left:
            count = min(slots, left[holder]) if holder != owner else 0
            if count:
                slots -= count
                left[holder] -= count
                yield owner, holder, count

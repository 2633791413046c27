"""How many slots each instance group may use in this cycle, and what its policy makes of them.

Groups that use different slots have nothing to do with each other. Those that share some get parts by quota and weight
(entitlement.py), and each group's policy divides its part (policies.py). Then:

- a group that cannot give up what it holds, because a minimum run time is not over or a job has nowhere to go, keeps it
  for now, and the others share the rest;
- what a group cannot use of its part, because the next job in its line needs more at once, is lent: first so that
  nobody is stopped, then to those that want more, by quota and weight again, then to whoever can use it.

A group takes back what it has lent in the very cycle in which it can use it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction

from scheduling.entitlement import Claimant, GroupEntitlement, SlotClass, deserved, whole
from scheduling.flow import flow
from scheduling.policies import Demand, fair_shares, shares_of
from scheduling.pool import Pool, SlotIndex, confine, sharing_groups
from scheduling.snapshot import GroupView

__all__ = ["Decision", "decide", "divide"]


@dataclass(frozen=True)
class Decision:
    """How many slots each job of one group gets: by its policy, and the jobs that no policy can decide about."""

    pool: Pool
    #: Slots that the jobs below share.
    capacity: int
    #: The jobs that the policy decided about, in the order in which they are served.
    demands: tuple[Demand, ...]
    #: Slots of each job that gets any; see `scheduling.policies`.
    shares: dict[int, int]
    #: Jobs that keep exactly what they hold, because some of it is on a host that takes nothing new: fixed-size jobs,
    #: which finish there, and elastic ones whose minimum fits nowhere else.
    pinned: frozenset[int]
    #: Jobs that are stopped because other groups have a right to their slots.
    reclaimed: frozenset[int] = frozenset()
    #: Jobs that wait because their group is stopped.
    closed: frozenset[int] = frozenset()
    #: What the group may have beside others on the same slots. None: it is alone there.
    entitlement: GroupEntitlement | None = None

    @property
    def used(self) -> int:
        """Slots in service that its jobs have once everything has changed hands."""
        return sum(self.shares.values()) + sum(len(self.pool.held.get(job, ())) for job in self.pinned)


def decide(pool: Pool, room: int, *, beside_others: bool = False) -> Decision:
    """`room`: how many slots in service the group's jobs may have together. `beside_others`: others want the rest."""
    fixed = {job.id for job in pool.jobs if not job.elastic}
    pinned = {job for job in pool.away if job in fixed} - pool.displaced.keys()
    evicted = fixed & pool.displaced.keys()
    while True:
        decision = _decide_without(pinned, evicted, pool, room, beside_others=beside_others)
        stranded = {
            demand.id
            for demand in decision.demands
            if pool.away.get(demand.id) and decision.shares.get(demand.id, 0) < demand.min_slots
        }
        if not stranded:
            return decision
        evicted |= (stranded & pool.displaced.keys()) - pool.protected
        pinned |= stranded - evicted


def _decide_without(pinned: set[int], evicted: set[int], pool: Pool, room: int, *, beside_others: bool) -> Decision:
    group = pool.group
    capacity = room - sum(len(pool.held.get(job, ())) for job in pinned)
    demands = [demand for demand in pool.demands if demand.id not in pinned]
    closed: frozenset[int] = frozenset()
    if not group.started:
        closed = frozenset(demand.id for demand in demands if not demand.running)
        demands = [demand for demand in demands if demand.running]
    reclaimed: frozenset[int] = frozenset()
    if beside_others:
        demands, reclaimed = _reclaim(group, demands, capacity, evicted)
    return Decision(
        pool=pool,
        capacity=capacity,
        demands=tuple(demands),
        shares=shares_of(group, demands, capacity),
        pinned=frozenset(pinned),
        reclaimed=reclaimed,
        closed=closed,
    )


def _reclaim(
    group: GroupView, demands: Sequence[Demand], capacity: int, evicted: Set[int]
) -> tuple[list[Demand], frozenset[int]]:
    """What a group gives back when other groups have a right to it: the jobs that are stopped, and before them the
    others, in the same order, with what is left to each that runs. `capacity` is what they may share from now on.

    Every job that runs is shrunk, as far as its minimum, before any is stopped. Jobs are stopped in the reverse order,
    and none whose slots are not needed; none that is still protected. `evicted` are stopped in any case.
    """
    stopped = evicted | _to_stop([demand for demand in demands if demand.id not in evicted], capacity)
    left = [demand for demand in demands if demand.id not in stopped]
    running = [demand for demand in left if demand.running]
    if sum(demand.kept for demand in running) > capacity:
        limits = _limits(group, running, capacity)
        left = [replace(demand, limit=limits.get(demand.id)) for demand in left]
    return left, frozenset(stopped)


def _to_stop(demands: Sequence[Demand], capacity: int) -> frozenset[int]:
    running = [demand for demand in demands if demand.running]
    excess = sum(demand.least for demand in running) - capacity
    chosen: list[Demand] = []
    for demand in reversed(running):
        if excess > 0 and demand.least and not demand.protected:
            chosen.append(demand)
            excess -= demand.least
    for demand in reversed(chosen):
        if excess + demand.least <= 0:
            chosen.remove(demand)
            excess += demand.least
    return frozenset(demand.id for demand in chosen)


def _limits(group: GroupView, running: Sequence[Demand], capacity: int) -> Mapping[int, int]:
    if group.policy == "fairshare":
        asked = [replace(demand, max_slots=max(demand.kept, demand.least)) for demand in running]
        return fair_shares(asked, capacity, preemption=True)
    limits = {demand.id: demand.least for demand in running}
    spare = capacity - sum(limits.values())
    for demand in running:
        more = max(0, min(demand.kept - demand.least, spare))
        limits[demand.id] += more
        spare -= more
    return limits


def divide(index: SlotIndex) -> dict[str, Decision]:
    """The decision of each group of `index`, by name."""
    decisions: dict[str, Decision] = {}
    for groups in sharing_groups(index.groups, index.sizes):
        if len(groups) == 1:
            pool = index.pool(groups[0])
            decisions[groups[0].name] = decide(pool, pool.capacity)
        else:
            decisions |= _Table(index, groups).settle()
    return decisions


class _Table:
    """Several groups that share slots, and what is found out about them one after the other."""

    def __init__(self, index: SlotIndex, groups: Sequence[GroupView]) -> None:
        self._index = index
        self._pools = {group.name: index.pool(group) for group in groups}
        names = {group.resource_group for group in groups}
        self._sizes = {offered: size for offered, size in index.sizes.items() if offered & names}
        self._claimants = {name: _claimant(pool, self._total(pool)) for name, pool in self._pools.items()}
        self._decisions: dict[str, Decision] = {}
        self._rooms: dict[str, int] = {}

    def settle(self) -> dict[str, Decision]:
        claimants = tuple(self._claimants.values())
        exact = deserved(claimants, self._sizes)
        self._grant(whole(claimants, exact, self._sizes))
        self._respect_what_is_kept()
        self._lend_to_who_would_be_stopped()
        self._lend_to_who_wants_more()
        self._lend_to_who_can_use_it()
        if len(self._sizes) > 1:
            self._confine()
        return {
            name: replace(decision, entitlement=self._entitlement(name, exact[name]))
            for name, decision in self._decisions.items()
        }

    def _confine(self) -> None:
        """Say which slots each group may have, where it matters to others: as far as possible those that it holds."""
        asked = {name: decision.used for name, decision in self._decisions.items()}
        held = {name: self._index.held_in(pool.group) for name, pool in self._pools.items()}
        found = flow(asked, self._reach(), self._sizes, held)
        for name, pool in self._pools.items():
            allotted = {offered: int(count) for offered, count in found.amounts[name].items()}
            confined = confine(replace(pool, allotted=allotted), self._index.classes)
            self._decisions[name] = decide(confined, self._rooms[name], beside_others=True)

    def _total(self, pool: Pool) -> int:
        return sum(self._sizes.get(offered, 0) for offered in self._index.open_to(pool.group))

    def _grant(self, rooms: Mapping[str, int]) -> None:
        for name, room in rooms.items():
            if self._rooms.get(name) != room:
                self._rooms[name] = room
                self._decisions[name] = decide(self._pools[name], room, beside_others=True)

    def _respect_what_is_kept(self) -> None:
        """Each pass of the loop finds at least one more group that keeps more than its part."""
        while over := [name for name, decision in self._decisions.items() if decision.used > self._rooms[name]]:
            for name in over:
                self._claimants[name] = replace(self._claimants[name], least=self._decisions[name].used)
                self._rooms[name] = self._decisions[name].used
            parts = self._parts(self._claimants)
            self._grant({name: part for name, part in parts.items() if name not in over})

    def _lend_to_who_would_be_stopped(self) -> None:
        for name in self._largest_first():
            decision, pool = self._decisions[name], self._pools[name]
            if decision.reclaimed:
                needed = sum(demand.least for demand in pool.demands)
                self._lend(name, min(needed, decision.used + self._spare_for(name)))

    def _lend_to_who_wants_more(self) -> None:
        """Everybody keeps what it makes use of; who cannot make use of its part asks for no more."""
        used = {name: decision.used for name, decision in self._decisions.items()}
        asking = {
            name: replace(one, least=used[name], wants=one.wants if used[name] >= self._rooms[name] else used[name])
            for name, one in self._claimants.items()
        }
        for name, part in self._parts(asking).items():
            self._lend(name, part)

    def _lend_to_who_can_use_it(self) -> None:
        for name in self._largest_first():
            used, one = self._decisions[name].used, self._claimants[name]
            if used < one.most:
                self._lend(name, min(used + self._spare_for(name), one.most))

    def _lend(self, name: str, room: int) -> None:
        """Unless it makes nothing of it: a job in its line that begins to fit may keep others waiting."""
        if room > self._rooms[name]:
            tried = decide(self._pools[name], room, beside_others=True)
            if tried.used > self._decisions[name].used:
                self._rooms[name], self._decisions[name] = room, tried

    def _largest_first(self) -> list[str]:
        return sorted(self._decisions, key=lambda name: (-self._pools[name].in_use, name))

    def _spare_for(self, name: str) -> int:
        """How many more slots it could have if all others have what they use, or keep for themselves."""
        taken = {
            other: decision.used if self._claimants[other].lends else max(decision.used, self._claimants[other].owned)
            for other, decision in self._decisions.items()
        }
        mine = taken.pop(name)
        found = flow({**taken, name: mine + sum(self._sizes.values())}, self._reach(), self._sizes)
        return int(sum(found.amounts[name].values())) - mine

    def _parts(self, claimants: Mapping[str, Claimant]) -> dict[str, int]:
        ones = tuple(claimants.values())
        return whole(ones, deserved(ones, self._sizes), self._sizes)

    def _reach(self) -> dict[str, list[SlotClass]]:
        return {name: self._index.open_to(pool.group) for name, pool in self._pools.items()}

    def _entitlement(self, name: str, exact: Fraction) -> GroupEntitlement:
        decision, group = self._decisions[name], self._pools[name].group
        return GroupEntitlement(
            total=self._total(self._pools[name]),
            wants=self._claimants[name].wants,
            deserved=exact,
            room=self._rooms[name],
            used=decision.used,
            held=self._pools[name].in_use,
            quota=group.quota,
            weight=group.weight,
        )


def _claimant(pool: Pool, total: int) -> Claimant:
    group = pool.group
    return Claimant(
        name=group.name,
        resource_group=group.resource_group,
        wants=min(total, sum(max(one.max_slots, one.least) for one in pool.demands if one.running or group.started)),
        quota=group.quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=group.lends,
        since=min((job.submitted_at for job in pool.jobs), default=0.0),
    )

"""How many slots each instance group may use in this cycle, and what its policy makes of them.

Groups that use different slots have nothing to do with each other. Those that share some get parts by quota and weight
(entitlement.py), and each group's policy divides its part (policies.py). Then:

- a group that cannot give up what it holds, because a minimum run time is not over or a job has nowhere to go, keeps it
  for now, and the others share the rest;
- a job of fixed size, the first in its group's line, that needs more than the group's part, though not more than twice
  as much, and that has waited for five minutes, has a reservation of what all share: it starts once so much is there
  without stopping anybody, and whoever came later starts before it only as `scheduling.backfill` says. So a group is
  compensated for what it leaves unused while it waits. What others own by quota is never touched;
- what a group cannot use of its part, because the next job in its line needs more at once, is lent: first so that
  nobody is stopped, then to those that want more, by quota and weight again, then to whoever can use it.

A group takes back what it has lent in the very cycle in which it can use it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction

from scheduling.backfill import Reservation, Spoken, reserve
from scheduling.entitlement import Claimant, GroupEntitlement, SlotClass, deserved, whole
from scheduling.flow import Flow, flow
from scheduling.goodput import GoodputDivision
from scheduling.policies import Demand, FairDivision, fair_shares, served, to_stop
from scheduling.pool import Pool, SlotIndex, confined, sharing_groups
from scheduling.snapshot import GroupView, SlotRef

__all__ = ["WAITED_SECONDS", "Decision", "decide", "divide", "gives_way"]

#: So long a job that needs more than its group's part waits before it has a reservation of what others may use as well.
WAITED_SECONDS = 300.0


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
    #: Of the first job in line that waits though it would fit; None: nobody does.
    reservation: Reservation | None = None
    division: FairDivision | None = None
    goodput: GoodputDivision | None = None
    #: Jobs that are stopped because other groups have a right to their slots. One of fixed size that has a share
    #: nevertheless starts again elsewhere.
    reclaimed: frozenset[int] = frozenset()
    #: Jobs that wait because their group is stopped.
    closed: frozenset[int] = frozenset()
    #: Of a job that needs more than its group's part, of this group or another one: for it all that comes free is kept.
    shared_reservation: Reservation | None = None
    #: Jobs that wait because of that, though their group has slots for them.
    held_back: frozenset[int] = frozenset()
    #: Jobs that start by that reservation.
    above_part: frozenset[int] = frozenset()
    #: What the group may have beside others on the same slots, or by its quota. None: it is alone and not limited.
    entitlement: GroupEntitlement | None = None

    @property
    def used(self) -> int:
        """Slots in service that its jobs have once everything has changed hands."""
        return sum(self.shares.values()) + sum(len(self.pool.held.get(job, ())) for job in self.pinned)


def gives_way(decision: Decision, demand: Demand) -> bool:
    """Whether the job is stopped for who has the reservation, once that one can start."""
    first = decision.reservation
    return first is not None and (demand.gives_way_to == first.job or first.filling.get(demand.id) == "gives_way")


def decide(pool: Pool, room: int, *, beside_others: bool = False, held_back: frozenset[int] = frozenset()) -> Decision:
    """`room`: how many slots in service the group's jobs may have together. `beside_others`: others want the rest.

    `held_back`: jobs that wait in any case.
    """
    fixed = {job.id for job in pool.jobs if not job.elastic}
    pinned = {job for job in pool.away if job in fixed} - pool.displaced.keys()
    evicted: set[int] = set()
    while True:
        decision = _decide_without(pinned, evicted, pool, room, held_back, beside_others=beside_others)
        stranded = {
            demand.id
            for demand in decision.demands
            # One without a share is stopped by its policy: a higher priority takes what it holds in service.
            if pool.away.get(demand.id) and decision.shares.get(demand.id, demand.min_slots) < demand.min_slots
        }
        if not stranded:
            # It starts elsewhere, on as many: nobody of its group gets what it has a share of.
            return replace(decision, reclaimed=decision.reclaimed | (fixed & pool.displaced.keys()))
        evicted |= (stranded & pool.displaced.keys()) - pool.protected
        pinned |= stranded - evicted


def _decide_without(
    pinned: set[int], evicted: set[int], pool: Pool, room: int, held_back: frozenset[int], *, beside_others: bool
) -> Decision:
    group = pool.group
    capacity = max(0, room - sum(len(pool.held.get(job, ())) for job in pinned))
    demands = [demand for demand in pool.demands if demand.id not in pinned and demand.id not in held_back]
    closed = frozenset(demand.id for demand in demands if not (group.started or demand.running))
    demands = [demand for demand in demands if demand.id not in closed]
    reclaimed: frozenset[int] = frozenset()
    if beside_others:
        demands, reclaimed = _reclaim(group, demands, capacity, evicted)
    shares = served(group, demands, capacity, now=pool.at)
    return Decision(
        pool=pool,
        capacity=capacity,
        demands=tuple(demands),
        shares=shares.slots,
        reservation=shares.reservation,
        division=shares.division,
        goodput=shares.goodput,
        pinned=frozenset(pinned),
        reclaimed=reclaimed,
        closed=closed,
        held_back=held_back,
    )


def _reclaim(
    group: GroupView, demands: Sequence[Demand], capacity: int, evicted: Set[int]
) -> tuple[list[Demand], frozenset[int]]:
    """What a group gives back when other groups have a right to it: the jobs that are stopped, and before them the
    others, in the same order, with what is left to each that runs. `capacity` is what they may share from now on.

    Every job that runs is shrunk, as far as its minimum, before any is stopped: the cheapest, see `to_stop`. `evicted`
    are stopped in any case.
    """
    staying = [demand for demand in demands if demand.running and demand.id not in evicted]
    stopped = evicted | to_stop(group, staying, sum(demand.least for demand in staying) - capacity)
    left = [demand for demand in demands if demand.id not in stopped]
    running = [demand for demand in left if demand.running]
    if sum(demand.kept for demand in running) > capacity:
        limits = _limits(group, running, capacity)
        left = [replace(demand, limit=limits.get(demand.id)) for demand in left]
    return left, frozenset(stopped)


def _limits(group: GroupView, running: Sequence[Demand], capacity: int) -> Mapping[int, int]:
    if group.policy in ("fairshare", "goodput"):
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
        if len(groups) == 1 and not groups[0].is_limited:
            pool = index.pool(groups[0])
            decisions[groups[0].name] = decide(pool, pool.capacity)
        else:
            decisions |= _Table(index, groups).settle()
    return decisions


class _Table:
    """Groups that share slots, or one that its quota limits, and what is found out about them one after the other."""

    def __init__(self, index: SlotIndex, groups: Sequence[GroupView]) -> None:
        self._index = index
        names = {group.resource_group for group in groups}
        self._sizes = {offered: size for offered, size in index.sizes.items() if offered & names}
        # What is free is told apart where each has its own part of it: last.
        seen = index if len(self._sizes) == 1 else index.beside_free()
        self._pools = {group.name: seen.pool(group) for group in groups}
        self._claimants = {name: _claimant(pool, self._total(pool)) for name, pool in self._pools.items()}
        self._decisions: dict[str, Decision] = {}
        self._rooms: dict[str, int] = {}
        #: What nobody else may have of what is lent.
        self._taken = Flow(self._reach(), self._sizes)

    def settle(self) -> dict[str, Decision]:
        exact = deserved(tuple(self._claimants.values()), self._sizes)
        self._count_as_own_what_was_reserved()
        self._share_out()
        if waiting := self._first_above_its_part(exact):
            self._compensate(*waiting)
        if len(self._sizes) > 1:
            self._confine()
        return {
            name: replace(decision, entitlement=self._entitlement(name, exact[name]))
            for name, decision in self._decisions.items()
        }

    def _share_out(self) -> None:
        self._grant(self._parts(self._claimants))
        self._respect_what_is_kept()
        if len(self._sizes) > 1:
            self._leave_fixed_in_place()
        self._taken.ask({name: self._taken_by(name) for name in self._decisions})
        self._lend_to_who_would_be_stopped()
        self._lend_to_who_wants_more()
        self._lend_to_who_can_use_it()

    def _count_as_own_what_was_reserved(self) -> None:
        """No job is stopped because one of its group was started on more than the group's part, but for what others own
        by quota."""
        for name, pool in self._pools.items():
            if any(job.above_part and job.id in pool.held for job in pool.jobs):
                needed = sum(demand.least for demand in pool.demands if demand.running)
                if needed <= self._claimants[name].most and self._fits_beside_quotas(name, needed):
                    self._claimants[name] = replace(self._claimants[name], least=needed)

    def _first_above_its_part(self, exact: Mapping[str, Fraction]) -> tuple[str, Demand] | None:
        """Of the first that wait in the groups' lines, the one that has waited for the longest time of those that need
        more than their group's part, and not more than twice as much."""
        found: list[tuple[float, int, str, Demand]] = []
        for name, decision in self._decisions.items():
            waiting = (demand for demand in decision.demands if not demand.running)
            first = next((demand for demand in waiting if demand.id not in decision.shares), None)
            if first is None or first.min_slots < first.max_slots:
                continue
            waited = decision.pool.at - first.submitted_at
            if waited < WAITED_SECONDS or not exact[name] < first.min_slots <= 2 * exact[name]:
                continue
            if decision.capacity < first.min_slots and self._may_have(name, first):
                found.append((first.submitted_at, first.id, name, first))
        return min(found, key=lambda one: one[:2])[2:] if found else None

    def _may_have(self, name: str, first: Demand) -> bool:
        needed = first.min_slots + _firm(self._decisions[name], first)
        return needed <= self._claimants[name].most and self._fits_beside_quotas(name, needed)

    def _fits_beside_quotas(self, name: str, needed: int) -> bool:
        owned = {other: one.owned for other, one in self._claimants.items() if other != name}
        return self._are_there({**owned, name: needed})

    def _are_there(self, asked: Mapping[str, int]) -> bool:
        return Flow(self._reach(), self._sizes).ask(asked)

    def _compensate(self, name: str, first: Demand) -> None:
        """Start it if that stops nobody; else keep for it what comes free."""
        before = self._claimants, self._rooms, self._decisions
        firm = {
            other: max(_firm(decision, first), self._claimants[other].owned)
            for other, decision in self._decisions.items()
        }
        firm[name] = _firm(self._decisions[name], first) + first.min_slots
        if self._are_there(firm):
            self._claimants = {
                other: replace(one, least=min(firm[other], one.most)) for other, one in self._claimants.items()
            }
            self._rooms, self._decisions = dict(self._rooms), dict(self._decisions)
            self._share_out()
            if first.id in self._decisions[name].shares and self._stops_nobody_else(before[2]):
                self._decisions[name] = replace(self._decisions[name], above_part=frozenset({first.id}))
                return
            self._claimants, self._rooms, self._decisions = before
        self._keep_for(name, first)

    def _stops_nobody_else(self, before: Mapping[str, Decision]) -> bool:
        return all(decision.reclaimed <= before[name].reclaimed for name, decision in self._decisions.items())

    def _keep_for(self, name: str, first: Demand) -> None:
        """Who came later waits, unless it delays nothing or its group has it of its quota."""
        near = [other for other in self._decisions if self._reaches_same(name, other)]
        spoken = [one for other in near for one in _spoken(self._decisions[other], first)]
        reservation = reserve(first.id, first.min_slots, spoken, self._total(self._pools[name]))
        for other in near:
            decision, later = self._decisions[other], set[int]()
            quota_left = 0 if other == name else self._claimants[other].owned - _firm(decision, first)
            for demand in _waiting(decision, first, ahead=False):
                if demand.min_slots <= quota_left:
                    quota_left -= demand.min_slots
                elif not reservation.admit(
                    demand.id, demand.min_slots, demand.min_slots, demand.ends(decision.pool.at)
                ):
                    later.add(demand.id)
            if later:
                decision = decide(
                    self._pools[other], self._rooms[other], beside_others=True, held_back=frozenset(later)
                )
            self._decisions[other] = replace(decision, shared_reservation=reservation)

    def _reaches_same(self, name: str, other: str) -> bool:
        reach = self._index.open_to(self._pools[name].group)
        return not set(reach).isdisjoint(self._index.open_to(self._pools[other].group))

    def _confine(self) -> None:
        """Say which slots each group may have, where it matters to others: as far as possible those that it holds.

        First with every job of fixed size where it is, because it would have to stop; only who lacks some then counts
        on slots of these.
        """
        asked = {name: decision.used for name, decision in self._decisions.items()}
        held = {name: self._index.held_in.get(name, {}) for name in self._pools}
        fixed = {name: self._index.classes_of(_staying(decision)) for name, decision in self._decisions.items()}
        taken = sum(fixed.values(), Counter[SlotClass]())
        beside_fixed = flow(
            {name: count - fixed[name].total() for name, count in asked.items()},
            self._reach(),
            {offered: size - taken[offered] for offered, size in self._sizes.items()},
            {name: Counter(held[name]) - fixed[name] for name in asked},
        )
        without_stops = {name: Counter(beside_fixed.at(name)) + fixed[name] for name in asked}
        found = flow(asked, self._reach(), self._sizes, without_stops)
        for name, pool in self._pools.items():
            stopped = frozenset(pool.held) - self._decisions[name].shares.keys() - self._decisions[name].pinned
            within = confined(self._index, pool.group, found.at(name), stopped)
            before = self._decisions[name]
            decision = decide(within, self._rooms[name], beside_others=True, held_back=before.held_back)
            self._decisions[name] = replace(
                decision, above_part=before.above_part, shared_reservation=before.shared_reservation
            )

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
                needed = min(sum(demand.least for demand in pool.demands), self._claimants[name].most)
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

    def _leave_fixed_in_place(self) -> None:
        """Nobody grows or starts beyond its quota where a job of fixed size would have to stop, only to be moved."""
        self._beside_fixed()
        for name in sorted(self._decisions):
            owned = max(self._claimants[name].asked_of_quota, self._pools[name].in_use)
            if self._decisions[name].used > owned:
                self._grant({name: min(self._rooms[name], max(owned, self._in_place(name)))})
                self._note_fixed(name)

    def _beside_fixed(self) -> None:
        """What is beside jobs of fixed size that stay where they are, and what others than these have of it."""
        self._fixed = {name: self._index.classes_of(_staying(one)) for name, one in self._decisions.items()}
        taken = sum(self._fixed.values(), Counter[SlotClass]())
        self._beside = Flow(self._reach(), {offered: size - taken[offered] for offered, size in self._sizes.items()})
        self._beside.ask({name: self._used_beside(name) for name in self._decisions})

    def _used_beside(self, name: str) -> int:
        return self._decisions[name].used - self._fixed[name].total()

    def _note_fixed(self, name: str) -> None:
        """Its decision is another one."""
        if self._index.classes_of(_staying(self._decisions[name])) != self._fixed[name]:
            self._beside_fixed()
        else:
            self._beside.ask({name: self._used_beside(name)})

    def _in_place(self, name: str) -> int:
        """The most that it can have beside what others use, with every job of fixed size where it is."""
        self._beside.ask({name: 0})
        self._beside.ask({name: sum(self._sizes.values())})
        most = self._fixed[name].total() + int(self._beside.served([name]))
        self._beside.ask({name: self._used_beside(name)})
        return most

    def _lend(self, name: str, room: int) -> None:
        """Unless it makes nothing of it: a job in its line that begins to fit may keep others waiting."""
        if room > self._rooms[name] and len(self._sizes) > 1:
            room = min(room, max(self._rooms[name], self._in_place(name)))
        if room > self._rooms[name]:
            tried = decide(self._pools[name], room, beside_others=True)
            if tried.used > self._decisions[name].used:
                self._rooms[name], self._decisions[name] = room, tried
                self._taken.ask({name: self._taken_by(name)})
                if len(self._sizes) > 1:
                    self._note_fixed(name)

    def _largest_first(self) -> list[str]:
        return sorted(self._decisions, key=lambda name: (-self._pools[name].in_use, name))

    def _spare_for(self, name: str) -> int:
        """How many more slots it could have if all others have what they use, or keep for themselves."""
        used = self._decisions[name].used
        self._taken.ask({name: 0})
        self._taken.ask({name: used + sum(self._sizes.values())})
        spare = int(self._taken.served([name])) - used
        self._taken.ask({name: self._taken_by(name)})
        return spare

    def _taken_by(self, name: str) -> int:
        one = self._claimants[name]
        kept = 0 if one.lends else min(one.owned, self._rooms[name])
        return max(self._decisions[name].used, kept)

    def _parts(self, claimants: Mapping[str, Claimant]) -> dict[str, int]:
        ones = tuple(claimants.values())
        return whole(ones, deserved(ones, self._sizes), self._sizes)

    def _reach(self) -> dict[str, Sequence[SlotClass]]:
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
            borrows=group.borrows,
        )


def _waiting(decision: Decision, first: Demand, *, ahead: bool) -> list[Demand]:
    """Jobs that wait until now and come before the first one: in its own line, or by their age in others; or those that
    come after it."""
    own, age = first in decision.demands, (first.submitted_at, first.id)
    found, is_before = [], True
    for demand in decision.demands:
        is_before = is_before and demand.id != first.id
        comes_before = is_before if own else (demand.submitted_at, demand.id) < age
        if not demand.running and demand.id != first.id and comes_before == ahead:
            found.append(demand)
    return found


def _firm(decision: Decision, first: Demand) -> int:
    return sum(slots for slots, _ in _spoken(decision, first))


def _spoken(decision: Decision, first: Demand) -> Iterator[Spoken]:
    """What its jobs are not without: those that run, and those that start and come before the first that waits."""
    pool = decision.pool
    for job in decision.pinned:
        yield len(pool.held.get(job, ())), None
    for demand in decision.demands:
        if demand.running and demand.id in decision.shares:
            # One that moves off holds nothing in service yet.
            yield max(demand.least, min(demand.min_slots, decision.shares[demand.id])), demand.ends(pool.at)
    for demand in _waiting(decision, first, ahead=True):
        if demand.id in decision.shares:
            yield demand.min_slots, demand.ends(pool.at)


def _staying(decision: Decision) -> list[SlotRef]:
    """Slots in service of jobs of fixed size that are not to be stopped."""
    pool = decision.pool
    fixed = {job.id for job in pool.jobs if not job.elastic}
    return [ref for job in fixed & (decision.shares.keys() | decision.pinned) for ref in pool.held.get(job, ())]


def _claimant(pool: Pool, total: int) -> Claimant:
    group = pool.group
    return Claimant(
        name=group.name,
        resource_group=group.resource_group,
        wants=min(total, sum(max(one.max_slots, one.least) for one in pool.demands if one.running or group.started)),
        quota=group.quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=not group.keeps_quota,
        since=min((job.submitted_at for job in pool.jobs), default=0.0),
    )

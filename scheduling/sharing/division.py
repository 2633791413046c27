"""Division of slots among instance groups in one cycle, and the result of each group's policy.

Groups that use different slots have nothing to do with each other. Those that share some get parts by quota and weight
(entitlement.py), and each group's policy divides its part (`policies/shares.py`). Then:

- a group that cannot give up what it holds, because a minimum run time is not over or a job has nowhere to go, keeps it
  for now, and the others share the rest;
- a job of fixed size, the first in its group's line, that needs more than the group's part, though not more than twice
  as much, and that has waited for five minutes, has a reservation of what all share: it starts once so much is there
  without stopping anybody, and whoever came later starts before it only as `policies.backfill` says. So a group is
  compensated for what it leaves unused while it waits. What others own by quota is never touched;
- what a group cannot use of its part, because the next job in its line needs more at once, is lent: first so that
  nobody is stopped, then to those that want more, by quota and weight again, then to whoever can use it.

A group takes back what it has lent in the very cycle in which it can use it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from scheduling.policies.backfill import reserve
from scheduling.policies.demand import Demand
from scheduling.sharing.decision import Decision, decide, within_limit
from scheduling.sharing.entitlement import (
    Claimant,
    GroupEntitlement,
    SlotClass,
    deserved,
    in_whole_slots,
    reachable_slots,
)
from scheduling.sharing.flow import Flow, flow
from scheduling.sharing.kept_slots import (
    committed_by,
    firm_slots,
    lasting_slots,
    staying_slots,
    used_classes,
    waiting_jobs,
)
from scheduling.sharing.pool import Pool, SlotIndex, confined, sharing_groups
from scheduling.snapshot import GroupView

__all__ = ["WAITED_SECONDS", "divide"]


#: Seconds that a job that needs more than its group's part waits before it has a reservation of shared slots.
WAITED_SECONDS = 300.0


def divide(index: SlotIndex) -> dict[str, Decision]:
    """The decision of each group of `index`, by name."""
    decisions: dict[str, Decision] = {}
    for groups in sharing_groups(index.groups, index.sizes):
        if len(groups) == 1 and groups[0].limit is None:
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
        # Free slots are told apart last, where each group has its own part of them.
        view = index if len(self._sizes) == 1 else index.beside_free()
        self._pools = {group.name: view.pool(group) for group in groups}
        self._claimants = {name: _claimant(pool, self._total(pool)) for name, pool in self._pools.items()}
        self._wants = {name: one.wants for name, one in self._claimants.items()}
        self._slot_flow = reachable_slots(self._claimants.values(), self._sizes)
        self._decisions: dict[str, Decision] = {}
        self._rooms: dict[str, int] = {}
        #: Slots that each group would use if all GPUs were of one kind.
        self._counted: dict[str, int] = {}
        #: Group -> jobs that wait for another one's reservation, whatever their group has.
        self._held_back: dict[str, frozenset[int]] = {}
        #: Slots of one group may be those that a job of fixed size of another one stands on.
        self._may_displace = len(self._sizes) > 1 and any(
            not job.elastic and job.id in pool.held for pool in self._pools.values() for job in pool.jobs
        )
        #: Deserved parts by claimants, as found so far.
        self._found: dict[tuple[Claimant, ...], dict[str, Fraction]] = {}

    def settle(self) -> dict[str, Decision]:
        exact = self._deserved(self._claimants)
        self._count_as_own_what_was_reserved()
        self._share_out()
        if waiting := self._first_above_its_part(exact):
            self._compensate(*waiting)
        if len(self._sizes) > 1:
            self._confine()
            while self._index.kinds is not None and (used := self._short_of_kinds()):
                self._ask_for_less(used)
        return {
            name: replace(decision, entitlement=self._entitlement(name, exact[name]))
            for name, decision in self._decisions.items()
        }

    def _short_of_kinds(self) -> dict[str, int]:
        """Return what each group uses that cannot use all that it was given, because other groups keep the kinds of GPU
        that it would need."""
        used = {name: decision.used for name, decision in self._decisions.items()}
        asked = {name: min(count, self._claimants[name].wants) for name, count in self._counted.items()}
        return {name: count for name, count in used.items() if count < asked[name]}

    def _ask_for_less(self, used: Mapping[str, int]) -> None:
        """Let these groups ask for no more than they use, so that others use the rest: a slot that stayed free would be
        taken from a job and given back to it again and again."""
        before = self._decisions
        for name, count in used.items():
            self._claimants[name] = replace(self._claimants[name], wants=count)
        self._rooms, self._decisions = {}, {}
        self.__dict__.pop("_taken", None)
        self._share_out()
        self._confine()
        for name, one in before.items():
            self._decisions[name] = self._decisions[name].with_reservations_of(one)

    def _share_out(self) -> None:
        self._grant(self._parts(self._claimants))
        self._respect_what_is_kept()
        if self._may_displace:
            self._leave_fixed_in_place()
        taken = {name: self._taken_by(name) for name in self._decisions}
        if sum(taken.values()) >= sum(self._sizes.values()):
            return  # nothing is left
        self._taken.ask(taken)
        self._lend_to_who_would_be_stopped()
        self._lend_to_who_wants_more()
        self._lend_to_who_can_use_it()

    def _count_as_own_what_was_reserved(self) -> None:
        """No job is stopped because one of its group was started on more than the group's part, but for what others own
        by quota."""
        for name, pool in self._pools.items():
            if any(job.over_quota and job.id in pool.held for job in pool.jobs):
                needed = sum(demand.least for demand in pool.demands if demand.running)
                if self._may_have(name, needed):
                    self._claimants[name] = replace(self._claimants[name], least=needed)

    @cached_property
    def _taken(self) -> Flow[str, SlotClass]:
        """Return the flow of lent slots that are committed to a borrower."""
        return Flow(self._reach(), self._sizes)

    def _first_above_its_part(self, exact: Mapping[str, Fraction]) -> tuple[str, Demand] | None:
        """Return the longest waiting of the first jobs in the groups' lines that need
        more than their group's part, and not more than twice as much."""
        found: list[tuple[float, int, str, Demand]] = []
        for name, decision in self._decisions.items():
            # Also who would be stopped for others: it would start again at once.
            waiting = (demand for demand in decision.demands if not demand.running)
            first = next((demand for demand in waiting if demand.id not in decision.shares), None)
            if first is None or first.min_slots < first.max_slots:
                continue
            waited = decision.pool.at - first.submitted_at
            if waited < WAITED_SECONDS or not exact[name] < first.min_slots <= 2 * exact[name]:
                continue
            # Nor does the group have more than twice its part with it: its other jobs grow and stay by its policy.
            needed = first.min_slots + lasting_slots(decision, first)
            if decision.capacity < first.min_slots and needed <= 2 * exact[name] and self._may_have(name, needed):
                found.append((first.submitted_at, first.id, name, first))
        return min(found, key=lambda one: one[:2])[2:] if found else None

    def _may_have(self, name: str, needed: int) -> bool:
        owned = {other: one.owned for other, one in self._claimants.items() if other != name}
        return needed <= self._claimants[name].most and self._are_there({**owned, name: needed})

    def _are_there(self, requested: Mapping[str, int]) -> bool:
        return Flow(self._reach(), self._sizes).ask(requested)

    def _compensate(self, name: str, first: Demand) -> None:
        """Start it if that stops nobody; else keep for it what comes free, unless that would not start it either."""
        before = self._claimants, self._rooms, self._decisions
        firm = {
            other: max(firm_slots(decision, first), self._claimants[other].owned)
            for other, decision in self._decisions.items()
        }
        firm[name] = firm_slots(self._decisions[name], first) + first.min_slots
        if self._are_there(firm):
            self._claimants = {
                other: replace(one, least=min(firm[other], one.most)) for other, one in self._claimants.items()
            }
            self._rooms, self._decisions = dict(self._rooms), dict(self._decisions)
            self._share_out()
            if first.id in self._decisions[name].shares and self._stops_nobody_else(before[2]):
                self._decisions[name] = replace(self._decisions[name], over_quota=frozenset({first.id}))
                return
            self._claimants, self._rooms, self._decisions = before
            return
        self._keep_for(name, first)

    def _stops_nobody_else(self, before: Mapping[str, Decision]) -> bool:
        return all(decision.reclaimed <= before[name].reclaimed for name, decision in self._decisions.items())

    def _keep_for(self, name: str, first: Demand) -> None:
        """Let later jobs wait for the first in line, unless they delay nothing or use their group's quota."""
        near = [other for other in self._decisions if self._reaches_same(name, other)]
        committed = [one for other in near for one in committed_by(self._decisions[other], first)]
        reservation = reserve(first.id, first.min_slots, committed, self._total(self._pools[name]))
        for other in near:
            decision, later = self._decisions[other], set[int]()
            quota_left = 0 if other == name else self._claimants[other].owned - firm_slots(decision, first)
            for demand in waiting_jobs(decision, first, ahead=False):
                if demand.min_slots <= quota_left:
                    quota_left -= demand.min_slots
                elif not reservation.admit(
                    demand.id, demand.min_slots, demand.min_slots, demand.ends(decision.pool.at)
                ):
                    later.add(demand.id)
            if later:
                self._held_back[other] = frozenset(later)
        if self._held_back:
            # Jobs behind them in their group's line may use what was lent because they could not.
            self._rooms, self._decisions = {}, {}
            self._share_out()
        for other in near:
            decision = self._decisions[other]
            started = {job: one for job, one in reservation.overtaking.items() if job in decision.shares}
            self._decisions[other] = replace(
                decision, shared_reservation=reservation, overtaking={**started, **decision.overtaking}
            )

    def _reaches_same(self, name: str, other: str) -> bool:
        reach = self._index.open_to(self._pools[name].group)
        return not set(reach).isdisjoint(self._index.open_to(self._pools[other].group))

    def _confine(self) -> None:
        """Say which slots each group may have, where it matters to others: as far as possible those that it holds.

        First with every job of fixed size where it is, because it would have to stop; only who lacks some then counts
        on slots of these. What is stopped in any case is held no more, or somebody else would have to leave for it.
        """
        requested = self._counted = {name: decision.used for name, decision in self._decisions.items()}
        stopped = {
            name: frozenset(pool.held) - self._decisions[name].shares.keys() - self._decisions[name].pinned
            for name, pool in self._pools.items()
        }
        held = {
            name: self._held_by_others(name, ending) if self._index.kinds is None else self._kept_in(name)
            for name, ending in stopped.items()
        }
        fixed = {name: self._index.classes_of(staying_slots(decision)) for name, decision in self._decisions.items()}
        taken = sum(fixed.values(), Counter[SlotClass]())
        beside_fixed = flow(
            {name: count - fixed[name].total() for name, count in requested.items()},
            self._reach(),
            {offered: size - taken[offered] for offered, size in self._sizes.items()},
            {name: Counter(held[name]) - fixed[name] for name in requested},
        )
        without_stops = {name: Counter(beside_fixed.at(name)) + fixed[name] for name in requested}
        found = flow(requested, self._reach(), self._sizes, without_stops) if self._may_displace else beside_fixed
        for name, pool in self._pools.items():
            kept = None if self._index.kinds is None else held[name]
            confined_pool = confined(self._index, pool, found.at(name), stopped[name], kept)
            before = self._decisions[name]
            if not confined_pool.displaced and before.room == self._rooms[name]:
                # Nobody moves, so nothing changes.
                self._decisions[name] = replace(before, pool=confined_pool)
            else:
                self._decisions[name] = self._decide_again(confined_pool, self._rooms[name])
        if self._index.kinds is not None:
            self._choose_kinds(found, held, stopped)

    def _choose_kinds(
        self,
        found: Flow[str, SlotClass],
        held: Mapping[str, Mapping[SlotClass, int]],
        stopped: Mapping[str, frozenset[int]],
    ) -> None:
        """One group after the other may take another kind of GPU, of what nobody was given. What a group leaves because
        it is of the wrong kind for it, others may have."""
        nobodys, unused = Counter(self._sizes), 0
        for name in self._pools:
            nobodys.subtract(found.at(name))
        choosing = [name for name, pool in self._pools.items() if pool.kinds is not None]
        for name in choosing:
            own = Counter(found.at(name))
            self._take_kinds(name, own, nobodys, held[name], stopped[name], self._rooms[name])
            unused += max(0, own.total() - self._decisions[name].used)
        for name in choosing if unused else ():
            before = self._decisions[name]
            room = min(before.used + unused, self._claimants[name].most)
            if room > before.room:
                own = used_classes(self._index, before, found.at(name), before.pool.allotted or {})
                self._take_kinds(name, own, nobodys, held[name], stopped[name], room)
                unused -= max(0, self._decisions[name].used - before.used)
                self._rooms[name] = max(self._rooms[name], self._decisions[name].used)

    def _take_kinds(
        self,
        name: str,
        own: Counter[SlotClass],
        nobodys: Counter[SlotClass],
        held: Mapping[SlotClass, int],
        stopped: frozenset[int],
        room: int,
    ) -> None:
        """Decide again, with what is its own and nobody's; the rest is nobody's afterwards."""
        pool = self._pools[name]
        allotted = {one: own[one] + nobodys[one] for one in self._index.open_to(pool.group)}
        self._decisions[name] = self._decide_again(confined(self._index, pool, allotted, stopped, held), room)
        nobodys.update(own)
        nobodys.subtract(used_classes(self._index, self._decisions[name], own, allotted))

    def _decide_again(self, confined_pool: Pool, room: int) -> Decision:
        before, decision = self._decisions[confined_pool.group.name], self._decide(confined_pool, room)
        return decision.with_reservations_of(before)

    def _held_by_others(self, name: str, jobs: frozenset[int]) -> Mapping[SlotClass, int]:
        """Return slots of each class that the group holds beside these jobs."""
        held = self._index.held_in.get(name, {})
        if not jobs:
            return held
        refs = [ref for job in jobs for ref in self._pools[name].held[job]]
        return Counter(held) - self._index.classes_of(refs)

    def _kept_in(self, name: str) -> Mapping[SlotClass, int]:
        """Return slots of each class that the group's jobs hold and keep: who shrinks keeps the kind it has most of."""
        pool, decision, found = self._pools[name], self._decisions[name], Counter[SlotClass]()
        for job, refs in pool.held.items():
            left = decision.shares.get(job, len(refs) if job in decision.pinned else 0)
            for one, count in self._index.classes_of(refs).most_common():
                found[one] += (kept := min(count, left))
                left -= kept
        return found

    def _total(self, pool: Pool) -> int:
        return sum(self._sizes.get(offered, 0) for offered in self._index.open_to(pool.group))

    def _grant(self, rooms: Mapping[str, int]) -> None:
        for name, room in rooms.items():
            if self._rooms.get(name) != room:
                self._rooms[name] = room
                self._decisions[name] = self._decide(self._pools[name], room)

    def _decide(self, pool: Pool, room: int) -> Decision:
        held_back = self._held_back.get(pool.group.name, frozenset())
        found = decide(pool, room, beside_others=True, held_back=held_back)
        if found.used < room and pool.group.shared_at is not None:
            # Targets are kept only where they use the whole part: other groups would take the rest until they change.
            anew = replace(pool, group=replace(pool.group, shared_at=None))
            other = decide(anew, room, beside_others=True, held_back=held_back)
            found = other if other.used > found.used else found
        return found

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
                self._lend(name, self._taken.most(name, needed))

    def _lend_to_who_wants_more(self) -> None:
        """Each group keeps what it uses. One that cannot use its part asks for no more, and what it leaves is
        shared out again."""
        full = {name for name, decision in self._decisions.items() if decision.used < self._rooms[name]}
        while any(map(self._could_have_more, self._decisions)):
            used = {name: decision.used for name, decision in self._decisions.items()}
            asking = {
                name: replace(one, least=used[name], wants=used[name] if name in full else one.wants)
                for name, one in self._claimants.items()
            }
            parts = self._parts(asking)
            for name, part in parts.items():
                self._lend(name, part)
            stuck = {name for name, part in parts.items() if self._decisions[name].used < part}
            if stuck <= full:
                return
            full |= stuck

    def _could_have_more(self, name: str) -> bool:
        """Than it uses, if all others have no more than they use."""
        used, most = self._decisions[name].used, self._claimants[name].most
        return used < most and self._taken.most(name, used + 1) > used

    def _lend_to_who_can_use_it(self) -> None:
        for name in self._largest_first():
            most = self._claimants[name].most
            if self._decisions[name].used < most:
                self._lend(name, self._taken.most(name, most))

    def _leave_fixed_in_place(self) -> None:
        """Nobody grows or starts beyond its quota where a job of fixed size would have to stop, only to be moved."""
        self._beside_fixed()
        for name in sorted(self._decisions):
            owned = max(self._claimants[name].asked_of_quota, self._pools[name].in_use)
            if self._decisions[name].used > owned:
                self._grant({name: max(min(owned, self._rooms[name]), self._in_place(name, self._rooms[name]))})
                self._note_fixed(name)

    def _beside_fixed(self) -> None:
        """Return slots beside jobs of fixed size that stay where they are, and what others than these have of it."""
        self._fixed = {name: self._index.classes_of(staying_slots(one)) for name, one in self._decisions.items()}
        taken = sum(self._fixed.values(), Counter[SlotClass]())
        self._beside = Flow(self._reach(), {offered: size - taken[offered] for offered, size in self._sizes.items()})
        self._beside.ask({name: self._used_beside(name) for name in self._decisions})

    def _used_beside(self, name: str) -> int:
        return self._decisions[name].used - self._fixed[name].total()

    def _note_fixed(self, name: str) -> None:
        """Note that its decision has changed."""
        if self._index.classes_of(staying_slots(self._decisions[name])) != self._fixed[name]:
            self._beside_fixed()
        else:
            self._beside.ask({name: self._used_beside(name)})

    def _in_place(self, name: str, room: int) -> int:
        """Return how much of `room` it can have beside what others use, with every job of fixed size where it is."""
        fixed = self._fixed[name].total()
        return min(room, fixed + self._beside.most(name, max(0, room - fixed)))

    def _lend(self, name: str, room: int) -> None:
        """Unless it makes nothing of it: a job in its line that begins to fit may keep others waiting."""
        if room > self._rooms[name] and self._may_displace:
            room = max(self._rooms[name], self._in_place(name, room))
        if room > self._rooms[name]:
            tried = self._decide(self._pools[name], room)
            if tried.used > self._decisions[name].used:
                self._rooms[name], self._decisions[name] = room, tried
                self._taken.ask({name: self._taken_by(name)})
                if self._may_displace:
                    self._note_fixed(name)

    def _largest_first(self) -> list[str]:
        return sorted(self._decisions, key=lambda name: (-self._pools[name].in_use, name))

    def _taken_by(self, name: str) -> int:
        one, decision = self._claimants[name], self._decisions[name]
        kept = 0 if one.lends else within_limit(decision.pool, min(one.owned, self._rooms[name]), decision.pinned)
        return max(decision.used, kept)

    def _parts(self, claimants: Mapping[str, Claimant]) -> dict[str, int]:
        return in_whole_slots(tuple(claimants.values()), self._deserved(claimants), self._sizes, self._slot_flow)

    def _deserved(self, claimants: Mapping[str, Claimant]) -> dict[str, Fraction]:
        """See `entitlement`. Found once for the same claimants: nobody has to keep anything, most often."""
        ones = tuple(claimants.values())
        if ones not in self._found:
            self._found[ones] = deserved(ones, self._sizes, self._slot_flow)
        return self._found[ones]

    def _reach(self) -> dict[str, Sequence[SlotClass]]:
        return {name: self._index.open_to(pool.group) for name, pool in self._pools.items()}

    def _entitlement(self, name: str, exact: Fraction) -> GroupEntitlement:
        decision, group = self._decisions[name], self._pools[name].group
        return GroupEntitlement(
            total=self._total(self._pools[name]),
            wants=self._wants[name],
            deserved=exact,
            room=self._rooms[name],
            used=decision.used,
            held=self._pools[name].in_use,
            quota=group.quota,
            weight=group.weight,
            borrows=group.borrows,
            draining=self._pools[name].draining,
        )


def _claimant(pool: Pool, total: int) -> Claimant:
    group, quota = pool.group, pool.group.quota
    if quota is not None and group.limit is not None:
        quota = max(0, quota - pool.draining)
    return Claimant(
        name=group.name,
        resource_group=group.resource_group,
        wants=min(total, sum(max(one.max_slots, one.least) for one in pool.demands if one.running or group.started)),
        quota=quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=not group.keeps_quota,
        since=min((job.submitted_at for job in pool.jobs), default=0.0),
    )

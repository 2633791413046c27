"""Groups that share slots, and their division as the passes of `scheduling.sharing.division` hand it on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from scheduling.sharing.decision import Decision, decide
from scheduling.sharing.entitlement import (
    Claimant,
    GroupEntitlement,
    SlotClass,
    SlotFlow,
    deserved,
    in_whole_slots,
    reachable_slots,
)
from scheduling.sharing.flow import Flow
from scheduling.sharing.pool import Pool, SlotIndex
from scheduling.snapshot import GroupView

__all__ = ["Division", "Sharers", "sharers_of"]

Claimants = Mapping[str, Claimant]


@dataclass(frozen=True)
class Sharers:
    """Groups that share slots, or one that its quota limits: what no pass changes."""

    index: SlotIndex
    #: Slots in service of each class that is open to any of the groups.
    sizes: Mapping[SlotClass, int]
    pools: Mapping[str, Pool]
    #: Claims of the groups before any pass.
    claimants: Claimants
    #: Group -> the classes of slots that are open to it.
    reach: Mapping[str, Sequence[SlotClass]]
    #: Whether a group may get slots that a fixed-size job of another one holds.
    may_displace: bool

    @cached_property
    def _slot_flow(self) -> SlotFlow:
        return reachable_slots(self.claimants.values(), self.sizes)

    @cached_property
    def _found(self) -> dict[tuple[Claimant, ...], dict[str, Fraction]]:
        return {}

    def total(self, name: str) -> int:
        """Return the number of slots in service that are open to the group."""
        return _total(self.sizes, self.reach[name])

    def deserved(self, claimants: Claimants) -> dict[str, Fraction]:
        """Return the exact parts. Computed once for equal claimants, which most passes have."""
        ones = tuple(claimants.values())
        if ones not in self._found:
            self._found[ones] = deserved(ones, self.sizes, self._slot_flow)
        return self._found[ones]

    def parts(self, claimants: Claimants) -> dict[str, int]:
        return in_whole_slots(tuple(claimants.values()), self.deserved(claimants), self.sizes, self._slot_flow)

    def are_there(self, requested: Mapping[str, int]) -> bool:
        """Return whether all groups can have so many slots at once."""
        return Flow(self.reach, self.sizes).ask(requested)

    def may_have(self, claimants: Claimants, name: str, needed: int) -> bool:
        """Return whether the group can have so many slots within its limit and beside the quotas of others."""
        owned = {other: one.owned for other, one in claimants.items() if other != name}
        return needed <= claimants[name].most and self.are_there({**owned, name: needed})


@dataclass(frozen=True)
class Division:
    """Slots of each group, and the decision of its policy about them."""

    sharers: Sharers
    claimants: Claimants
    rooms: Mapping[str, int] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    #: Group -> jobs that wait for the reservation of another one, whatever their group has.
    held_back: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def used(self) -> dict[str, int]:
        return {name: decision.used for name, decision in self.decisions.items()}

    def decide(self, pool: Pool, room: int) -> Decision:
        held_back = self.held_back.get(pool.group.name, frozenset())
        found = decide(pool, room, beside_others=True, held_back=held_back)
        if found.used < room and pool.group.shared_at is not None:
            # Targets are kept only where they use the whole part: other groups would take the rest until they change.
            anew = replace(pool, group=replace(pool.group, shared_at=None))
            other = decide(anew, room, beside_others=True, held_back=held_back)
            found = other if other.used > found.used else found
        return found

    def decide_again(self, pool: Pool, room: int) -> Decision:
        """Decide about the same jobs with other slots: what reservations said of them stays."""
        return self.decide(pool, room).with_reservations_of(self.decisions[pool.group.name])

    def with_decisions(self, decisions: Mapping[str, Decision], rooms: Mapping[str, int] | None = None) -> "Division":
        return replace(self, decisions={**self.decisions, **decisions}, rooms={**self.rooms, **(rooms or {})})

    def with_rooms(self, rooms: Mapping[str, int]) -> "Division":
        """Give the groups so many slots; decides about those that had another number."""
        pools, changed = self.sharers.pools, {n: room for n, room in rooms.items() if self.rooms.get(n) != room}
        return self.with_decisions({name: self.decide(pools[name], room) for name, room in changed.items()}, changed)

    def entitlement(self, name: str, exact: Fraction) -> GroupEntitlement:
        """Return the group's part for sentences: with what its jobs can use, also where kinds of GPU are taken."""
        pool = self.sharers.pools[name]
        group = pool.group
        return GroupEntitlement(
            total=self.sharers.total(name),
            wants=self.sharers.claimants[name].wants,
            deserved=exact,
            room=self.rooms[name],
            used=self.decisions[name].used,
            held=pool.in_use,
            quota=group.quota,
            weight=group.weight,
            borrows=group.borrows,
            draining=pool.draining,
        )


def sharers_of(index: SlotIndex, groups: Sequence[GroupView]) -> Sharers:
    names = {group.resource_group for group in groups}
    sizes = {offered: size for offered, size in index.sizes.items() if offered & names}
    # Free slots are told apart last, where each group has its own part of them.
    view = index if len(sizes) == 1 else index.beside_free()
    pools = {group.name: view.pool(group) for group in groups}
    held_by_fixed = (not job.elastic and job.id in pool.held for pool in pools.values() for job in pool.jobs)
    reach = {group.name: index.open_to(group) for group in groups}
    claimants = {name: _claimant(pool, _total(sizes, reach[name])) for name, pool in pools.items()}
    return Sharers(index, sizes, pools, claimants, reach, may_displace=len(sizes) > 1 and any(held_by_fixed))


def _total(sizes: Mapping[SlotClass, int], classes: Iterable[SlotClass]) -> int:
    return sum(sizes.get(offered, 0) for offered in classes)


def _claimant(pool: Pool, total: int) -> Claimant:
    group, quota = pool.group, pool.group.quota
    if quota is not None and group.limit is not None:
        quota = max(0, quota - pool.draining)
    asking = (one for one in pool.demands if one.running or group.started)
    return Claimant(
        name=group.name,
        resource_group=group.resource_group,
        wants=min(total, sum(max(one.max_slots, one.least) for one in asking)),
        quota=quota,
        weight=group.weight,
        borrows=group.borrows,
        lends=not group.keeps_quota,
        since=min((job.submitted_at for job in pool.jobs), default=0.0),
    )

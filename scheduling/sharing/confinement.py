"""The pass that says which slots each group may have, where that matters to others."""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from itertools import chain

from scheduling.sharing.decision import Decision
from scheduling.sharing.entitlement import SlotClass
from scheduling.sharing.flow import Flow, flow
from scheduling.sharing.kept_slots import staying_slots, used_classes
from scheduling.sharing.pool import Pool, SlotIndex
from scheduling.sharing.sharers import Division, Sharers
from scheduling.sharing.slot_classes import Refs, SlotClasses
from scheduling.snapshot import SlotRef

__all__ = ["confine"]

#: Group -> number of slots of each class.
ByClass = Mapping[str, Counter[SlotClass]]


def confine(division: Division) -> Division:
    """Say which slots each group may have: as far as possible those that it holds.

    First with every job of fixed size where it is, because it would have to stop; only a group that lacks some then
    counts on slots of these. A job that is stopped in any case holds none, or another one would have to leave for it.
    """
    sharers, index, decisions = division.sharers, division.sharers.index, division.decisions
    stopped = {
        name: frozenset(pool.held) - decisions[name].shares.keys() - decisions[name].pinned
        for name, pool in sharers.pools.items()
    }
    held = {name: _kept_in(sharers, decision) for name, decision in decisions.items()}
    found = _classes_in_place(division, held)
    confined_to: dict[str, Decision] = {}
    for name, pool in sharers.pools.items():
        confined_pool = _confined(index, pool, found.at(name), stopped[name], held[name])
        is_same = not confined_pool.displaced and decisions[name].room == division.rooms[name]
        # If nobody moves, nothing changes.
        decision = (
            decisions[name].on(confined_pool) if is_same else division.decide_again(confined_pool, division.rooms[name])
        )
        if decision.used > (allotted := sum(found.at(name).values())):
            # A job that is stopped to move leaves room for a larger one, but others count on the rest.
            decision = division.decide_again(confined_pool, allotted)
        confined_to[name] = decision
    division = division.with_decisions(confined_to)
    return division if index.kinds is None else _choose_kinds(division, found, held, stopped)


def _classes_in_place(division: Division, held: ByClass) -> Flow[str, SlotClass]:
    """Return how many slots of each class each group has."""
    sharers, used = division.sharers, division.used
    fixed = {name: sharers.index.classes_of(staying_slots(one)) for name, one in division.decisions.items()}
    taken = sum(fixed.values(), Counter[SlotClass]())
    beside_fixed = flow(
        {name: count - fixed[name].total() for name, count in used.items()},
        sharers.reach,
        {offered: size - taken[offered] for offered, size in sharers.sizes.items()},
        {name: Counter(held[name]) - fixed[name] for name in used},
    )
    if not sharers.may_displace:
        return beside_fixed
    without_stops = {name: Counter(beside_fixed.at(name)) + fixed[name] for name in used}
    return flow(used, sharers.reach, sharers.sizes, without_stops)


def _choose_kinds(
    division: Division, found: Flow[str, SlotClass], held: ByClass, stopped: Mapping[str, frozenset[int]]
) -> Division:
    """Let one group after the other take another kind of GPU, of what no group was given. What a group leaves because
    it is of the wrong kind for it, others may have."""
    sharers = division.sharers
    index, nobodys, unused = sharers.index, Counter(sharers.sizes), 0

    def take(name: str, own: Counter[SlotClass], room: int) -> Decision:
        """Decide again, with what is the group's own and nobody's; the rest is nobody's afterwards."""
        pool = sharers.pools[name]
        allotted = {one: own[one] + nobodys[one] for one in sharers.reach[name]}
        decision = division.decide_again(_confined(index, pool, allotted, stopped[name], held[name]), room)
        nobodys.update(own)
        nobodys.subtract(used_classes(index, decision, own, allotted))
        return decision

    for name in sharers.pools:
        nobodys.subtract(found.at(name))
    choosing = [name for name, pool in sharers.pools.items() if pool.kinds is not None]
    for name in choosing:
        own = Counter(found.at(name))
        decision = take(name, own, division.rooms[name])
        unused += max(0, own.total() - decision.used)
        division = division.with_decisions({name: decision})
    for name in choosing if unused else ():
        before = division.decisions[name]
        room = min(before.used + unused, division.claimants[name].most)
        if room > before.room:
            own = used_classes(index, before, found.at(name), before.pool.allotted or {})
            decision = take(name, own, room)
            unused -= max(0, decision.used - before.used)
            division = division.with_decisions({name: decision}, {name: max(division.rooms[name], decision.used)})
    return division


def _kept_in(sharers: Sharers, decision: Decision) -> Counter[SlotClass]:
    """Return slots of each class that the group's jobs hold and keep."""
    index, name = sharers.index, decision.pool.group.name
    assert index.classes is not None
    given: list[SlotRef] = []
    for job, refs in sharers.pools[name].held.items():
        left = decision.shares.get(job, len(refs) if job in decision.pinned else 0)
        if left < len(refs):
            given += list(chain(*index.classes.rows(refs)))[left:]
    return Counter(index.held_in.get(name, {})) - index.classes_of(given)


# --- the pool of a group --------------------------------------------------------------------------------------------


def _confined(
    index: SlotIndex,
    pool: Pool,
    allotted: Mapping[SlotClass, int],
    stopped: frozenset[int],
    kept: Counter[SlotClass],
) -> Pool:
    """Return the group's pool, beside what is free or coming, with no more slots of a class than it may have; what is
    held beyond that is to be left.

    `stopped`: see `Pool`. `kept`: slots that its jobs hold and keep.
    """
    pool = replace(pool, allotted=allotted, stopped=stopped)
    displaced = _displaced(pool, kept - Counter(allotted), index.classes, stopped)
    if not displaced:
        return pool
    moving = {job: frozenset(refs) for job, refs in displaced.items() if pool.views[job].elastic}
    counts = {job: len(refs) for job, refs in displaced.items()}
    return replace(pool.leaving(moving), displaced=counts)


def _displaced(
    pool: Pool, excess: Counter[SlotClass], classes: SlotClasses | None, stopped: Set[int]
) -> dict[int, tuple[SlotRef, ...]]:
    """Return job -> the slots that it shall leave: of elastic jobs first, the newest of the lowest priority; then those
    of fixed size, which stop for it, the cheapest as in `policies.cheapest_first`."""
    found: dict[int, tuple[SlotRef, ...]] = {}
    if not excess:
        return found
    assert classes is not None
    left = Counter(excess)
    line = sorted(pool.jobs, key=lambda job: (job.priority, -job.submitted_at, -job.id))
    able = [job for job in line if job.id in pool.held and job.id not in stopped]
    for job in (job for job in able if job.elastic):
        leaves = []
        for ref in reversed(pool.held[job.id]):
            if left[classes[ref]] > 0:
                left[classes[ref]] -= 1
                leaves.append(ref)
        if leaves:
            found[job.id] = tuple(leaves)
    stopping = [job for job in able if not job.elastic and job.id not in pool.protected]
    stopping.sort(key=lambda job: (not job.continues, job.loses(len(pool.held[job.id]), pool.at)))
    fixed = {job.id: pool.held[job.id] for job in stopping}
    return found | _needed({job: Counter(classes[ref] for ref in refs) for job, refs in fixed.items()}, +left, fixed)


def _needed(
    fixed: Mapping[int, Counter[SlotClass]], excess: Counter[SlotClass], held: Mapping[int, Refs]
) -> dict[int, Refs]:
    """Return the fixed-size jobs that make room for `excess`, in this order, without those that are not needed."""
    chosen: list[int] = []
    left = Counter(excess)
    for job, counts in fixed.items():
        if any(left[offered] > 0 for offered in counts):
            chosen.append(job)
            left.subtract(counts)
    for job in reversed(chosen.copy()):
        if all(left[offered] + count <= 0 for offered, count in fixed[job].items() if offered in excess):
            chosen.remove(job)
            left.update(fixed[job])
    return {job: held[job] for job in chosen}

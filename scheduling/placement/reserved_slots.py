"""Slots of a reservation, as far as they are known, for display only. Their number alone decides anything."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from scheduling.placement.slot_choice import JobSlots
from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Demand
from scheduling.sharing.decision import Decision
from scheduling.snapshot import SlotRef

__all__ = ["reserved_slots"]


def reserved_slots(decision: Decision, placed: Mapping[int, JobSlots]) -> tuple[SlotRef, ...]:
    """Return slots in order of (host, index). Empty where nobody can say when they are there."""
    reservation = decision.reservation
    pool = decision.pool
    if reservation is None or reservation.at is None or pool.views[reservation.job].one_host:
        return ()
    claimed = {ref for slots in placed.values() for ref in slots.claim}
    free = (ref for refs in pool.free.values() for ref in refs if ref not in claimed)
    coming = (ref for holder in sorted(pool.coming) for ref in pool.coming[holder])
    found = chain(free, coming, _ending(decision, placed, reservation.at), _shrinking(decision, placed, reservation))
    return tuple(sorted(islice(found, reservation.slots)))


def _ending(decision: Decision, placed: Mapping[int, JobSlots], at: float) -> Iterator[SlotRef]:
    """Return slots of jobs that are over by then, those that end first before others."""
    staying = (demand for demand in decision.demands if demand.id not in decision.reclaimed)
    ends = {demand.id: demand.ends(decision.pool.at) for demand in staying}
    over = sorted((ends_at, job) for job, ends_at in ends.items() if ends_at is not None and ends_at <= at)
    for _, job in over:
        yield from placed[job].kept + placed[job].claim + placed[job].vacate


def _shrinking(decision: Decision, placed: Mapping[int, JobSlots], first: Reservation) -> Iterator[SlotRef]:
    """Return slots of the others beyond their least, from the last in line on; all slots of stopped ones."""
    for demand in reversed(decision.demands):
        slots, ends_at = placed[demand.id], demand.ends(decision.pool.at)
        if slots.target and (ends_at is None or first.at is None or ends_at > first.at):
            stays = 0 if first.gives_way(demand.id) or _is_below(decision, demand) else demand.min_slots
            yield from (slots.kept + slots.claim)[stays:]
            yield from slots.vacate


def _is_below(decision: Decision, demand: Demand) -> bool:
    """Return whether the first in line takes what this one has, because of its priority."""
    group, reservation = decision.pool.group, decision.reservation
    if group.policy != "priority" or not group.preemption or demand.protected or reservation is None:
        return False
    return demand.priority < next(one.priority for one in decision.demands if one.id == reservation.job)

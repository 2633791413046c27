"""Policies: how many slots each job of one instance group gets, by what each job asks for.

`shares_of` serves the demands in their order: by priority, under fifo by submission. It returns the number of slots for
each job that gets any. A running job that is missing is to be stopped: under the priority policy with preemption, or
because it gives way to a job before it in line, or because its study, which counts as one job, has too few slots for
all its trainings (see `scheduling.policies.bundles`). Any other job that is missing waits. Every number lies within the
job's minimum and maximum, except that a running job which holds less than its minimum may be left with what it holds.

Jobs wait in order: a waiting job is passed over only if it could not start even on all slots. The first that waits has
a reservation, and who is behind it may start before it where that delays nothing; see `scheduling.policies.backfill`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from scheduling.policies.bundles import Folded, fold, spare_members, terms_of
from scheduling.policies.demand import Demand, cheapest_first
from scheduling.policies.fair_share import fair_division
from scheduling.policies.first_come import Shares, serve_in_order
from scheduling.policies.goodput_shares import by_goodput, by_weights
from scheduling.policies.priority import by_priority_with_preemption
from scheduling.snapshot import GroupView

__all__ = ["kept_beside", "served", "shares_of", "to_stop"]

_PRIORITY = attrgetter("priority")


def to_stop(group: GroupView, demands: Sequence[Demand], excess: int) -> frozenset[int]:
    """Choose the running jobs to stop, given in the order in which they are served, to set `excess` slots free
    where all the others have their least: the cheapest, and none whose slots are not needed; none that is protected.

    Where priority alone decides, a lower one goes first whatever it loses: it would be stopped a cycle later, for the
    higher one that was stopped in its place. Of a bundle, which counts as one job, all members but one go before
    others.
    """
    line = cheapest_first([demand for demand in demands if demand.least and not demand.protected])
    if beside_first := spare_members(demands):
        line.sort(key=lambda demand: -beside_first.get(demand.id, 0))
    if group.policy == "priority":
        line.sort(key=_PRIORITY)
    chosen: list[Demand] = []
    for demand in line:
        if excess > 0:
            chosen.append(demand)
            excess -= demand.least
    for demand in reversed(chosen.copy()):
        if excess + demand.least <= 0:
            chosen.remove(demand)
            excess += demand.least
    return frozenset(demand.id for demand in chosen)


def kept_beside(group: GroupView, demand: Demand, first: Demand, *, is_ahead: bool) -> int:
    """Return the slots that the group's policy leaves a job when `first`, a waiting one, starts with its minimum.

    `is_ahead`: the job is served before it, and grows before it starts.
    """
    if group.preemption and group.policy in ("fairshare", "goodput"):
        return demand.least
    if group.preemption and group.policy == "priority" and demand.priority < first.priority:
        return demand.least
    return demand.max_slots if is_ahead else demand.kept


def shares_of(group: GroupView, demands: Iterable[Demand], capacity: int, *, now: float = 0.0) -> dict[int, int]:
    """Divide slots among `demands`, given in the order of service, by the group's policy. `now`: Unix seconds."""
    return served(group, demands, capacity, now=now).slots


def served(
    group: GroupView,
    demands: Iterable[Demand],
    capacity: int,
    *,
    now: float = 0.0,
    rooms: Mapping[str, int] | None = None,
) -> Shares:
    """Return the shares of the demands, and what the first that waits is to have.

    rooms: where kinds of GPU matter to the group, number of slots of each; None: all are of one kind, or kinds are
    chosen later.
    """
    demands = tuple(demands)
    folded = fold(demands, capacity, terms_of(group))
    if group.policy == "goodput":
        return by_goodput(group, demands, capacity, now, rooms, folded)
    if group.weighs_kinds and rooms is not None:
        return by_weights(group, demands, capacity, now, rooms, folded)
    if folded is None:
        return _served(group, demands, capacity, now)
    while True:
        shares = _served(group, folded.demands, capacity, now)
        corrected = folded.corrected(shares.slots, shares.reservations.values())
        if corrected is None:
            return _unfolded(folded, shares)
        folded = corrected


def _unfolded(folded: Folded, shares: Shares) -> Shares:
    slots = folded.unfolded(shares.slots)
    reservations = {level: folded.reservation(found, slots) for level, found in shares.reservations.items()}
    return replace(shares, slots=slots, reservations=reservations, bundles=folded.bundles)


def _served(group: GroupView, demands: Sequence[Demand], capacity: int, now: float) -> Shares:
    if group.policy == "fairshare":
        division = fair_division(demands, capacity, preemption=group.preemption, now=now)
        found = division.reservation
        return Shares(division.shares, {None: found} if found else {}, division)
    if group.policy == "priority" and group.preemption:
        return by_priority_with_preemption(demands, capacity, now)
    # First come (by submission or priority), first served: nobody is ever shrunk or stopped.
    kept = {demand.id: demand.kept for demand in demands if demand.running}
    return serve_in_order(demands, kept, capacity - sum(kept.values()), capacity, (), now)

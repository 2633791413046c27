"""Priority with preemption: a higher priority takes what it asks for, lower ones are shrunk and then stopped."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Commitment, Demand, cheapest_first
from scheduling.policies.first_come import Shares, serve_in_order

__all__ = ["by_priority_with_preemption"]

_PRIORITY = attrgetter("priority")


def by_priority_with_preemption(demands: Sequence[Demand], capacity: int, now: float) -> Shares:
    """Higher priority first, with all it asks for: lower ones are shrunk for it and then stopped.

    Jobs that are still protected keep their minimum, whoever else asks. Of all that wait the first has a reservation,
    which binds its equals: lower ones use what is left until it is taken from them.
    """
    given: dict[int, int] = {}
    reservations: dict[int | None, Reservation] = {}
    reserved = sum(demand.least for demand in demands if demand.protected)
    #: Slots of higher priorities, and of these, those that elastic jobs of unknown end have.
    firm = lasting = 0
    for level, same in groupby(demands, key=_PRIORITY):
        equals = list(same)
        reserved -= sum(demand.least for demand in equals if demand.protected)
        # Ends of other priorities count for the first reservation only: no later one says a time.
        committed: Iterable[Commitment] = (
            _committed_beside(level, demands, given, now)
            if not reservations
            else (Commitment(firm - lasting + reserved, None), Commitment(lasting, None, is_elastic=True))
        )
        found = _among_equals(equals, capacity - reserved - sum(given.values()), capacity, committed, now)
        given |= found.slots
        for reservation in found.reservations.values():
            reservation.taken = reserved + sum(given.values())
            reservations[level] = reservation
        for demand in equals:
            if demand.id in given:
                firm += demand.max_slots
                is_endless = (demand.ends_at if demand.running else demand.lasts) is None
                lasting += demand.max_slots if demand.elastic and is_endless else 0
    return Shares(given, reservations)


def _committed_beside(
    level: int, demands: Sequence[Demand], given: Mapping[int, int], now: float
) -> Iterator[Commitment]:
    """Return what jobs of this priority cannot have: slots of higher ones, and the least of protected lower ones."""
    for demand in demands:
        if demand.priority > level and demand.id in given:
            yield demand.commits(demand.max_slots, now)
        elif demand.priority < level and demand.protected:
            yield Commitment(demand.least, demand.ends(now))


def _among_equals(
    equals: Sequence[Demand], left: int, capacity: int, committed: Iterable[Commitment], now: float
) -> Shares:
    """Equals take nothing from each other: what they hold comes first, their growth and new jobs after it.

    Where not all of them can stay, those do that would lose most.
    """
    given: dict[int, int] = {}
    running = [demand for demand in equals if demand.running]
    costliest = cheapest_first(running)[::-1]
    for demand in sorted(costliest, key=lambda demand: not demand.protected):
        # Protected jobs may keep more than there is: a job that holds nothing in service is not stopped for them.
        if demand.least <= max(0, left) or demand.protected:
            given[demand.id] = demand.least
            left -= demand.least
    for demand in running:
        if demand.id in given:
            more = max(0, min(demand.kept - given[demand.id], left))
            given[demand.id] += more
            left -= more
    return serve_in_order(equals, given, left, capacity, committed, now)

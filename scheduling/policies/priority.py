"""Higher priority first: it gets all it asks for. With preemption, lower ones are shrunk for it and then stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from scheduling.demand import Demand
from scheduling.policies.in_order import serve

__all__ = ["shares"]


def shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    """Jobs that are still protected keep their minimum, whoever else asks."""
    if not preemption:
        kept = {demand.id: demand.kept for demand in demands if demand.running}
        return serve(demands, kept, capacity - sum(kept.values()), capacity)
    given: dict[int, int] = {}
    reserved = sum(demand.least for demand in demands if demand.protected)
    for _, same in groupby(demands, key=lambda demand: demand.priority):
        equals = list(same)
        reserved -= sum(demand.least for demand in equals if demand.protected)
        given |= _among_equals(equals, capacity - reserved - sum(given.values()), capacity)
    return given


def _among_equals(equals: Sequence[Demand], left: int, capacity: int) -> dict[int, int]:
    """Equals take nothing from each other: what they hold comes first, their growth and new jobs after it."""
    given: dict[int, int] = {}
    running = [demand for demand in equals if demand.running]
    for demand in sorted(running, key=lambda demand: not demand.protected):
        if demand.least <= left or demand.protected:
            given[demand.id] = demand.least
            left -= demand.least
    for demand in running:
        if demand.id in given:
            more = max(0, min(demand.kept - given[demand.id], left))
            given[demand.id] += more
            left -= more
    return serve(equals, given, left, capacity)

"""Higher priority first: it gets all it asks for. With preemption, lower ones are shrunk for it and then stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from jobs.scheduling.demand import Demand, by_priority
from jobs.scheduling.policies.in_order import serve

__all__ = ["shares"]


def shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    line = sorted(demands, key=by_priority)
    if not preemption:
        kept = {demand.id: demand.kept for demand in demands if demand.running}
        return serve(line, kept, capacity - sum(kept.values()), capacity)
    given: dict[int, int] = {}
    for _, equals in groupby(line, key=lambda demand: demand.priority):
        given |= _among_equals(list(equals), capacity - sum(given.values()), capacity)
    return given


def _among_equals(equals: Sequence[Demand], left: int, capacity: int) -> dict[int, int]:
    """Equals take nothing from each other: what they hold comes first, their growth and new jobs after it."""
    given: dict[int, int] = {}
    running = [demand for demand in equals if demand.running]
    for demand in running:
        least = min(demand.kept, demand.min_slots)
        if least <= left:
            given[demand.id] = least
            left -= least
    for demand in running:
        if demand.id in given:
            more = min(demand.kept - given[demand.id], left)
            given[demand.id] += more
            left -= more
    return serve(equals, given, left, capacity)

"""What a group gives back of what its jobs hold when other groups have a right to it: shrink first, then stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from scheduling.demand import Demand
from scheduling.policies import fairshare
from scheduling.snapshot import GroupView

__all__ = ["Reclaimed", "reclaim"]


@dataclass(frozen=True)
class Reclaimed:
    #: The others, in the same order, with what is left to each that runs.
    demands: tuple[Demand, ...]
    #: Jobs that are stopped.
    stopped: frozenset[int]


def reclaim(group: GroupView, demands: Sequence[Demand], capacity: int, evicted: Set[int] = frozenset()) -> Reclaimed:
    """`demands` in the order in which they are served; `capacity` is what they may share from now on.

    Every job that runs is shrunk, as far as its minimum, before any is stopped. Jobs are stopped in the reverse order,
    and none whose slots are not needed; none that is still protected. `evicted` are stopped in any case.
    """
    stopped = evicted | _to_stop([demand for demand in demands if demand.id not in evicted], capacity)
    left = [demand for demand in demands if demand.id not in stopped]
    running = [demand for demand in left if demand.running]
    if sum(demand.kept for demand in running) > capacity:
        limits = _limits(group, running, capacity)
        left = [replace(demand, limit=limits.get(demand.id)) for demand in left]
    return Reclaimed(tuple(left), frozenset(stopped))


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
        return fairshare.shares(asked, capacity, preemption=True)
    limits = {demand.id: demand.least for demand in running}
    spare = capacity - sum(limits.values())
    for demand in running:
        more = max(0, min(demand.kept - demand.least, spare))
        limits[demand.id] += more
        spare -= more
    return limits

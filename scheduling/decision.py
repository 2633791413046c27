"""How many slots each job of one group gets: its policy, and the jobs that no policy can decide about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduling.demand import Demand
from scheduling.entitlement import GroupEntitlement
from scheduling.policies import fairshare, fifo, priority
from scheduling.pool import Pool
from scheduling.reclaim import Reclaimed, reclaim
from scheduling.snapshot import GroupView

__all__ = ["Decision", "decide", "shares_of"]

_POLICIES = {"fifo": fifo.shares, "priority": priority.shares, "fairshare": fairshare.shares}


@dataclass(frozen=True)
class Decision:
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
    #: Jobs that are stopped because other groups have a right to their slots.
    reclaimed: frozenset[int] = frozenset()
    #: Jobs that wait because their group is stopped.
    closed: frozenset[int] = frozenset()
    #: What the group may have beside others on the same slots. None: it is alone there.
    entitlement: GroupEntitlement | None = None

    @property
    def used(self) -> int:
        """Slots in service that its jobs have once everything has changed hands."""
        return sum(self.shares.values()) + sum(len(self.pool.held.get(job, ())) for job in self.pinned)


def decide(pool: Pool, room: int, *, beside_others: bool = False) -> Decision:
    """`room`: how many slots in service the group's jobs may have together. `beside_others`: others want the rest."""
    fixed = {job.id for job in pool.jobs if not job.elastic}
    pinned = {job for job in pool.away if job in fixed} - pool.displaced.keys()
    evicted = fixed & pool.displaced.keys()
    while True:
        decision = _decide_without(pinned, evicted, pool, room, beside_others=beside_others)
        stranded = {
            demand.id
            for demand in decision.demands
            if pool.away.get(demand.id) and decision.shares.get(demand.id, 0) < demand.min_slots
        }
        if not stranded:
            return decision
        evicted |= (stranded & pool.displaced.keys()) - pool.protected
        pinned |= stranded - evicted


def _decide_without(pinned: set[int], evicted: set[int], pool: Pool, room: int, *, beside_others: bool) -> Decision:
    group = pool.group
    capacity = room - sum(len(pool.held.get(job, ())) for job in pinned)
    demands = [demand for demand in pool.demands if demand.id not in pinned]
    closed: frozenset[int] = frozenset()
    if not group.started:
        closed = frozenset(demand.id for demand in demands if not demand.running)
        demands = [demand for demand in demands if demand.running]
    reclaimed = Reclaimed(tuple(demands), frozenset())
    if beside_others:
        reclaimed = reclaim(group, demands, capacity, evicted)
    return Decision(
        pool=pool,
        capacity=capacity,
        demands=reclaimed.demands,
        shares=shares_of(group, reclaimed.demands, capacity),
        pinned=frozenset(pinned),
        reclaimed=reclaimed.stopped,
        closed=closed,
    )


def shares_of(group: GroupView, demands: Iterable[Demand], capacity: int) -> dict[int, int]:
    """What the group's policy gives to `demands`, in the order in which they are served."""
    return _POLICIES[group.policy](tuple(demands), capacity, preemption=group.preemption)

"""How many slots each job of one group gets: its policy, and the jobs that no policy can decide about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.scheduling.demand import Demand, Order, by_priority, by_submission
from jobs.scheduling.policies import fairshare, fifo, priority
from jobs.scheduling.pool import Pool, demand_of
from jobs.scheduling.snapshot import GroupView

__all__ = ["Decision", "decide", "shares_of"]

_POLICIES = {"fifo": fifo.shares, "priority": priority.shares, "fairshare": fairshare.shares}


@dataclass(frozen=True)
class Decision:
    pool: Pool
    #: Slots that the jobs below share.
    capacity: int
    #: The jobs that the policy decided about, in the order in which they are served.
    demands: tuple[Demand, ...]
    #: Slots of each job that gets any; see `jobs.scheduling.policies`.
    shares: dict[int, int]
    #: Jobs that keep exactly what they hold, because some of it is on a host that takes nothing new: fixed-size jobs,
    #: which finish there, and elastic ones whose minimum fits nowhere else.
    settled: frozenset[int]


def decide(pool: Pool) -> Decision:
    settled = {job.id for job in pool.jobs if not job.elastic and pool.away.get(job.id)}
    while True:
        decision = _decide_without(settled, pool)
        stranded = {
            demand.id
            for demand in decision.demands
            if pool.away.get(demand.id) and decision.shares.get(demand.id, 0) < demand.min_slots
        }
        if not stranded:
            return decision
        settled |= stranded


def _decide_without(settled: set[int], pool: Pool) -> Decision:
    order: Order = by_submission if pool.group.policy == "fifo" else by_priority
    capacity = pool.capacity - sum(len(pool.held.get(job, ())) for job in settled)
    demands = sorted((demand_of(job, pool) for job in pool.jobs if job.id not in settled), key=order)
    return Decision(pool, capacity, tuple(demands), shares_of(pool.group, demands, capacity), frozenset(settled))


def shares_of(group: GroupView, demands: Iterable[Demand], capacity: int) -> dict[int, int]:
    """What the group's policy gives; see `jobs.scheduling.policies`. In any order of `demands`."""
    return _POLICIES[group.policy](tuple(demands), capacity, preemption=group.preemption)

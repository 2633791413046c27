"""Policies: how many slots each job of one instance group gets, by what each job asks for.

`shares_of` serves the demands in their order: by priority, under fifo by submission. It returns the number of slots for
each job that gets any. A running job that is missing is to be stopped (only ever under the priority policy with
preemption); any other job that is missing waits. Every number lies within the job's minimum and maximum, except that a
running job which holds less than its minimum may be left with what it holds.

Jobs wait in order, without overtaking: a waiting job is passed over only if it could not start even on all slots.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from scheduling.snapshot import GroupView

__all__ = ["Demand", "by_priority", "by_submission", "fair_shares", "floors", "shares_of"]

_ID, _SUBMITTED_AT, _PRIORITY = attrgetter("id"), attrgetter("submitted_at"), attrgetter("priority")


@dataclass(slots=True)  # not frozen, like others of which there are very many: that makes one eight times as slowly
class Demand:
    """What one job asks of its group's slots."""

    id: int
    priority: int
    submitted_at: float
    #: A job that is not elastic has min_slots == max_slots.
    min_slots: int
    max_slots: int
    #: It holds slots that it has not been told to give back.
    running: bool
    #: How many of those are in service. 0 unless running.
    held: int = 0
    #: It has not run for its group's minimum run time yet: it may be shrunk, not stopped.
    protected: bool = False
    #: What its group leaves it of what it holds, where other groups take something back. None: all.
    limit: int | None = None

    @property
    def kept(self) -> int:
        """What it has if no job of its group takes anything from it: its own maximum may have been lowered below what
        it holds, or its group gives something back."""
        kept = min(self.held, self.max_slots)
        return kept if self.limit is None else min(kept, self.limit)

    @property
    def least(self) -> int:
        """The least that it trains on, if it runs: what it holds may be below its minimum."""
        return min(self.kept, self.min_slots)


def by_priority(demands: Iterable[Demand]) -> list[Demand]:
    """In this order; of equals first who has asked for longer, then by id."""
    return sorted(by_submission(demands), key=_PRIORITY, reverse=True)


def by_submission(demands: Iterable[Demand]) -> list[Demand]:
    return sorted(sorted(demands, key=_ID), key=_SUBMITTED_AT)


def shares_of(group: GroupView, demands: Iterable[Demand], capacity: int) -> dict[int, int]:
    """What the group's policy gives to `demands`, in the order in which they are served."""
    demands = tuple(demands)
    if group.policy == "fairshare":
        return fair_shares(demands, capacity, preemption=group.preemption)
    if group.policy == "priority" and group.preemption:
        return _by_priority_with_preemption(demands, capacity)
    # First come (by submission or priority), first served: nobody is ever shrunk or stopped.
    kept = {demand.id: demand.kept for demand in demands if demand.running}
    return _serve(demands, kept, capacity - sum(kept.values()), capacity)


def _serve(line: Sequence[Demand], given: Mapping[int, int], spare: int, capacity: int) -> dict[int, int]:
    """Hand `spare` slots to the jobs of `line` in its order, to each all that it asks for, on top of what `given` says
    that they have.

    Ends at the first job that waits although it would fit into `capacity`: nobody behind it may take what it waits for.
    """
    result, spare = dict(given), max(0, spare)
    for demand in line:
        has = result.get(demand.id, 0)
        gets = has + min(demand.max_slots - has, spare)
        if demand.running and demand.id not in given:
            continue  # it is being stopped
        if not demand.running and gets < demand.min_slots:
            if demand.min_slots <= capacity:
                break
            continue
        result[demand.id] = gets
        spare -= gets - has
    return result


# --- priority --------------------------------------------------------------------------------------------------------


def _by_priority_with_preemption(demands: Sequence[Demand], capacity: int) -> dict[int, int]:
    """Higher priority first, with all it asks for: lower ones are shrunk for it and then stopped.

    Jobs that are still protected keep their minimum, whoever else asks.
    """
    given: dict[int, int] = {}
    reserved = sum(demand.least for demand in demands if demand.protected)
    for _, same in groupby(demands, key=_PRIORITY):
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
    return _serve(equals, given, left, capacity)


# --- fair share ------------------------------------------------------------------------------------------------------


def fair_shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    """x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

    With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without
    preemption it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is
    below its share.

    Lambda is solved for exactly: share what is left among the unclamped, clamp who violates a limit, repeat. Each pass
    clamps only on the side where the violations weigh more; such a job stays clamped in the solution. What is clamped
    is whole, so what is left stays whole too: only the last pass divides. Its parts are rounded down; the remainder
    goes to the largest fractions, of equal ones to who is served first.
    """
    least = floors(demands, capacity, preemption=preemption)
    unclamped = [demand for demand in demands if demand.id in least]
    left = min(capacity, sum(demand.max_slots for demand in unclamped))
    shares: dict[int, int] = {}
    while unclamped:
        # A job's exact share is `left * priority / total`: compared in parts of `total`, everything is whole.
        total = sum(demand.priority for demand in unclamped)
        low = {d.id: least[d.id] for d in unclamped if left * d.priority < least[d.id] * total}
        high = {d.id: d.max_slots for d in unclamped if left * d.priority > d.max_slots * total}
        if not low and not high:
            break
        wanted = left * sum(d.priority for d in unclamped if d.id in low or d.id in high)
        excess = (sum(low.values()) + sum(high.values())) * total - wanted
        done = low if excess > 0 else high if excess < 0 else low | high
        shares |= done
        left -= sum(done.values())
        unclamped = [demand for demand in unclamped if demand.id not in done]
    if unclamped:
        parts = {demand.id: divmod(left * demand.priority, total) for demand in unclamped}
        shares |= {job: whole for job, (whole, _) in parts.items()}
        remainder = sum(rest for _, rest in parts.values()) // total
        for job in sorted(parts, key=lambda job: parts[job][1], reverse=True)[:remainder]:
            shares[job] += 1
    return shares


def floors(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    """The least that each job gets which takes part; the others wait. Running jobs come first, then (priority, age)."""
    running = [demand for demand in demands if demand.running]
    least = {demand.id: demand.least if preemption else demand.kept for demand in running}
    spare = capacity - sum(least.values())
    for demand in running:
        need = demand.min_slots - least[demand.id]
        if 0 < need <= spare:
            least[demand.id] = demand.min_slots
            spare -= need
    for demand in demands:
        if demand.running:
            continue
        if demand.min_slots <= spare:
            least[demand.id] = demand.min_slots
            spare -= demand.min_slots
        elif demand.min_slots <= capacity:
            break
    return least

"""Fair share: slots in proportion to priorities, within what each job needs at least and can use at most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from scheduling.policies.backfill import Reservation, committed_slots, reserve
from scheduling.policies.demand import Demand

__all__ = ["FairDivision", "ceilings_of", "fair_division", "fair_shares", "floors_of"]


@dataclass(frozen=True)
class FairDivision:
    """Slots of each job, and how that came about. All counts but the priority are slots."""

    shares: dict[int, int]
    #: Jobs held by neither their least nor their most: priority alone divides `shared` between them.
    by_priority: frozenset[int]
    #: The sum of their priorities.
    priority: int
    shared: int
    #: Reservation of the first job in line that waits though it would fit; None: no job does.
    reservation: Reservation | None = None


def fair_shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    return fair_division(demands, capacity, preemption=preemption).shares


def fair_division(demands: Sequence[Demand], capacity: int, *, preemption: bool, now: float = 0.0) -> FairDivision:
    """x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

    With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without
    preemption it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is
    below its share.

    There nobody grows who is behind the first in line, so what that one waits for is kept.

    Lambda is solved for exactly: share what is left among the unclamped, clamp who violates a limit, repeat. Each pass
    clamps only on the side where the violations weigh more; such a job stays clamped in the solution. What is clamped
    is whole, so what is left stays whole too: only the last pass divides. Its parts are rounded down; the remainder
    goes to the largest fractions, of equal ones to who is served first. A job whose GPUs count as several slots gets
    whole GPUs, see `_in_whole_gpus`.
    """
    least, reservation = floors_of(demands, capacity, preemption=preemption, now=now)
    most = ceilings_of(demands, least, reservation, preemption=preemption)
    unclamped = [demand for demand in demands if demand.id in least]
    left = min(capacity, sum(most.values()))
    shares: dict[int, int] = {}
    while unclamped:
        # A job's exact share is `left * priority / total`: compared in parts of `total`, everything is whole.
        total = sum(demand.priority for demand in unclamped)
        low = {d.id: least[d.id] for d in unclamped if left * d.priority < least[d.id] * total}
        high = {d.id: most[d.id] for d in unclamped if left * d.priority > most[d.id] * total}
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
    if any(demand.per_gpu > 1 for demand in demands):
        shares = _in_whole_gpus(demands, shares, least, most)
    priority = sum(demand.priority for demand in unclamped)
    by_priority = frozenset(demand.id for demand in unclamped)
    return FairDivision(shares, by_priority, priority, left, reservation)


def _in_whole_gpus(
    demands: Sequence[Demand], shares: Mapping[int, int], least: Mapping[int, int], most: Mapping[int, int]
) -> dict[int, int]:
    """Return the shares in whole GPUs: each is rounded down, and what is over goes GPU by GPU to who has the fewest
    slots for its priority, of equal ones to who is served first."""
    sharing = [demand for demand in demands if demand.id in shares]
    whole = {d.id: max(least[d.id], shares[d.id] // d.per_gpu * d.per_gpu) for d in sharing}
    over = sum(shares.values()) - sum(whole.values())
    poorest = [(whole[demand.id] / demand.priority, place) for place, demand in enumerate(sharing)]
    heapify(poorest)
    while over > 0 and poorest:
        place = heappop(poorest)[1]
        demand = sharing[place]
        if demand.per_gpu <= min(over, most[demand.id] - whole[demand.id]):  # else it cannot grow later either
            whole[demand.id] += demand.per_gpu
            over -= demand.per_gpu
            heappush(poorest, (whole[demand.id] / demand.priority, place))
    return whole


def ceilings_of(
    demands: Sequence[Demand], least: Mapping[int, int], reservation: Reservation | None, *, preemption: bool
) -> dict[int, int]:
    """Without preemption growth is for good: nobody behind the first in line may take what that one needs."""
    ahead = len(demands)
    if reservation is not None and not preemption:
        ahead = next(place for place, demand in enumerate(demands) if demand.id == reservation.job)
    return {d.id: d.max_slots if place < ahead else least[d.id] for place, d in enumerate(demands) if d.id in least}


def floors_of(
    demands: Sequence[Demand], capacity: int, *, preemption: bool, now: float
) -> tuple[dict[int, int], Reservation | None]:
    """Return the least that each participating job gets; the others wait, or are stopped for whom they give way to.

    Running jobs come first, then (priority, age). And the reservation of the first of those that wait and would fit.
    """
    running = [demand for demand in demands if demand.running]
    least = {demand.id: demand.least if preemption else demand.kept for demand in running}
    spare = capacity - sum(least.values())
    for demand in running:
        need = demand.min_slots - least[demand.id]
        if 0 < need <= spare:
            least[demand.id] = demand.min_slots
            spare -= need
    giving_way = [demand for demand in running if preemption and demand.may_give_way and demand.backfilled_for]
    reservation: Reservation | None = None
    for demand in demands:
        if demand.running:
            continue
        if reservation is not None:
            if spare <= 0:
                break
            if demand.min_slots > spare:
                continue
            if _starts_before(demand, reservation, now):
                least[demand.id] = demand.min_slots
                spare -= demand.min_slots
            continue
        own = [one for one in giving_way if one.backfilled_for == demand.id]
        if demand.min_slots <= spare + sum(least[one.id] for one in own):
            while spare < demand.min_slots:
                spare += least.pop(own.pop().id)
            least[demand.id] = demand.min_slots
            spare -= demand.min_slots
        elif demand.min_slots <= capacity:
            stopping = frozenset(one.id for one in own)
            floors = {job: count for job, count in least.items() if job not in stopping}
            # With preemption what is beyond the least is taken back at once.
            committed = (
                (d.commits(floors[d.id], now, demand.id) for d in demands if d.id in floors)
                if preemption
                else committed_slots(demands, floors, demand, now)
            )
            reservation = reserve(demand.id, demand.min_slots, committed, capacity)
            reservation.stopping = stopping
    if reservation is not None and preemption:
        reservation.taken = sum(count for job, count in least.items() if not reservation.gives_way(job))
    return least, reservation


def _starts_before(demand: Demand, reservation: Reservation, now: float) -> bool:
    """Return whether it starts with its minimum before whom the reservation is for. Elastic jobs shrink for it to their
    minimum, as they would for the one that waits."""
    reservation.admit(demand.id, demand.min_slots, demand.min_slots, demand.ends(now))
    is_beside = reservation.filling.get(demand.id) in ("in_time", "beside")
    if not is_beside and demand.may_give_way and reservation.is_far(now):
        reservation.filling[demand.id] = "gives_way"
    return demand.id in reservation.filling

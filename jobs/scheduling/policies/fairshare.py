"""Fair share: x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without preemption
it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is below its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from jobs.scheduling.demand import Demand, by_priority

__all__ = ["floors", "shares"]


def shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    least = floors(demands, capacity, preemption=preemption)
    admitted = [demand for demand in demands if demand.id in least]
    return _in_whole_slots(admitted, _fill(admitted, least, capacity))


def floors(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    """The least that each job gets which takes part; the others wait. Running jobs come first, then (priority, age)."""
    line = sorted(demands, key=lambda demand: (not demand.running, by_priority(demand)))
    least = {d.id: min(d.kept, d.min_slots) if preemption else d.kept for d in line if d.running}
    spare = capacity - sum(least.values())
    for demand in line:
        need = demand.min_slots - least.get(demand.id, 0)
        if need <= spare:
            least[demand.id] = max(demand.min_slots, least.get(demand.id, 0))
            spare -= max(need, 0)
        elif not demand.running and demand.min_slots <= capacity:
            break
    return least


def _fill(admitted: Sequence[Demand], least: Mapping[int, int], capacity: int) -> dict[int, Fraction]:
    """Solve for lambda exactly: share what is left among the unclamped, clamp who violates a limit, repeat.

    Each turn clamps only on the side where the violations weigh more; such a job stays clamped in the solution.
    """
    left = Fraction(min(capacity, sum(demand.max_slots for demand in admitted)))
    result: dict[int, Fraction] = {}
    unclamped = list(admitted)
    while unclamped:
        per_priority = left / sum(demand.priority for demand in unclamped)
        wish = {d.id: per_priority * d.priority for d in unclamped}
        clamped = {d.id: min(max(wish[d.id], Fraction(least[d.id])), Fraction(d.max_slots)) for d in unclamped}
        excess = sum(clamped.values()) - left
        done = {i for i in wish if excess == 0 or (clamped[i] - wish[i]) * excess > 0}
        result |= {i: clamped[i] for i in done}
        left -= sum((clamped[i] for i in done), Fraction(0))
        unclamped = [demand for demand in unclamped if demand.id not in done]
    return result


def _in_whole_slots(admitted: Sequence[Demand], exact: Mapping[int, Fraction]) -> dict[int, int]:
    """Round down; the remainder goes to the largest fractions, ties by (priority, submission, id)."""
    whole = {job: int(share) for job, share in exact.items()}
    remainder = int(sum(exact.values(), Fraction(0))) - sum(whole.values())
    line = sorted(admitted, key=lambda demand: (whole[demand.id] - exact[demand.id], by_priority(demand)))
    for demand in line[:remainder]:
        whole[demand.id] += 1
    return whole

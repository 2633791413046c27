"""Fair share: x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without preemption
it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is below its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Exact:
    """Shares before rounding: the whole of each, and what is left of it in parts of `denominator`."""

    whole: Mapping[int, int]
    rest: Mapping[int, int]
    denominator: int


def _fill(admitted: Sequence[Demand], least: Mapping[int, int], capacity: int) -> _Exact:
    """Solve for lambda exactly: share what is left among the unclamped, clamp who violates a limit, repeat.

    Each turn clamps only on the side where the violations weigh more; such a job stays clamped in the solution. What
    is clamped is whole, so what is left stays whole too: only the last turn divides.
    """
    left = min(capacity, sum(demand.max_slots for demand in admitted))
    whole: dict[int, int] = {}
    unclamped = list(admitted)
    while unclamped:
        total = sum(demand.priority for demand in unclamped)
        # In parts of `total`: wished, and as far as the limits allow.
        wish = {d.id: left * d.priority for d in unclamped}
        allowed = {d.id: min(max(wish[d.id], least[d.id] * total), d.max_slots * total) for d in unclamped}
        excess = sum(allowed.values()) - left * total
        if excess == 0:
            parts = {job: divmod(share, total) for job, share in allowed.items()}
            whole |= {job: part[0] for job, part in parts.items()}
            return _Exact(whole, {job: part[1] for job, part in parts.items()}, total)
        done = {job: share // total for job, share in allowed.items() if (share - wish[job]) * excess > 0}
        whole |= done
        left -= sum(done.values())
        unclamped = [demand for demand in unclamped if demand.id not in done]
    return _Exact(whole, {}, 1)


def _in_whole_slots(admitted: Sequence[Demand], exact: _Exact) -> dict[int, int]:
    """Round down; the remainder goes to the largest fractions, ties by (priority, submission, id)."""
    whole = dict(exact.whole)
    remainder = sum(exact.rest.values()) // exact.denominator
    line = sorted(admitted, key=lambda demand: (-exact.rest.get(demand.id, 0), by_priority(demand)))
    for demand in line[:remainder]:
        whole[demand.id] += 1
    return whole

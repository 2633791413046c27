"""Fair share: x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without preemption
it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is below its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduling.demand import Demand

__all__ = ["floors", "shares"]


def shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    least = floors(demands, capacity, preemption=preemption)
    admitted = [demand for demand in demands if demand.id in least]
    return _in_whole_slots(_fill(admitted, least, capacity))


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


@dataclass(frozen=True)
class _Exact:
    """Shares before rounding: the whole of each, and what is left of it in parts of `denominator`."""

    whole: dict[int, int]
    #: Of the jobs that are at no limit, in the order in which they are served.
    rest: Mapping[int, int]
    denominator: int


def _fill(admitted: Sequence[Demand], least: Mapping[int, int], capacity: int) -> _Exact:
    """Solve for lambda exactly: share what is left among the unclamped, clamp who violates a limit, repeat.

    Each pass clamps only on the side where the violations weigh more; such a job stays clamped in the solution. What
    is clamped is whole, so what is left stays whole too: only the last pass divides.
    """
    left = min(capacity, sum(demand.max_slots for demand in admitted))
    whole: dict[int, int] = {}
    unclamped = admitted
    while unclamped:
        # A job's desired state is `left * priority / total`: compared in parts of `total`, everything is whole.
        total = sum(demand.priority for demand in unclamped)
        low = {d.id: least[d.id] for d in unclamped if left * d.priority < least[d.id] * total}
        high = {d.id: d.max_slots for d in unclamped if left * d.priority > d.max_slots * total}
        if not low and not high:
            break
        wanted = left * sum(d.priority for d in unclamped if d.id in low or d.id in high)
        excess = (sum(low.values()) + sum(high.values())) * total - wanted
        done = low if excess > 0 else high if excess < 0 else low | high
        whole |= done
        left -= sum(done.values())
        unclamped = [demand for demand in unclamped if demand.id not in done]
    total = sum(demand.priority for demand in unclamped)
    parts = {demand.id: divmod(left * demand.priority, total) for demand in unclamped}
    whole |= {job: part for job, (part, _) in parts.items()}
    return _Exact(whole, {job: rest for job, (_, rest) in parts.items()}, max(1, total))


def _in_whole_slots(exact: _Exact) -> dict[int, int]:
    """Round down; the remainder goes to the largest fractions, of equal ones to who is served first."""
    remainder = sum(exact.rest.values()) // exact.denominator
    for job in sorted(exact.rest, key=exact.rest.__getitem__, reverse=True)[:remainder]:
        exact.whole[job] += 1
    return exact.whole

"""First come, first served: earlier jobs get all they ask for. Nobody is ever shrunk or stopped."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.demand import Demand
from scheduling.policies.in_order import serve

__all__ = ["shares"]


def shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    """Preemption changes nothing here: what is held is kept until its holder ends."""
    kept = {demand.id: demand.kept for demand in demands if demand.running}
    return serve(demands, kept, capacity - sum(kept.values()), capacity)

"""One job after the other, each with all it asks for: what fifo and priority have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduling.demand import Demand

__all__ = ["serve"]


def serve(line: Sequence[Demand], given: Mapping[int, int], spare: int, capacity: int) -> dict[int, int]:
    """Hand `spare` slots to the jobs of `line` in its order, on top of what `given` says that they have.

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

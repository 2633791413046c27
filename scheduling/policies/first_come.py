"""First come, first served, by submission or priority, without shrinking or stopping; and `Shares`, the result of every
policy.

`serve_in_order` is also how equals are served under priority with preemption.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from scheduling.policies.backfill import Reservation, committed_slots, reserve
from scheduling.policies.bundles import Bundle
from scheduling.policies.demand import Commitment, Demand
from scheduling.policies.fair_share import FairDivision
from scheduling.policies.goodput import GoodputDivision

__all__ = ["Shares", "serve_in_order"]


@dataclass(frozen=True)
class Shares:
    """Slots that a policy assigns, and the reservations of the first waiting jobs."""

    #: Slots of each job that gets any.
    slots: dict[int, int]
    #: Reservation of the first job that waits though it would fit, in each line where one does: the key is the line's
    #: priority under priority with preemption, else None. The highest priority first.
    reservations: Mapping[int | None, Reservation]
    #: Division by fair share; None under other policies.
    division: FairDivision | None = None
    #: Division by goodput, or by the weights of kinds of GPU; None under other policies.
    goodput: GoodputDivision | None = None
    #: Bundles by the id of their demand, which stands for their members in `division`.
    bundles: Mapping[int, Bundle] = field(default_factory=dict)

    @property
    def overtaking(self) -> dict[int, int]:
        """Jobs that start before one that waits, and hold its slots when it could start -> that one."""
        return {job: first for one in self.reservations.values() for job, first in one.overtaking.items()}


def serve_in_order(
    line: Sequence[Demand],
    given: Mapping[int, int],
    spare: int,
    capacity: int,
    committed: Iterable[Commitment],
    now: float,
) -> Shares:
    """Hand `spare` slots to the jobs of `line` in its order, to each all that it asks for, on top of what `given` says
    that they have.

    The first job that waits although it would fit into `capacity` has a reservation. Nobody behind it grows, and who
    starts delays it in nothing. `committed`: what others beside this line have.
    """
    result, spare, reservation = dict(given), max(0, spare), None
    for demand in line:
        if reservation is not None and not spare:
            break
        is_stopped = demand.running and demand.id not in given
        if demand.running and reservation is not None:
            continue  # the job keeps its slots, or is being stopped
        has = result.get(demand.id, 0)
        gets = has + min(demand.max_slots - has, spare)
        if is_stopped or (not demand.running and gets < demand.min_slots):  # who is stopped waits again in its place
            if reservation is None and demand.min_slots <= capacity:
                own = committed_slots(line, result, demand, now)
                reservation = reserve(demand.id, demand.min_slots, chain(committed, own), capacity)
            continue
        if reservation is not None:
            gets = reservation.admit(demand.id, demand.min_slots, gets, demand.ends(now))
        if gets:
            result[demand.id] = gets
            spare -= gets - has
    return Shares(result, {None: reservation} if reservation else {})

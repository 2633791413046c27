"""Division of GPUs by goodput: the most of what they are worth to all jobs of a group together.

Maximised is the sum of the utilities of all jobs (`goodput_bids`). Segments of all hulls are given in the order of
their worth per GPU, as long as there are slots. That is the best division, unless the last segment does not fit: then
what may be missing to the best is known, the gap.

A division that is no better than the present one is discarded, so an unchanged snapshot yields a stable result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from scheduling.policies.goodput_bids import Bid
from scheduling.policies.hull_segments import HullSegments

__all__ = [
    "BETTER",
    "GoodputDivision",
    "Step",
    "goodput_division",
    "last_steps",
    "total_value",
]

#: Relative gain from which a division counts as better.
BETTER = 1e-9


class Step(NamedTuple):
    """Step from one of its sizes to the next."""

    job: int
    before: int
    after: int
    #: Kind of GPU; "" where there is one alone.
    kind: str = ""


@dataclass(frozen=True)
class GoodputDivision:
    shares: dict[int, int]
    #: Upper bound on the optimality gap, as a fraction of the best utility above the floors.
    gap: float
    #: Weighted utility of one further slot; 0 where every job has all that it is offered.
    price: float
    #: Weighted utility of all jobs together.
    value: float
    #: Of two jobs on each kind that have more than their floors: what the last step up of each is worth least for.
    last: tuple[Step, ...] = ()
    #: Where there are several kinds of GPU: the one that each job shall train on, but for those that have to train on
    #: several at once; and what a further slot of each would be worth.
    kinds: Mapping[int, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    #: Job that weighs more because it is late -> its finish-time ratio; see `finish_time_ratio`.
    late: Mapping[int, float] = field(default_factory=dict)


def goodput_division(bids: Sequence[Bid], capacity: int) -> GoodputDivision:
    """Divide the slots. Jobs get their floors even where these do not fit: none is stopped. bids: in this order."""
    floors = sum(bid.floor for bid in bids)
    found = HullSegments([[bid] for bid in bids]).given(
        np.zeros(len(bids), dtype=np.int64), [capacity - floors], capacity - floors
    )
    shares = dict(zip((bid.id for bid in bids), found.slots.tolist(), strict=True))
    price, value = found.prices.get(0, 0.0), total_value(bids, shares)
    gap = max(0.0, (found.bound - found.gained) / found.bound) if found.bound is not None and found.bound > 0 else 0.0
    has = _what_they_have(bids, capacity)
    if has is not None and (kept := total_value(bids, has)) >= value - BETTER * abs(value):
        return GoodputDivision(has, gap, price, kept, last=last_steps(bids, has))
    return GoodputDivision(shares, gap, price, value, last=last_steps(bids, shares))


def last_steps(bids: Iterable[Bid], shares: Mapping[int, int]) -> tuple[Step, ...]:
    """Return the steps that `GoodputDivision.last` holds."""
    found: dict[str, list[tuple[float, int, Step]]] = {}
    for order, bid in enumerate(bids):
        after = shares[bid.id]
        if bid.scaling is not None and after > bid.floor:
            before = max(size for size in bid.sizes if size < after)
            worth = (bid.utility(after) - bid.utility(before)) / (after - before)
            found.setdefault(bid.kind, []).append((round(worth, 12), order, Step(bid.id, before, after, bid.kind)))
    return tuple(step for steps in found.values() for _, _, step in nsmallest(2, steps))


def total_value(bids: Iterable[Bid], shares: Mapping[int, int]) -> float:
    return sum(bid.utility(shares[bid.id]) for bid in bids)


def _what_they_have(bids: Iterable[Bid], capacity: int) -> dict[int, int] | None:
    """Return the present slots of all jobs; None if a job starts or cannot keep its slots."""
    has = {}
    for bid in bids:
        if bid.has is None or not bid.floor <= bid.has <= bid.most:
            return None
        has[bid.id] = bid.has
    return has if sum(has.values()) <= capacity else None

"""Segments of hulls, given many at a time: the same as one after the other."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from scheduling.policies.goodput_bids import Bid
from scheduling.policies.hull_segments import NO_KIND, HullSegments
from scheduling.policies.speedups import JobScaling

HOST = 4


def bid(job: int, kind: str, draw: Random) -> Bid:
    most = draw.randint(1, 12)
    floor = draw.randint(1, min(3, most))
    speedups, speed = [], draw.choice([1.0, 2.0])
    for _ in range(most):
        speedups.append(speed)
        speed += draw.choice([0.0, 0.1, 0.5, 1.0])
    sizes = tuple(sorted({floor, most, *(size for size in (1, 2, 4, 8) if floor < size < most)}))
    scaling = JobScaling(tuple(speedups), sizes, most, "maximum", HOST, 0, None, 1.0, 0.0)
    has = draw.choice([None, draw.randint(1, most)])
    return Bid(job, draw.choice([0.5, 1.0, 3.0]), 0.5, floor, most, has, scaling, kind)


def one_after_the_other(
    bids: Sequence[Bid | None], kinds: Sequence[int], rooms: Sequence[int], spare: int
) -> tuple[list[int], dict[int, float]]:
    """Return the slots of jobs, and the prices of kinds, as `HullSegments.given`: the segment that is worth most first,
    as long as it fits; a job from whose hull one does not fit gets no further one, but what is left over in the end."""
    slots = [0 if one is None else one.floor for one in bids]
    left, prices, cut = list(rooms), dict[int, float](), dict[int, Bid]()
    every = sorted(
        (cost, place, job) for job, one in enumerate(bids) if one is not None for place, cost in enumerate(one.slopes)
    )
    for cost, place, job in every:
        one = bids[job]
        assert one is not None
        more = one.corners[place + 1][0] - one.corners[place][0]
        if job in cut:
            continue
        if more > min(spare, left[kinds[job]]):
            prices.setdefault(kinds[job], -cost)
            cut[job] = one
            continue
        slots[job] += more
        left[kinds[job]] -= more
        spare -= more
    on_parts = set[int]()
    for job, one in cut.items():
        within_host = [HOST - slots[job]] if kinds[job] in on_parts else []
        most = min(spare, left[kinds[job]], one.most - slots[job], *within_host)
        gains = [(one.utility(slots[job] + more) - one.utility(slots[job]), -more) for more in range(1, most + 1)]
        gain, less = max(gains, default=(0.0, 0))
        if gain > 0:
            slots[job] -= less
            left[kinds[job]] += less
            spare += less
            if slots[job] > HOST:
                on_parts.add(kinds[job])
    return slots, prices


@pytest.mark.parametrize("seed", range(200))
def test_many_at_a_time_are_given_like_one_after_the_other(seed: int) -> None:
    draw = Random(seed)
    kinds, jobs = draw.randint(1, 4), draw.randint(1, 12)
    bids: list[list[Bid | None]] = []
    for job in range(jobs):
        one = bid(job, "", draw)
        bids.append([one if draw.random() < 0.8 else None for _ in range(kinds)])
    chosen = [draw.choice([NO_KIND, *(kind for kind in range(kinds) if row[kind] is not None)]) for row in bids]
    rooms = [draw.randint(-2, 30) for _ in range(kinds)]
    spare = draw.choice([sum(max(0, room) for room in rooms), draw.randint(-3, 40)])
    found = HullSegments(bids, kinds).given(np.array(chosen), rooms, spare)
    on_kind = [None if kind == NO_KIND else row[kind] for row, kind in zip(bids, chosen, strict=True)]
    slots, prices = one_after_the_other(on_kind, chosen, rooms, spare)
    for job, one in enumerate(on_kind):
        if one is not None:
            assert found.slots[job] == slots[job]
            assert found.worth[job] == one.utility(slots[job])
    assert found.prices == prices

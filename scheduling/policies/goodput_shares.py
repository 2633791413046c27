"""Policy goodput: the least of each job as under fair share, and what is beyond it where it is worth most."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Demand
from scheduling.policies.fair_share import ceilings_of, floors_of
from scheduling.policies.first_come import Shares
from scheduling.policies.goodput import Bid, GoodputDivision, bid_weight, goodput_division
from scheduling.policies.gpu_kinds import Offer, division_of_kinds
from scheduling.policies.target_hold import is_held
from scheduling.snapshot import GroupView

__all__ = ["by_goodput"]


def by_goodput(
    group: GroupView, demands: Sequence[Demand], capacity: int, now: float, rooms: Mapping[str, int] | None
) -> Shares:
    """The least of each job as under fair share; what is beyond it where it is worth most."""
    least, reservation = floors_of(demands, capacity, preemption=group.preemption, now=now)
    most = ceilings_of(demands, least, reservation, preemption=group.preemption)
    reservations: dict[int | None, Reservation] = {None: reservation} if reservation else {}
    part = [demand for demand in demands if demand.id in least]
    if (held_targets := _held_targets(group, part, least, most, capacity, now, rooms)) is not None:
        return Shares(held_targets.shares, reservations, goodput=held_targets)
    if rooms is None:
        division = goodput_division([_bid(group, demand, least, most) for demand in part], capacity)
    else:
        before = {demand.id: demand.target_kind for demand in part if demand.target_kind is not None}
        offers = [_offer(group, demand, least, most) for demand in part]
        division = division_of_kinds(offers, rooms, capacity, before)
    return Shares(division.shares, reservations, goodput=division)


def _bid(group: GroupView, demand: Demand, least: Mapping[int, int], most: Mapping[int, int]) -> Bid:
    scaling = demand.scaling
    remaining = scaling.remaining_seconds if scaling is not None else None
    weight, power = bid_weight(group.aim, demand.priority, demand.gpu_seconds, remaining)
    has = demand.held if demand.running else None
    floor = least[demand.id]
    return Bid(demand.id, weight, power, floor, max(floor, most[demand.id]), has, scaling)


def _offer(group: GroupView, demand: Demand, least: Mapping[int, int], most: Mapping[int, int]) -> Offer:
    """Return the job's offer. Without preemption, a running job stays on its kind of GPU."""
    bid, has = _bid(group, demand, least, most), {kind: count for kind, count in demand.held_on.items() if count}
    if not demand.scalings:
        return Offer({}, bid, has)
    stays = has.keys() if demand.running and not group.preemption else ()
    bids = {
        kind: replace(
            bid,
            kind=kind,
            scaling=scaling,
            most=max(bid.floor, min(bid.most, scaling.most)),
            has=has.get(kind, 0) if demand.running else None,
        )
        for kind, scaling in demand.scalings.items()
        if not stays or (len(stays) == 1 and kind in stays)
    }
    slowest = min(demand.scalings.values(), key=lambda scaling: scaling.speedup(1))
    return Offer(bids, replace(bid, scaling=slowest), has)


def _held_targets(
    group: GroupView,
    part: Sequence[Demand],
    least: Mapping[int, int],
    most: Mapping[int, int],
    capacity: int,
    now: float,
    rooms: Mapping[str, int] | None,
) -> GoodputDivision | None:
    """Return the previous plan's targets if nothing that they depend on has changed; None: decide again."""
    if not is_held(group.shared_at, now):
        return None
    targets = {demand.id: demand.target or 0 for demand in part if demand.running}
    is_possible = all(least[job] <= target <= max(least[job], most[job]) for job, target in targets.items())
    if len(targets) < len(part) or not is_possible or sum(targets.values()) > capacity:
        return None
    kinds: dict[int, str] = {}
    if rooms is not None:
        kinds = {one.id: kind for one in part if (kind := one.settled_kind) is not None}
        wanted = Counter[str]()
        for job, kind in kinds.items():
            wanted[kind] += targets[job]
        if any(count > rooms.get(kind, 0) for kind, count in wanted.items()):
            return None
    return GoodputDivision(targets, 0.0, 0.0, 0.0, kinds=kinds)

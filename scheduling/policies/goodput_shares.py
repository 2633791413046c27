"""Policy goodput: the least of each job as under fair share, and what is beyond it where it is worth most.

A fair share in which GPUs count by their kind is divided in the same way, by other bids (`weighted_share`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scheduling.policies.backfill import Reservation
from scheduling.policies.bundles import Bundle, Folded
from scheduling.policies.demand import Demand
from scheduling.policies.fair_share import FairDivision, ceilings_of, fair_division, floors_of
from scheduling.policies.first_come import Shares
from scheduling.policies.goodput import GoodputDivision, goodput_division
from scheduling.policies.goodput_bids import BEHIND, Bid, bid_weight, finish_time_ratio, lasts_for, seconds_left
from scheduling.policies.gpu_kinds import Offer, division_of_kinds
from scheduling.policies.target_hold import is_held
from scheduling.policies.weighted_share import weighted_bid
from scheduling.snapshot import GroupView

__all__ = ["by_goodput", "by_weights"]


def by_goodput(
    group: GroupView,
    demands: Sequence[Demand],
    capacity: int,
    now: float,
    rooms: Mapping[str, int] | None,
    folded: Folded | None = None,
) -> Shares:
    """Return the least of each job as under fair share; what is beyond it where it is worth most."""

    def divided(limits: _Limits) -> GoodputDivision:
        part = [demand for demand in demands if demand.id in limits.least]
        crowds = _crowds(terms.bundles.values(), limits.least)
        bids = [_bid(group, one, limits.least, limits.most, crowds.get(one.id, 1), rooms, now) for one in part]
        if rooms is None:
            return goodput_division(bids, capacity)
        late = _late(group, part, rooms, now)
        bids = [replace(bid, weight=bid.weight * late[bid.id] / BEHIND) if bid.id in late else bid for bid in bids]
        offers = [_offer(group, demand, bid) for demand, bid in zip(part, bids, strict=True)]
        return replace(division_of_kinds(offers, rooms, capacity, _kinds_before(part)), late=late)

    terms = _terms(group, demands, capacity, now, folded)
    division = _held_targets(group, demands, terms, capacity, now, rooms) or _keeping_members(terms, divided)
    return Shares(division.shares, terms.reservations, goodput=division, bundles=terms.bundles)


def by_weights(
    group: GroupView,
    demands: Sequence[Demand],
    capacity: int,
    now: float,
    rooms: Mapping[str, int],
    folded: Folded | None = None,
) -> Shares:
    """Return the least of each job as under fair share; beyond it, GPUs by weight in proportion to priorities."""

    def divided(limits: _Limits) -> GoodputDivision:
        part = [demand for demand in demands if demand.id in limits.least]
        crowds = _crowds(terms.bundles.values(), limits.least)
        bids = [weighted_bid(one, limits.least[one.id], limits.most[one.id], crowds.get(one.id, 1)) for one in part]
        offers = [_offer(group, demand, bid) for demand, bid in zip(part, bids, strict=True)]
        return division_of_kinds(offers, rooms, capacity, _kinds_before(part))

    terms = _terms(group, demands, capacity, now, folded)
    division = _keeping_members(terms, divided)
    return Shares(division.shares, terms.reservations, goodput=division, bundles=terms.bundles)


def _kinds_before(part: Iterable[Demand]) -> dict[int, str]:
    """Return the kinds of GPU of the plan before."""
    return {demand.id: demand.target_kind for demand in part if demand.target_kind is not None}


class _Limits(NamedTuple):
    """The least and the most of each job that takes part, and the reservation of the first that waits."""

    least: Mapping[int, int]
    most: Mapping[int, int]
    reservation: Reservation | None


class _Terms(NamedTuple):
    limits: _Limits
    reservations: Mapping[int | None, Reservation]
    bundles: Mapping[int, Bundle]


def _terms(group: GroupView, demands: Sequence[Demand], capacity: int, now: float, folded: Folded | None) -> _Terms:
    if folded is None:
        limits = _limits(demands, capacity, preemption=group.preemption, now=now)
    else:
        folded, fair = _settled(folded, capacity, preemption=group.preemption, now=now)
        limits = _limits_of_members(folded, fair, capacity, preemption=group.preemption, now=now)
    reservations: dict[int | None, Reservation] = {None: limits.reservation} if limits.reservation else {}
    return _Terms(limits, reservations, folded.bundles if folded is not None else {})


def _limits(demands: Sequence[Demand], capacity: int, *, preemption: bool, now: float) -> _Limits:
    least, reservation = floors_of(demands, capacity, preemption=preemption, now=now)
    return _Limits(least, ceilings_of(demands, least, reservation, preemption=preemption), reservation)


def _settled(folded: Folded, capacity: int, *, preemption: bool, now: float) -> tuple[Folded, FairDivision]:
    """Return the fair shares of bundles and others."""
    while True:
        fair = fair_division(folded.demands, capacity, preemption=preemption, now=now)
        corrected = folded.corrected(fair.shares, [fair.reservation] if fair.reservation else [])
        if corrected is None:
            return folded, fair
        folded = corrected


def _limits_of_members(folded: Folded, fair: FairDivision, capacity: int, *, preemption: bool, now: float) -> _Limits:
    """Return the limits where bundles count as one job: as many members take part as their fair share has room for."""
    least, most, reservation = _limits(folded.demands, capacity, preemption=preemption, now=now)
    given = folded.divided(fair.shares)
    floors = {job: count for job, count in least.items() if job not in folded.bundles}
    tops = {job: most[job] for job in floors}
    for job, slots in given.items():
        for one in folded.bundles[job].members:
            if one.id in slots:
                kept = one.least if preemption else one.kept
                floors[one.id] = max(kept, min(one.min_slots, slots[one.id]))
                tops[one.id] = one.max_slots if preemption or most[job] > least[job] else floors[one.id]
    return _Limits(floors, tops, reservation and folded.reservation(reservation, floors))


def _keeping_members(terms: _Terms, divided: Callable[[_Limits], GoodputDivision]) -> GoodputDivision:
    """Return the division. Fair shares say how many members of a bundle take part, and others may be unable to use
    theirs: none stops for what other members then get beyond what they need."""
    limits = terms.limits
    division = divided(limits)
    while (wider := _with_members_kept(terms, limits, division.shares)) is not None:
        then = divided(wider)
        if any(job in then.shares and job not in then.kinds for job in division.kinds):
            break  # no kind has room for all
        limits, division = wider, then
    return division


def _with_members_kept(terms: _Terms, limits: _Limits, shares: Mapping[int, int]) -> _Limits | None:
    """Return the limits with which more running members take part, for which what their bundles have of these shares
    is enough; None: there are none."""
    floors, tops, found = dict(limits.least), dict(limits.most), False
    for bundle in terms.bundles.values():
        running = [one.id for one in bundle.members if one.running]
        if floors.keys() >= set(running):
            continue
        given = bundle.divided(sum(shares.get(one.id, 0) for one in bundle.members))
        if sum(job in given for job in running) <= sum(job in floors for job in running):
            continue
        found = True
        for one in bundle.members:
            takes_part = one.id in given and (one.running or one.id in floors)
            floors.pop(one.id, None)
            if takes_part:
                floors[one.id] = max(one.least, min(one.min_slots, given[one.id]))
                tops[one.id] = one.max_slots
    return limits._replace(least=floors, most=tops) if found else None


def _crowds(bundles: Iterable[Bundle], least: Mapping[int, int]) -> dict[int, int]:
    """Return the number of members that take part, for each such member of a bundle."""
    found: dict[int, int] = {}
    for bundle in bundles:
        members = [member.id for member in bundle.members if member.id in least]
        found |= dict.fromkeys(members, len(members))
    return found


def _bid(
    group: GroupView,
    demand: Demand,
    least: Mapping[int, int],
    most: Mapping[int, int],
    crowd: int,
    rooms: Mapping[str, int] | None,
    now: float,
) -> Bid:
    """Return the bid of a job. `crowd`: number of jobs of its bundle, which together weigh as much as one."""
    scaling = demand.scaling
    remaining = scaling.remaining_seconds if scaling is not None else None
    weight, power = bid_weight(
        group.aim, demand.priority, demand.gpu_seconds, remaining, several_kinds=rooms is not None
    )
    weight /= crowd
    has = demand.held if demand.running else None
    floor = least[demand.id]
    left = seconds_left(remaining, demand.gpu_seconds, _present_speed(demand), demand.held)
    if rooms is not None:
        left = lasts_for(left, now - demand.submitted_at, demand.changes)
    return Bid(
        demand.id,
        weight,
        power,
        floor,
        max(floor, most[demand.id]),
        has,
        scaling,
        left=left,
        restarting=demand.restarting,
        several_kinds=rooms is not None,
    )


def _present_speed(demand: Demand) -> float:
    """Return the job's speed on the slots that it holds; if they are of several kinds, the slowest counts."""
    if not demand.held or demand.scaling is None:
        return 1.0
    kinds = [kind for kind, count in demand.held_on.items() if count and kind in demand.scalings]
    scalings = [demand.scalings[kind] for kind in kinds] or [demand.scaling]
    return min(scaling.speedup(demand.held) for scaling in scalings)


def _late(group: GroupView, part: Sequence[Demand], rooms: Mapping[str, int], now: float) -> dict[int, float]:
    """Return the finish-time ratios of jobs that are late, on pools of several kinds. Under `even` nobody weighs
    more."""
    if group.aim == "even":
        return {}
    ratios = {demand.id: _finish_time_ratio(demand, rooms, len(part), now) for demand in part}
    return {job: ratio for job, ratio in ratios.items() if ratio is not None and ratio > BEHIND}


def _finish_time_ratio(demand: Demand, rooms: Mapping[str, int], jobs: int, now: float) -> float | None:
    """Return rho of one of so many jobs; None if its work is not known. Its equal part is as many GPUs as each of them
    would have, a share of which is of each kind that it may be on."""
    rooms = {kind: count for kind, count in rooms.items() if kind in demand.scalings}
    scaling, slots = demand.scaling, sum(rooms.values())
    if scaling is None or scaling.remaining_seconds is None or not scaling.total_seconds or not slots:
        return None
    part = slots / jobs
    on_part = [(count, demand.scalings[kind].speedup(max(1, int(part)))) for kind, count in rooms.items()]
    speed = min(1.0, part) * sum(count * one for count, one in on_part) / slots
    age = max(0.0, now - demand.submitted_at)
    return finish_time_ratio(age, scaling.remaining_seconds, scaling.total_seconds, speed, scaling.start_seconds)


def _offer(group: GroupView, demand: Demand, bid: Bid) -> Offer:
    """Return the job's offer. Without preemption, a running job stays on its kind of GPU."""
    has = {kind: count for kind, count in demand.held_on.items() if count}
    if not demand.scalings:
        return Offer({}, bid, has, demand.host_kinds)
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
    demands: Sequence[Demand],
    terms: _Terms,
    capacity: int,
    now: float,
    rooms: Mapping[str, int] | None,
) -> GoodputDivision | None:
    """Return the previous plan's targets if nothing that they depend on has changed; None: decide again."""
    if not is_held(group.shared_at, now):
        return None
    # Members that were kept beside what their bundles' fair shares have room for.
    members = (one for bundle in terms.bundles.values() for one in bundle.members if one.running and one.target)
    kept = {one.id: one for one in members}
    least = {job: one.least for job, one in kept.items()} | dict(terms.limits.least)
    most = {job: one.max_slots for job, one in kept.items()} | dict(terms.limits.most)
    part = [demand for demand in demands if demand.id in least]
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

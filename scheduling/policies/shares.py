"""Policies: how many slots each job of one instance group gets, by what each job asks for.

`shares_of` serves the demands in their order: by priority, under fifo by submission. It returns the number of slots for
each job that gets any. A running job that is missing is to be stopped: under the priority policy with preemption, or
because it gives way to a job before it in line. Any other job that is missing waits. Every number lies within the job's
minimum and maximum, except that a running job which holds less than its minimum may be left with what it holds.

Jobs wait in order: a waiting job is passed over only if it could not start even on all slots. The first that waits has
a reservation, and who is behind it may start before it where that delays nothing; see `scheduling.policies.backfill`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter

from scheduling.policies.backfill import Commitment, Reservation, Rule, reserve
from scheduling.policies.demand import Demand, cheapest_first
from scheduling.policies.goodput import Bid, GoodputDivision, bid_weight, goodput_division
from scheduling.policies.gpu_kinds import Offer, division_of_kinds
from scheduling.snapshot import GroupView

__all__ = [
    "TARGET_HOLD_SECONDS",
    "FairDivision",
    "Shares",
    "fair_division",
    "fair_shares",
    "served",
    "shares_of",
    "to_stop",
]

#: Under policy goodput, so long targets are kept while nothing happens.
TARGET_HOLD_SECONDS = 10.0

_PRIORITY = attrgetter("priority")


@dataclass(frozen=True)
class Shares:
    """Slots that a policy gives, and those that the first that waits is to have."""

    #: Slots of each job that gets any.
    slots: dict[int, int]
    #: Reservation of the first job in line that waits though it would fit; None: no job does.
    reservation: Reservation | None
    #: Division by fair share; None under other policies.
    division: "FairDivision | None" = None
    #: Division by goodput; None under other policies.
    goodput: GoodputDivision | None = None


def to_stop(group: GroupView, demands: Sequence[Demand], excess: int) -> frozenset[int]:
    """Choose the running jobs to stop, given in the order in which they are served, to set `excess` slots free
    where all the others have their least: the cheapest, and none whose slots are not needed; none that is protected.

    Where priority alone decides, a lower one goes first whatever it loses: it would be stopped a cycle later, for the
    higher one that was stopped in its place.
    """
    line = cheapest_first([demand for demand in demands if demand.least and not demand.protected])
    if group.policy == "priority":
        line.sort(key=_PRIORITY)
    chosen: list[Demand] = []
    for demand in line:
        if excess > 0:
            chosen.append(demand)
            excess -= demand.least
    for demand in reversed(chosen.copy()):
        if excess + demand.least <= 0:
            chosen.remove(demand)
            excess += demand.least
    return frozenset(demand.id for demand in chosen)


def shares_of(group: GroupView, demands: Iterable[Demand], capacity: int, *, now: float = 0.0) -> dict[int, int]:
    """Divide slots among `demands`, given in the order of service, by the group's policy. `now`: Unix seconds."""
    return served(group, demands, capacity, now=now).slots


def served(
    group: GroupView,
    demands: Iterable[Demand],
    capacity: int,
    *,
    now: float = 0.0,
    rooms: Mapping[str, int] | None = None,
) -> Shares:
    """The same, and what the first that waits is to have. `rooms`: under policy goodput, how many slots of each kind of
    GPU there are; None: all are of one kind."""
    demands = tuple(demands)
    if group.policy == "fairshare":
        division = fair_division(demands, capacity, preemption=group.preemption, now=now)
        return Shares(division.shares, division.reservation, division)
    if group.policy == "goodput":
        return _by_goodput(group, demands, capacity, now, rooms)
    if group.policy == "priority" and group.preemption:
        return _by_priority_with_preemption(demands, capacity, now)
    # First come (by submission or priority), first served: nobody is ever shrunk or stopped.
    kept = {demand.id: demand.kept for demand in demands if demand.running}
    return _serve(demands, kept, capacity - sum(kept.values()), capacity, (), now)


def _serve(
    line: Sequence[Demand],
    given: Mapping[int, int],
    spare: int,
    capacity: int,
    committed: Iterable[Commitment] | None,
    now: float,
) -> Shares:
    """Hand `spare` slots to the jobs of `line` in its order, to each all that it asks for, on top of what `given` says
    that they have.

    The first job that waits although it would fit into `capacity` has a reservation. Nobody behind it grows, and who
    starts delays it in nothing. `committed`: what others beside this line have; None: nobody behind it starts.
    """
    result, spare, reservation = dict(given), max(0, spare), None
    for demand in line:
        if reservation is not None and (not spare or committed is None):
            break
        is_stopped = demand.running and demand.id not in given
        if demand.running and reservation is not None:
            continue  # the job keeps its slots, or is being stopped
        has = result.get(demand.id, 0)
        gets = has + min(demand.max_slots - has, spare)
        if is_stopped or (not demand.running and gets < demand.min_slots):  # who is stopped waits again in its place
            if reservation is None and demand.min_slots <= capacity:
                own = _committed(line, result, demand, now)
                reservation = reserve(demand.id, demand.min_slots, chain(committed or (), own), capacity)
            continue
        if reservation is not None:
            gets = reservation.admit(demand.id, demand.min_slots, gets, demand.ends(now))
        if gets:
            result[demand.id] = gets
            spare -= gets - has
    return Shares(result, reservation)


def _committed(line: Sequence[Demand], given: Mapping[int, int], first: Demand, now: float) -> Iterator[Commitment]:
    """Return slots of the others that are given any: all that they ask for, before the first that waits,
    for they grow before it starts."""
    is_before = True
    for demand in line:
        is_before = is_before and demand is not first
        if demand.id in given:
            has = given[demand.id]
            yield max(has, demand.max_slots) if is_before else has, demand.ends(now)


# --- priority --------------------------------------------------------------------------------------------------------


def _by_priority_with_preemption(demands: Sequence[Demand], capacity: int, now: float) -> Shares:
    """Higher priority first, with all it asks for: lower ones are shrunk for it and then stopped.

    Jobs that are still protected keep their minimum, whoever else asks. Of all that wait the first has a reservation,
    which binds its equals: lower ones use what is left until it is taken from them.
    """
    given: dict[int, int] = {}
    first: Reservation | None = None
    reserved = sum(demand.least for demand in demands if demand.protected)
    for level, same in groupby(demands, key=_PRIORITY):
        equals = list(same)
        reserved -= sum(demand.least for demand in equals if demand.protected)
        committed = _committed_beside(level, demands, given, now) if first is None else None
        found = _among_equals(equals, capacity - reserved - sum(given.values()), capacity, committed, now)
        given |= found.slots
        first = first or found.reservation
    return Shares(given, first)


def _committed_beside(
    level: int, demands: Sequence[Demand], given: Mapping[int, int], now: float
) -> Iterator[Commitment]:
    """Return what jobs of this priority cannot have: slots of higher ones, and the least of protected lower ones."""
    for demand in demands:
        if demand.priority > level and demand.id in given:
            yield demand.max_slots, demand.ends(now)
        elif demand.priority < level and demand.protected:
            yield demand.least, demand.ends(now)


def _among_equals(
    equals: Sequence[Demand], left: int, capacity: int, committed: Iterable[Commitment] | None, now: float
) -> Shares:
    """Equals take nothing from each other: what they hold comes first, their growth and new jobs after it.

    Where not all of them can stay, those do that would lose most.
    """
    given: dict[int, int] = {}
    running = [demand for demand in equals if demand.running]
    costliest = cheapest_first(running)[::-1]
    for demand in sorted(costliest, key=lambda demand: not demand.protected):
        if demand.least <= left or demand.protected:
            given[demand.id] = demand.least
            left -= demand.least
    for demand in running:
        if demand.id in given:
            more = max(0, min(demand.kept - given[demand.id], left))
            given[demand.id] += more
            left -= more
    return _serve(equals, given, left, capacity, committed, now)


# --- fair share ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FairDivision:
    """Slots of each job, and how that came about. All counts but the priority are slots."""

    shares: dict[int, int]
    #: The least that each job gets which takes part.
    floors: Mapping[int, int]
    #: Jobs held by neither their least nor their most: priority alone divides `shared` between them.
    by_priority: frozenset[int]
    #: The sum of their priorities.
    priority: int
    shared: int
    #: Reservation of the first job in line that waits though it would fit; None: no job does.
    reservation: Reservation | None = None


def fair_shares(demands: Sequence[Demand], capacity: int, *, preemption: bool) -> dict[int, int]:
    return fair_division(demands, capacity, preemption=preemption).shares


def fair_division(demands: Sequence[Demand], capacity: int, *, preemption: bool, now: float = 0.0) -> FairDivision:
    """x_i = clamp(lambda * priority_i, least_i, max_i) with sum x = min(slots, sum max), in whole slots.

    With preemption `least` is a job's minimum: running jobs shrink down to it, and are never stopped. Without
    preemption it is what a running job holds: nothing shrinks, and what is free goes by the same formula to who is
    below its share.

    There nobody grows who is behind the first in line, so what that one waits for is kept.

    Lambda is solved for exactly: share what is left among the unclamped, clamp who violates a limit, repeat. Each pass
    clamps only on the side where the violations weigh more; such a job stays clamped in the solution. What is clamped
    is whole, so what is left stays whole too: only the last pass divides. Its parts are rounded down; the remainder
    goes to the largest fractions, of equal ones to who is served first.
    """
    least, reservation = _floors(demands, capacity, preemption=preemption, now=now)
    most = _most(demands, least, reservation, preemption=preemption)
    unclamped = [demand for demand in demands if demand.id in least]
    left = min(capacity, sum(most.values()))
    shares: dict[int, int] = {}
    while unclamped:
        # A job's exact share is `left * priority / total`: compared in parts of `total`, everything is whole.
        total = sum(demand.priority for demand in unclamped)
        low = {d.id: least[d.id] for d in unclamped if left * d.priority < least[d.id] * total}
        high = {d.id: most[d.id] for d in unclamped if left * d.priority > most[d.id] * total}
        if not low and not high:
            break
        wanted = left * sum(d.priority for d in unclamped if d.id in low or d.id in high)
        excess = (sum(low.values()) + sum(high.values())) * total - wanted
        done = low if excess > 0 else high if excess < 0 else low | high
        shares |= done
        left -= sum(done.values())
        unclamped = [demand for demand in unclamped if demand.id not in done]
    if unclamped:
        parts = {demand.id: divmod(left * demand.priority, total) for demand in unclamped}
        shares |= {job: whole for job, (whole, _) in parts.items()}
        remainder = sum(rest for _, rest in parts.values()) // total
        for job in sorted(parts, key=lambda job: parts[job][1], reverse=True)[:remainder]:
            shares[job] += 1
    priority = sum(demand.priority for demand in unclamped)
    by_priority = frozenset(demand.id for demand in unclamped)
    return FairDivision(shares, least, by_priority, priority, left, reservation)


def _most(
    demands: Sequence[Demand], least: Mapping[int, int], reservation: Reservation | None, *, preemption: bool
) -> dict[int, int]:
    """Without preemption growth is for good: nobody behind the first in line may take what that one needs."""
    ahead = len(demands)
    if reservation is not None and not preemption:
        ahead = next(place for place, demand in enumerate(demands) if demand.id == reservation.job)
    return {d.id: d.max_slots if place < ahead else least[d.id] for place, d in enumerate(demands) if d.id in least}


def _floors(
    demands: Sequence[Demand], capacity: int, *, preemption: bool, now: float
) -> tuple[dict[int, int], Reservation | None]:
    """The least that each job gets which takes part; the others wait, or are stopped for whom they give way to.

    Running jobs come first, then (priority, age). And the reservation of the first of those that wait and would fit.
    """
    running = [demand for demand in demands if demand.running]
    least = {demand.id: demand.least if preemption else demand.kept for demand in running}
    spare = capacity - sum(least.values())
    for demand in running:
        need = demand.min_slots - least[demand.id]
        if 0 < need <= spare:
            least[demand.id] = demand.min_slots
            spare -= need
    giving_way = [demand for demand in running if preemption and demand.may_give_way and demand.backfilled_for]
    reservation: Reservation | None = None
    idle = 0
    for demand in demands:
        if demand.running:
            continue
        if reservation is not None:
            if spare <= 0:
                break
            if demand.min_slots > spare:
                continue
            room = idle if preemption and reservation.is_far(now) else 0
            if rule := _rule_of_filling(demand, reservation, room, now):
                least[demand.id] = demand.min_slots
                spare -= demand.min_slots
                idle -= demand.min_slots if rule == "gives_way" else demand.max_slots
            continue
        own = [one for one in giving_way if one.backfilled_for == demand.id]
        if demand.min_slots <= spare + sum(least[one.id] for one in own):
            while spare < demand.min_slots:
                spare += least.pop(own.pop().id)
            least[demand.id] = demand.min_slots
            spare -= demand.min_slots
        elif demand.min_slots <= capacity:
            yielding = {one.id for one in own}
            floors = {job: count for job, count in least.items() if job not in yielding}
            # With preemption what is beyond the least is taken back at once.
            committed = (
                ((floors[d.id], d.ends(now)) for d in demands if d.id in floors)
                if preemption
                else _committed(demands, floors, demand, now)
            )
            reservation = reserve(demand.id, demand.min_slots, committed, capacity)
            idle = capacity - sum(max(d.max_slots, least[d.id]) for d in demands if d.id in least)
    return least, reservation


def _rule_of_filling(demand: Demand, reservation: Reservation, idle: int, now: float) -> Rule | None:
    """The rule by which it starts with its minimum before whom the reservation is for. `idle`: slots that nobody else
    can use until then: only those are given to somebody who is stopped again."""
    reservation.admit(demand.id, demand.min_slots, demand.min_slots, demand.ends(now))
    if demand.id not in reservation.filling and demand.may_give_way and demand.min_slots <= idle:
        reservation.filling[demand.id] = "gives_way"
    return reservation.filling.get(demand.id)


# --- goodput ---------------------------------------------------------------------------------------------------------


def _by_goodput(
    group: GroupView, demands: Sequence[Demand], capacity: int, now: float, rooms: Mapping[str, int] | None
) -> Shares:
    """The least of each job as under fair share; what is beyond it where it is worth most."""
    least, reservation = _floors(demands, capacity, preemption=group.preemption, now=now)
    most = _most(demands, least, reservation, preemption=group.preemption)
    part = [demand for demand in demands if demand.id in least]
    if (held_targets := _held_targets(group, part, least, most, capacity, now, rooms)) is not None:
        return Shares(held_targets.shares, reservation, goodput=held_targets)
    if rooms is None:
        division = goodput_division([_bid(group, demand, least, most) for demand in part], capacity)
    else:
        before = {demand.id: demand.target_kind for demand in part if demand.target_kind is not None}
        offers = [_offer(group, demand, least, most) for demand in part]
        division = division_of_kinds(offers, rooms, capacity, before)
    return Shares(division.shares, reservation, goodput=division)


def _bid(group: GroupView, demand: Demand, least: Mapping[int, int], most: Mapping[int, int]) -> Bid:
    scaling = demand.scaling
    remaining = scaling.remaining_seconds if scaling is not None else None
    weight, power = bid_weight(group.aim, demand.priority, demand.gpu_seconds, remaining)
    has = demand.held if demand.running else None
    floor = least[demand.id]
    return Bid(demand.id, weight, power, floor, max(floor, most[demand.id]), has, scaling)


def _offer(group: GroupView, demand: Demand, least: Mapping[int, int], most: Mapping[int, int]) -> Offer:
    """Where nothing is taken from who runs, it stays on the kind that it has."""
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
    """The targets of the plan before, where nothing has happened since that they depend on. None: decide anew."""
    if group.shared_at is None or now >= group.shared_at + TARGET_HOLD_SECONDS:
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
    return GoodputDivision(targets, least, 0.0, 0.0, 0.0, at_rest=True, kinds=kinds)

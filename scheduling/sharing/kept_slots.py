"""Slots that the jobs of an instance group keep, and jobs that wait beside them, while one job has a reservation."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile

from scheduling.policies.demand import Commitment, Demand
from scheduling.policies.shares import kept_beside
from scheduling.sharing.decision import Decision
from scheduling.sharing.entitlement import SlotClass
from scheduling.sharing.pool import Pool, SlotIndex
from scheduling.sharing.slot_classes import kind_of_class
from scheduling.snapshot import SlotRef

__all__ = [
    "committed_by",
    "firm_slots",
    "lasting_slots",
    "reserved_before",
    "staying_slots",
    "used_classes",
    "waiting_jobs",
]


def waiting_jobs(decision: Decision, first: Demand, *, ahead: bool) -> list[Demand]:
    """Return the other waiting jobs of the group that come before `first` (`ahead`), or after it.

    In the line of `first` the order is that of service; in the line of another group, the age decides.
    """
    own, age = first in decision.demands, (first.submitted_at, first.id)
    found, is_before = [], True
    for demand in decision.demands:
        is_before = is_before and demand.id != first.id
        comes_before = is_before if own else (demand.submitted_at, demand.id) < age
        waits = not demand.running and demand.id not in decision.reclaimed
        if waits and demand.id != first.id and comes_before == ahead:
            found.append(demand)
    return found


def firm_slots(decision: Decision, first: Demand) -> int:
    """Return the number of slots that the group's jobs keep while `first` waits."""
    return sum(one.slots for one in committed_by(decision, first))


def lasting_slots(decision: Decision, first: Demand) -> int:
    """Return how many of these have no known end, or are taken by jobs ahead of `first` beyond their minimum."""
    group, shares, at = decision.pool.group, decision.shares, decision.pool.at
    ahead = takewhile(lambda demand: demand.id != first.id, decision.demands)
    ending = [demand for demand in ahead if demand.running and demand.id in shares and demand.ends(at) is not None]
    taken = sum(max(0, kept_beside(group, one, first, is_ahead=True) - one.least) for one in ending)
    return taken + sum(one.slots for one in committed_by(decision, first) if one.ends_at is None)


def reserved_before(pool: Pool) -> int:
    """Return the slots with which the group's policy lets jobs go on that were started on more than its part; 0: there
    are none."""
    running = [demand for demand in pool.demands if demand.running]
    over = [demand for demand in running if pool.views[demand.id].over_quota and demand.id in pool.held]
    if not over:
        return 0
    last, needed, is_ahead = over[-1], 0, True
    for demand in running:
        is_ahead = is_ahead and demand is not last
        kept = 0 if demand in over else kept_beside(pool.group, demand, last, is_ahead=is_ahead)
        needed += max(demand.least, kept)
    return needed


def committed_by(decision: Decision, first: Demand) -> Iterator[Commitment]:
    """Yield the commitment of each job that runs, and of each that starts and comes before `first`.

    In the group of `first`, its policy says what they keep; jobs of other groups shrink to their minimum.
    """
    pool, group = decision.pool, decision.pool.group
    for job in decision.pinned:
        yield Commitment(len(pool.held.get(job, ())), None)
    ahead = {demand.id for demand in waiting_jobs(decision, first, ahead=True)}
    is_own, is_ahead = first.id in pool.views, True
    for demand in decision.demands:
        is_ahead = is_ahead and demand.id != first.id
        if demand.id not in decision.shares or not (demand.running or demand.id in ahead):
            continue
        # One that moves off holds nothing in service yet.
        slots = max(demand.least, min(demand.min_slots, decision.shares[demand.id]))
        if is_own and demand.id != first.id:
            slots = max(slots, kept_beside(group, demand, first, is_ahead=is_ahead))
        yield demand.commits(slots, pool.at, first.id)


def staying_slots(decision: Decision) -> list[SlotRef]:
    """Return the slots in service of the group's jobs of fixed size that go on."""
    pool = decision.pool
    fixed = {job.id for job in pool.jobs if not job.elastic}
    return [ref for job in fixed & (decision.shares.keys() | decision.pinned) for ref in pool.held.get(job, ())]


def used_classes(
    index: SlotIndex, decision: Decision, own: Mapping[SlotClass, int], allotted: Mapping[SlotClass, int]
) -> Counter[SlotClass]:
    """Slots of each class that a group shall have: who is on no kind has what it holds, others of `own` first."""
    kinds = decision.goodput.kinds if decision.goodput is not None else {}
    wanted, of_any = Counter[str](), decision.used - sum(decision.shares[job] for job in kinds)
    for job, kind in kinds.items():
        wanted[kind] += decision.shares[job]
    found = Counter[SlotClass]()
    for job, refs in decision.pool.held.items():
        if job not in kinds and (job in decision.shares or job in decision.pinned):
            of_any -= len(refs)
            found += index.classes_of(refs)
    for room in (own, {one: allotted[one] - own.get(one, 0) for one in allotted}):
        for one, count in room.items():
            taken = max(0, min(count, allotted[one] - found[one], wanted[kind_of_class(one)]))
            found[one] += taken
            wanted[kind_of_class(one)] -= taken
    for one, count in allotted.items():
        taken = max(0, min(count - found[one], of_any))
        found[one] += taken
        of_any -= taken
    return found

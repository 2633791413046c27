"""Division of an instance group's slots among its jobs.

The group's policy decides (`policies/shares.py`), about all jobs that it can decide about: some keep exactly what they
hold, because it is on hosts that take nothing new. Beside others that have a right to what the group holds, its jobs
are shrunk to their minimum before any is stopped.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from scheduling.policies.backfill import Reservation
from scheduling.policies.bundles import KEEPS_ALL, Bundle, fold
from scheduling.policies.demand import Demand
from scheduling.policies.fair_share import FairDivision, fair_shares
from scheduling.policies.goodput import GoodputDivision
from scheduling.policies.shares import served, to_stop
from scheduling.sharing.entitlement import GroupEntitlement
from scheduling.sharing.pool import Pool
from scheduling.snapshot import GroupView

__all__ = ["Decision", "decide", "within_limit"]


@dataclass(frozen=True)
class Decision:
    """Slots of each job of one group by its policy, and the jobs that no policy can decide about."""

    pool: Pool
    #: Number of slots in service that its jobs may have together.
    room: int
    #: Number of these that the jobs below share.
    capacity: int
    #: The jobs that the policy decided about, in the order in which they are served.
    demands: tuple[Demand, ...]
    #: Slots of each job that gets any; see `scheduling.policies.shares`.
    shares: dict[int, int]
    #: Jobs that keep exactly what they hold, because some of it is on a host that takes nothing new: fixed-size jobs,
    #: which finish there, and elastic ones whose minimum fits nowhere else.
    pinned: frozenset[int]
    #: See `scheduling.policies.first_come.Shares`.
    reservations: Mapping[int | None, Reservation] = field(default_factory=dict)
    #: Jobs that start before one that waits, and hold its slots when it could start -> that one.
    overtaking: Mapping[int, int] = field(default_factory=dict)
    division: FairDivision | None = None
    goodput: GoodputDivision | None = None
    #: Bundles by the id of their demand; see `scheduling.policies.first_come.Shares`.
    bundles: Mapping[int, Bundle] = field(default_factory=dict)
    #: Jobs that are stopped because other groups have a right to their slots. One of fixed size that has a share
    #: nevertheless starts again elsewhere.
    reclaimed: frozenset[int] = frozenset()
    #: Jobs that wait because their group is stopped.
    closed: frozenset[int] = frozenset()
    #: Reservation of a job of any group that needs more than its group's part: all slots that come free are for it.
    shared_reservation: Reservation | None = None
    #: Jobs that wait because of that, or because they need one host, though their group has slots for them.
    held_back: frozenset[int] = frozenset()
    #: Jobs that start by that reservation.
    over_quota: frozenset[int] = frozenset()
    #: Entitlement of the group beside others on the same slots, or by its quota. None: it is alone and not limited.
    entitlement: GroupEntitlement | None = None

    @property
    def reservation(self) -> Reservation | None:
        """Reservation of the first job in line that waits though it would fit; None: no job does."""
        return next(iter(self.reservations.values()), None)

    @property
    def used(self) -> int:
        """Slots in service that its jobs have after all pending changes."""
        return sum(self.shares.values()) + sum(len(self.pool.held.get(job, ())) for job in self.pinned)

    def on(self, pool: Pool) -> "Decision":
        """Return the same decision about the slots of another pool."""
        return replace(self, pool=pool)

    def with_reservations_of(self, before: "Decision") -> "Decision":
        """Return this decision with what reservations of shared slots said in another one of the same group."""
        return replace(
            self,
            over_quota=before.over_quota & self.shares.keys(),
            shared_reservation=before.shared_reservation,
            overtaking={**before.overtaking, **self.overtaking},
        )


def decide(pool: Pool, room: int, *, beside_others: bool = False, held_back: frozenset[int] = frozenset()) -> Decision:
    """Divide the group's slots among its jobs.

    room: number of slots in service that the jobs may have together. beside_others: other groups want the rest.
    held_back: jobs that wait in any case.
    """
    fixed = {job.id for job in pool.jobs if not job.elastic}
    pinned = {job for job in pool.away if job in fixed} - pool.displaced.keys()
    evicted: set[int] = set()
    while True:
        decision = _decide_without(pinned, evicted, pool, room, held_back, beside_others=beside_others)
        stranded = {
            demand.id
            for demand in decision.demands
            # One without a share is stopped by its policy: a higher priority takes what it holds in service.
            if pool.away.get(demand.id) and decision.shares.get(demand.id, demand.min_slots) < demand.min_slots
        }
        if not stranded:
            # The job starts elsewhere, on as many slots: no job of its group gets what it has a share of.
            return replace(decision, reclaimed=decision.reclaimed | (fixed & pool.displaced.keys()))
        evicted |= (stranded & pool.displaced.keys()) - pool.protected
        pinned |= stranded - evicted


def _decide_without(
    pinned: set[int], evicted: set[int], pool: Pool, room: int, held_back: frozenset[int], *, beside_others: bool
) -> Decision:
    group = pool.group
    in_service = sum(len(pool.held.get(job, ())) for job in pinned)
    capacity = max(0, within_limit(pool, room, pinned) - in_service)
    held_back = held_back.union(pool.too_large_for_hosts)
    demands = [demand for demand in pool.demands if demand.id not in pinned and demand.id not in held_back]
    closed = frozenset(demand.id for demand in demands if not (group.started or demand.running))
    demands = [demand for demand in demands if demand.id not in closed]
    reclaimed: frozenset[int] = frozenset()
    line: Sequence[Demand] = demands
    if beside_others:
        demands, reclaimed = _reclaim(group, demands, capacity, evicted)
        line = _with_stopped(pool, line, demands, reclaimed - evicted)
    # Beside others a group is first told how many slots it has, and then which.
    rooms = None if beside_others and pool.allotted is None else pool.rooms(pinned)
    shares = served(group, line, capacity, now=pool.at, rooms=rooms)
    if not reclaimed.isdisjoint(shares.slots):
        line, shares = demands, served(group, demands, capacity, now=pool.at, rooms=rooms)
    if shares.goodput is not None and (kinds := shares.goodput.kinds):
        line = [one.on(kinds[one.id], shares.slots[one.id]) if one.id in kinds else one for one in line]
    return Decision(
        pool=pool,
        room=room,
        capacity=capacity,
        demands=tuple(line),
        shares=shares.slots,
        reservations=shares.reservations,
        overtaking=shares.overtaking,
        division=shares.division,
        goodput=shares.goodput,
        bundles=shares.bundles,
        pinned=frozenset(pinned),
        reclaimed=reclaimed,
        closed=closed,
        held_back=held_back,
    )


def within_limit(pool: Pool, room: int, pinned: Set[int]) -> int:
    """Return the slots in service of `room` that the group's limit leaves it, which counts every slot that a job keeps,
    also on a host that is draining."""
    if (limit := pool.group.limit) is None:
        return room
    return max(0, min(room, limit - sum(len(pool.away[job]) for job in pinned)))


def _with_stopped(pool: Pool, line: Sequence[Demand], left: Sequence[Demand], stopped: Set[int]) -> Sequence[Demand]:
    """Return `left` with the stopped jobs waiting in their places: no job behind starts on what they wait for."""
    if not stopped:
        return left
    now = {demand.id: demand for demand in left}
    now |= {demand.id: demand.waiting_again(pool.views[demand.id]) for demand in line if demand.id in stopped}
    return [now[demand.id] for demand in line if demand.id in now]


def _reclaim(
    group: GroupView, demands: Sequence[Demand], capacity: int, evicted: Set[int]
) -> tuple[list[Demand], frozenset[int]]:
    """Give slots back to other groups: returns the stopped jobs, and before them the
    others, in the same order, with what is left to each that runs. `capacity` is what they may share from now on.

    Every job that runs is shrunk, as far as its minimum, before any is stopped: the cheapest, see `to_stop`. `evicted`
    are stopped in any case.
    """
    staying = [demand for demand in demands if demand.running and demand.id not in evicted]
    stopped = evicted | to_stop(group, staying, sum(demand.least for demand in staying) - capacity)
    left = [demand for demand in demands if demand.id not in stopped]
    running = [demand for demand in left if demand.running]
    if sum(demand.kept for demand in running) > capacity:
        limits = _limits(group, running, capacity)
        left = [replace(demand, limit=limits.get(demand.id)) for demand in left]
    return left, frozenset(stopped)


def _limits(group: GroupView, running: Sequence[Demand], capacity: int) -> Mapping[int, int]:
    if group.policy in ("fairshare", "goodput"):
        requested = [replace(demand, max_slots=max(demand.kept, demand.least)) for demand in running]
        folded = fold(requested, capacity, KEEPS_ALL)
        limits = fair_shares(folded.demands if folded else requested, capacity, preemption=True)
        return folded.unfolded(limits) if folded else limits
    limits = {demand.id: demand.least for demand in running}
    spare = capacity - sum(limits.values())
    for demand in running:
        more = max(0, min(demand.kept - demand.least, spare))
        limits[demand.id] += more
        spare -= more
    return limits

"""Choice of slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter

from scheduling.decision import Decision
from scheduling.one_host import Sites, find_sites
from scheduling.packing import SlotsByHost, by_host, pack
from scheduling.policies import Demand
from scheduling.pool import ByJob, Pool, SlotIndex
from scheduling.snapshot import JobView, SlotRef
from scheduling.spread import spread

__all__ = ["Placed", "choose_kept", "find_all_sites", "handed_over", "place"]


@dataclass(slots=True)
class Placed:
    """The slots of one job: what it keeps and claims now, and what it gives back."""

    target: int
    kept: tuple[SlotRef, ...]
    claim: tuple[SlotRef, ...]
    vacate: tuple[SlotRef, ...]
    #: Of `kept`: on hosts that take nothing new, or that another job needs; given back as soon as others can be claimed
    #: instead.
    leaving: tuple[SlotRef, ...] = ()
    #: Of what it held: on a host that another job needs as a whole.
    makes_room: tuple[SlotRef, ...] = ()
    #: It waits for more free slots on one host: these are kept for it.
    kept_for: tuple[SlotRef, ...] = ()
    #: It starts now on slots reserved for this job, for which it is stopped again; None: it does not.
    gives_way_to: int | None = None
    #: It starts now by a reservation, on more than its group's part.
    above_part: bool = False

    @property
    def missing(self) -> int:
        """Number of slots of the target that others have still to give back."""
        return self.target - len(self.kept) - len(self.claim)

    @property
    def preempt(self) -> bool:
        """True if it is stopped, and waits again."""
        return self.target == 0 and bool(self.vacate)


def place(decision: Decision, sites: Sites) -> dict[int, Placed]:
    """Slots for every job of the group, in the order in which they are served."""
    pool = _beside(decision.pool, sites)
    placed: dict[int, Placed] = {}
    for job in (*sorted(decision.pinned), *sorted(decision.reclaimed | decision.closed | decision.held_back)):
        slots, stays = tuple(sorted(pool.held.get(job, ()) + pool.away.get(job, ()))), job in decision.pinned
        placed[job] = Placed(len(slots), slots, (), ()) if stays else Placed(0, (), (), vacate=slots)
    served = [demand for demand in decision.demands if demand.id not in placed]
    targets = {demand.id: decision.shares.get(demand.id, 0) for demand in served}
    kept = {demand.id: choose_kept(pool.held.get(demand.id, ()), targets[demand.id]) for demand in served}
    wanted, spare = dict[int, int](), pool.free_count
    for demand in served:
        if pool.views[demand.id].one_host:
            continue
        count = min(targets[demand.id] - len(kept[demand.id]), spare)
        if count > 0 and (demand.running or count >= demand.min_slots):
            wanted[demand.id] = count
            spare -= count
    if pool.shape is None:
        claims = pack(wanted, kept, SlotsByHost(pool.free))
    else:
        staying = kept | {job: placed[job].kept for job in decision.pinned}
        claims = spread(wanted, staying, pool.free, pool.shape.slots_of)
    for demand in served:
        job, site = demand.id, sites.kept_for.get(demand.id, ())
        starts = bool(site) and len(site) == targets[job]
        found = _leave(pool, demand, targets[job], kept=kept[job], claim=site if starts else claims.get(job, ()))
        if moving := sites.moving.get(job):
            found.makes_room = tuple(sorted(moving))
        if not starts:
            found.kept_for = site
        placed[job] = found
    _mark_by_reservation(decision, placed)
    return placed


def find_all_sites(index: SlotIndex, decisions: Sequence[Decision]) -> Sites:
    """Hosts for the jobs that need one each, in the order in which their groups are placed."""
    sites = Sites()
    wanting = [(decision, wants) for decision in decisions if (wants := _wanting(decision))]
    leaving = _in_order_of_leaving(decisions) if wanting else []
    for decision, wants in wanting:
        group = decision.pool.group
        pool = index.pool(group)
        free, coming = chain(*pool.free.values()), chain(*pool.coming.values())
        find_sites(sites, wants, free, coming, index.movable_for(group, leaving))
    return sites


def _wanting(decision: Decision) -> dict[int, int]:
    """Job that waits for one host -> the slots that it is given."""
    views, shares = decision.pool.views, decision.shares
    waiting = (one.id for one in decision.demands if one.id in shares and not one.running and views[one.id].one_host)
    return {job: shares[job] for job in waiting if job not in decision.reclaimed}


def _in_order_of_leaving(decisions: Sequence[Decision]) -> list[JobView]:
    """Elastic jobs that stay, but for those that are moving off already: who shrinks most, of equals the last."""
    found: list[tuple[int, JobView]] = []
    for decision in decisions:
        pool = decision.pool
        for one in reversed(decision.demands):
            if one.id in decision.shares and one.id not in pool.displaced and one.id not in decision.reclaimed:
                found.append((decision.shares[one.id] - len(pool.held.get(one.id, ())), pool.views[one.id]))
    found.sort(key=itemgetter(0))
    return [job for _, job in found]


def _beside(pool: Pool, sites: Sites) -> Pool:
    """The same without the free slots that are kept for jobs that need one host; who leaves one is away there."""
    if not sites.kept_for:
        return pool
    kept, held, away = sites.kept, dict(pool.held), dict(pool.away)
    free = {host: tuple(ref for ref in refs if ref not in kept) for host, refs in pool.free.items()}
    for job in sites.moving.keys() & held.keys():
        moving = sites.moving[job]
        held[job] = tuple(ref for ref in held[job] if ref not in moving)
        away[job] = tuple(sorted(moving.union(away.get(job, ()))))
    return replace(pool, free={host: refs for host, refs in free.items() if refs}, held=held, away=away)


def _mark_by_reservation(decision: Decision, placed: Mapping[int, Placed]) -> None:
    for job in decision.above_part:
        placed[job].above_part = bool(placed[job].claim)
    if decision.reservation is not None:
        for job, rule in decision.reservation.filling.items():
            placed[job].gives_way_to = decision.reservation.job if rule == "gives_way" else None


def _leave(pool: Pool, demand: Demand, target: int, *, kept: tuple[SlotRef, ...], claim: Sequence[SlotRef]) -> Placed:
    """Slots on hosts that take nothing new are kept only as long as the target is not reached without them; those that
    another group is to have, only as long as the minimum is not."""
    held, away = pool.held.get(demand.id, ()), pool.away.get(demand.id, ())
    if not away and len(kept) == len(held):
        return Placed(target, held, tuple(claim), vacate=())
    needed = min(target, demand.min_slots) if demand.id in pool.displaced else target
    leaving = choose_kept(away, needed - len(kept) - len(claim))
    vacate = tuple(sorted(set(held + away).difference(kept, leaving)))
    return Placed(target, tuple(sorted(kept + leaving)), tuple(claim), vacate, leaving)


def handed_over(held: ByJob, placed: Mapping[int, Placed]) -> dict[int, list[SlotRef]]:
    """Job -> what it vacates of the slots in service that it holds, in order. Only jobs that vacate any."""
    found = {}
    for job, slots in placed.items():
        if slots.vacate and (in_service := held.get(job)):
            still_held = set(in_service)
            if refs := [ref for ref in slots.vacate if ref in still_held]:
                found[job] = refs
    return found


def choose_kept(held: tuple[SlotRef, ...], count: int) -> tuple[SlotRef, ...]:
    """The `count` slots that a shrinking job keeps, so that the hosts it leaves are left whole. `held` is in order."""
    return held if count >= len(held) else tuple(sorted(SlotsByHost(by_host(held)).take(count)))

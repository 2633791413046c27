"""Which slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduling.decision import Decision
from scheduling.packing import SlotsByHost, by_host, pack
from scheduling.policies import Demand
from scheduling.pool import ByJob, Pool
from scheduling.snapshot import SlotRef
from scheduling.spread import spread

__all__ = ["Placed", "choose_kept", "handed_over", "place"]


@dataclass(slots=True)
class Placed:
    """The slots of one job: what it keeps and claims now, and what it gives back."""

    target: int
    kept: tuple[SlotRef, ...]
    claim: tuple[SlotRef, ...]
    vacate: tuple[SlotRef, ...]
    #: Of `kept`: on hosts that take nothing new; given back as soon as others can be claimed instead.
    leaving: tuple[SlotRef, ...] = ()
    #: It starts now on slots reserved for this job, for which it is stopped again; None: it does not.
    gives_way_to: int | None = None
    #: It starts now by a reservation, on more than its group's part.
    above_part: bool = False

    @property
    def missing(self) -> int:
        """How many slots of the target are still to be given back by others."""
        return self.target - len(self.kept) - len(self.claim)

    @property
    def preempt(self) -> bool:
        """It is stopped, and waits again."""
        return self.target == 0 and bool(self.vacate)


def place(decision: Decision) -> dict[int, Placed]:
    """Slots for every job of the group, in the order in which they are served."""
    pool = decision.pool
    placed: dict[int, Placed] = {}
    for job in (*sorted(decision.pinned), *sorted(decision.reclaimed | decision.closed | decision.held_back)):
        slots, stays = tuple(sorted(pool.held.get(job, ()) + pool.away.get(job, ()))), job in decision.pinned
        placed[job] = Placed(len(slots), slots, (), ()) if stays else Placed(0, (), (), vacate=slots)
    served = [demand for demand in decision.demands if demand.id not in placed]
    targets = {demand.id: decision.shares.get(demand.id, 0) for demand in served}
    kept = {demand.id: choose_kept(pool.held.get(demand.id, ()), targets[demand.id]) for demand in served}
    wanted, spare = dict[int, int](), pool.free_count
    for demand in served:
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
        job = demand.id
        placed[job] = _leave(pool, demand, targets[job], kept=kept[job], claim=claims.get(job, []))
    _mark_by_reservation(decision, placed)
    return placed


def _mark_by_reservation(decision: Decision, placed: Mapping[int, Placed]) -> None:
    for job in decision.above_part:
        placed[job].above_part = bool(placed[job].claim)
    if decision.reservation is not None:
        for job, rule in decision.reservation.filling.items():
            placed[job].gives_way_to = decision.reservation.job if rule == "gives_way" else None


def _leave(pool: Pool, demand: Demand, target: int, *, kept: tuple[SlotRef, ...], claim: list[SlotRef]) -> Placed:
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
        in_service = set(held.get(job, ())) if slots.vacate else ()
        if refs := [ref for ref in slots.vacate if ref in in_service]:
            found[job] = refs
    return found


def choose_kept(held: tuple[SlotRef, ...], count: int) -> tuple[SlotRef, ...]:
    """The `count` slots that a shrinking job keeps, so that the hosts it leaves are left whole. `held` is in order."""
    return held if count >= len(held) else tuple(sorted(SlotsByHost(by_host(held)).take(count)))

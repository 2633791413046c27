"""Which slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduling.decision import Decision
from scheduling.demand import Demand
from scheduling.packing import SlotsByHost, by_host
from scheduling.pool import ByJob, Pool
from scheduling.snapshot import SlotRef

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
    placed = {job: _settle(pool, job) for job in sorted(decision.pinned)}
    placed |= {job: _stop(pool, job) for job in sorted(decision.reclaimed | decision.closed)}
    free = SlotsByHost(pool.free)
    for demand in decision.demands:
        target = decision.shares.get(demand.id, 0)
        kept = choose_kept(pool.held.get(demand.id, ()), target)
        wanted = min(target - len(kept), len(free))
        if not demand.running and wanted < demand.min_slots:
            wanted = 0
        claim = free.take(wanted, beside=kept)
        placed[demand.id] = _leave(pool, demand, target, kept=kept, claim=claim)
    return placed


def _settle(pool: Pool, job: int) -> Placed:
    kept = tuple(sorted(pool.held.get(job, ()) + pool.away[job]))
    return Placed(target=len(kept), kept=kept, claim=(), vacate=())


def _stop(pool: Pool, job: int) -> Placed:
    vacate = tuple(sorted(pool.held.get(job, ()) + pool.away.get(job, ())))
    return Placed(target=0, kept=(), claim=(), vacate=vacate)


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
        if slots.vacate:
            in_service = set(held.get(job, ()))
            found[job] = [ref for ref in slots.vacate if ref in in_service]
    return {job: refs for job, refs in found.items() if refs}


def choose_kept(held: tuple[SlotRef, ...], count: int) -> tuple[SlotRef, ...]:
    """The `count` slots that a shrinking job keeps, so that the hosts it leaves are left whole. `held` is in order."""
    return held if count >= len(held) else tuple(sorted(SlotsByHost(by_host(held)).take(count)))

"""Which slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.scheduling.decision import Decision
from jobs.scheduling.packing import SlotsByHost
from jobs.scheduling.pool import Pool
from jobs.scheduling.snapshot import SlotRef

__all__ = ["Placed", "choose_kept", "given_back", "place"]


@dataclass(frozen=True)
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
    placed = {job: _settle(pool, job) for job in sorted(decision.settled)}
    free = SlotsByHost(pool.free)
    for demand in decision.demands:
        target = decision.shares.get(demand.id, 0)
        kept = choose_kept(pool.held.get(demand.id, ()), target)
        wanted = min(target - len(kept), len(free))
        if not demand.running and wanted < demand.min_slots:
            wanted = 0
        claim = free.take(wanted, beside=kept)
        placed[demand.id] = _leave(pool, demand.id, target, kept=kept, claim=claim)
    return placed


def _settle(pool: Pool, job: int) -> Placed:
    kept = tuple(sorted(pool.held.get(job, ()) + pool.away[job]))
    return Placed(target=len(kept), kept=kept, claim=(), vacate=())


def _leave(pool: Pool, job: int, target: int, *, kept: list[SlotRef], claim: list[SlotRef]) -> Placed:
    """Slots on hosts that take nothing new are kept only as long as the target is not reached without them."""
    held, away = pool.held.get(job, ()), pool.away.get(job, ())
    if not away and len(kept) == len(held):
        return Placed(target, held, tuple(claim), vacate=())
    leaving = choose_kept(away, target - len(kept) - len(claim))
    vacate = tuple(sorted(set(held + away).difference(kept, leaving)))
    return Placed(target, tuple(sorted(kept + leaving)), tuple(claim), vacate, tuple(leaving))


def given_back(pool: Pool, job: int, placed: Placed) -> list[SlotRef]:
    """Of what it vacates, what other jobs of the group may have: slots in service, in order."""
    if not placed.vacate:
        return []
    in_service = set(pool.held.get(job, ()))
    return [ref for ref in placed.vacate if ref in in_service]


def choose_kept(held: Sequence[SlotRef], count: int) -> list[SlotRef]:
    """The `count` slots that a shrinking job keeps, so that the hosts it leaves are left whole."""
    return sorted(held if count >= len(held) else SlotsByHost(held).take(count))

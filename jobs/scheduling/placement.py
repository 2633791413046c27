"""Which slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.scheduling.decision import Decision
from jobs.scheduling.pool import Pool
from jobs.scheduling.snapshot import SlotRef

__all__ = ["Placed", "choose_free", "choose_kept", "place"]


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


def place(decision: Decision) -> dict[int, Placed]:
    """Slots for every job of the group, in the order in which they are served."""
    pool = decision.pool
    placed = {job: _settle(pool, job) for job in sorted(decision.settled)}
    free = set(pool.free)
    for demand in decision.demands:
        target = decision.shares.get(demand.id, 0)
        kept = choose_kept(pool.held.get(demand.id, ()), target)
        claim = choose_free(free, kept, target - len(kept))
        if not demand.running and len(claim) < demand.min_slots:
            claim = []
        free -= set(claim)
        placed[demand.id] = _leave(pool, demand.id, target, kept=kept, claim=claim)
    return placed


def _settle(pool: Pool, job: int) -> Placed:
    kept = tuple(sorted(pool.held.get(job, ()) + pool.away[job]))
    return Placed(target=len(kept), kept=kept, claim=(), vacate=())


def _leave(pool: Pool, job: int, target: int, *, kept: list[SlotRef], claim: list[SlotRef]) -> Placed:
    """Slots on hosts that take nothing new are kept only as long as the target is not reached without them."""
    held, away = pool.held.get(job, ()), pool.away.get(job, ())
    leaving = choose_kept(away, target - len(kept) - len(claim))
    vacate = tuple(sorted(set(held + away) - set(kept + leaving)))
    return Placed(target, tuple(sorted(kept + leaving)), tuple(claim), vacate, tuple(leaving))


def choose_kept(held: Iterable[SlotRef], count: int) -> list[SlotRef]:
    """The `count` slots that a shrinking job keeps, so that the hosts it leaves are left whole."""
    return sorted(_pack(held, count))


def choose_free(free: Iterable[SlotRef], held: Iterable[SlotRef], count: int) -> list[SlotRef]:
    """Up to `count` free slots: on the hosts that the job is already on, then on as few others as possible."""
    own_hosts = {ref.host for ref in held}
    free = list(free)
    near = _pack([ref for ref in free if ref.host in own_hosts], count)
    far = _pack([ref for ref in free if ref.host not in own_hosts], count - len(near))
    return near + far


def _pack(refs: Iterable[SlotRef], count: int) -> list[SlotRef]:
    """Best fit: the smallest host that takes all that is left to place; where none does, the largest."""
    hosts: dict[str, list[SlotRef]] = defaultdict(list)
    for ref in sorted(refs):
        hosts[ref.host].append(ref)
    chosen: list[SlotRef] = []
    while hosts and len(chosen) < count:
        left = count - len(chosen)
        sizes = sorted((len(slots), host) for host, slots in hosts.items())
        fitting = [host for size, host in sizes if size >= left]
        host = fitting[0] if fitting else min(sizes, key=lambda size: (-size[0], size[1]))[1]
        chosen += hosts.pop(host)[:left]
    return chosen

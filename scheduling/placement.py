"""Which slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter

from scheduling.division import Decision
from scheduling.policies import Demand
from scheduling.pool import ByJob, Pool
from scheduling.snapshot import SlotRef

__all__ = ["Placed", "SlotsByHost", "by_host", "choose_kept", "handed_over", "place"]


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
    placed: dict[int, Placed] = {}
    for job in (*sorted(decision.pinned), *sorted(decision.reclaimed | decision.closed)):
        slots, stays = tuple(sorted(pool.held.get(job, ()) + pool.away.get(job, ()))), job in decision.pinned
        placed[job] = Placed(len(slots), slots, (), ()) if stays else Placed(0, (), (), vacate=slots)
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


_HOST = attrgetter("host")


def by_host(refs: Iterable[SlotRef]) -> dict[str, tuple[SlotRef, ...]]:
    return {host: tuple(there) for host, there in groupby(sorted(refs), key=_HOST)}


class SlotsByHost:
    """What is taken is gone. Hosts are found by their size: taking costs the same however many there are."""

    def __init__(self, slots: Mapping[str, tuple[SlotRef, ...]]) -> None:
        """`slots` of each host in order; see `by_host`."""
        self._slots = dict(slots)
        self._count = sum(map(len, self._slots.values()))
        #: Size -> heap of hosts. A host that has become smaller since stays where it was, until it comes to the top.
        self._hosts: dict[int, list[str]] = defaultdict(list)
        for host, there in self._slots.items():
            self._hosts[len(there)].append(host)
        for hosts in self._hosts.values():
            heapify(hosts)
        self._sizes = sorted(self._hosts)

    def __len__(self) -> int:
        return self._count

    def take(self, count: int, beside: Iterable[SlotRef] = ()) -> list[SlotRef]:
        """Up to `count` slots: on the hosts of `beside`, then on as few others as possible."""
        if count <= 0 or not self._count:
            return []
        own_hosts = {ref.host for ref in beside}
        near = self._take_on(own_hosts, count)
        return near + self._take_anywhere(count - len(near))

    def _take_on(self, hosts: Iterable[str], count: int) -> list[SlotRef]:
        free = {host: self._slots[host] for host in hosts if self._slots.get(host)}
        if not free:
            return []
        chosen = SlotsByHost(free)._take_anywhere(count)
        for host, taken in Counter(ref.host for ref in chosen).items():
            self._remove(host, taken)
        return chosen

    def _take_anywhere(self, count: int) -> list[SlotRef]:
        chosen: list[SlotRef] = []
        while self._count and len(chosen) < count:
            left = count - len(chosen)
            host = self._best_host(left)
            chosen += self._slots[host][:left]
            self._remove(host, left)
        return chosen

    def _best_host(self, count: int) -> str:
        while True:
            position = bisect_left(self._sizes, count)
            size = self._sizes[position] if position < len(self._sizes) else self._sizes[-1]
            hosts = self._hosts[size]
            while hosts and len(self._slots[hosts[0]]) != size:
                heappop(hosts)
            if hosts:
                return hosts[0]
            del self._hosts[size]
            self._sizes.remove(size)

    def _remove(self, host: str, count: int) -> None:
        before = self._slots[host]
        self._slots[host] = after = before[count:]
        self._count -= len(before) - len(after)
        if not after:
            return
        if len(after) not in self._hosts:
            insort(self._sizes, len(after))
        heappush(self._hosts[len(after)], host)

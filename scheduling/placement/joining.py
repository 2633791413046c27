"""Moves of trainings that are on more hosts than they need, where there are several kinds of GPU.

Ranks on several hosts sum over the network. Slots are granted where they are free, so trainings become scattered as
others come and go. Once all slots of a plan are chosen, one training moves some of its slots to free ones of the same
kind and class, so that it is on fewer hosts, if what it gains on these is more than the move costs. Each move lowers
the number of hosts of one training and changes nothing for any other, so a still cluster comes to rest.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Set
from itertools import chain

from scheduling.placement.slot_choice import JobSlots, Joining
from scheduling.placement.slots_by_host import SlotsByHost, by_host
from scheduling.policies.demand import Demand
from scheduling.policies.goodput_bids import kept_by_move, lasts_for, seconds_left
from scheduling.policies.speedups import Shape, speed_on_hosts
from scheduling.sharing.decision import Decision
from scheduling.snapshot import JobView, SlotRef

__all__ = ["joining_of"]

#: Least gain in speed beyond the cost of the move.
_LEAST_GAIN = 1e-6

#: Host -> slots, in order.
_ByHost = Mapping[str, tuple[SlotRef, ...]]


def joining_of(decision: Decision, placed: Mapping[int, JobSlots], taken: Collection[SlotRef]) -> Joining | None:
    """Return the move that is worth most. `taken`: slots that somebody claims or counts on in this cycle."""
    if decision.goodput is None or decision.pool.kinds is None or not decision.pool.group.preemption:
        return None
    found = list(_joinings(decision, placed, frozenset(taken)))
    return min(found, key=lambda one: (-one.worth, one.job), default=None)


def _joinings(decision: Decision, placed: Mapping[int, JobSlots], taken: frozenset[SlotRef]) -> Iterator[Joining]:
    pool = decision.pool
    assert decision.goodput is not None
    kinds, shapes = decision.goodput.kinds, {shape.kind: shape for shape in pool.shapes}
    scattered = [job for job in kinds if _is_scattered(pool.views[job], placed[job], shapes[kinds[job]])]
    if not scattered:
        return
    crowded, free = _crowded(placed), _free(decision, taken)
    demands = {demand.id: demand for demand in decision.demands}
    for job in scattered:
        kind, view, slots = kinds[job], pool.views[job], placed[job]
        others = crowded.get(kind, frozenset()) - {ref.host for ref in slots.kept}
        chosen = _on_fewer_hosts(slots.kept, free[kind], view.unprepared | view.unfit, others)
        move = _worthwhile(decision, view, demands[job], shapes[kind], slots, chosen) if chosen else None
        if move is not None:
            yield move


def _is_scattered(view: JobView, slots: JobSlots, shape: Shape) -> bool:
    """Return whether it trains on all that it shall have, on more hosts than that needs, and nothing of it changes in
    this cycle. A job whose GPUs count as several stays where it is."""
    changes = slots.claim or slots.vacate or slots.leaving or slots.makes_room or view.per_gpu > 1
    if changes or view.state != "RUNNING" or not view.elastic or len(slots.kept) != slots.target or slots.target < 2:
        return False
    hosts = len({ref.host for ref in slots.kept})
    return hosts > 1 and hosts > shape.size_of(slots.target).hosts


def _crowded(placed: Mapping[int, JobSlots]) -> dict[str, frozenset[str]]:
    """Return, by kind, the hosts of trainings on several hosts, whose network another one shall not share."""
    found: dict[str, frozenset[str]] = {}
    for slots in placed.values():
        hosts = {ref.host for ref in (*slots.kept, *slots.claim)}
        if len(hosts) > 1 and slots.kind is not None:
            found[slots.kind] = found.get(slots.kind, frozenset()) | hosts
    return found


class _FreeHosts:
    """Free slots of a kind by host, and the hosts by their number: a host is found without looking at all."""

    def __init__(self, refs: list[SlotRef]) -> None:
        self.slots = by_host(refs)
        self._by_size = sorted((len(refs), host) for host, refs in self.slots.items())

    def smallest(self, least: int, barred: Set[str]) -> str:
        """Return the host with the fewest slots, but at least so many, that is not barred; "" if there is none."""
        hosts = (host for _, host in self._by_size[bisect_left(self._by_size, (least, "")) :])
        return next((host for host in hosts if host not in barred), "")

    def largest(self, barred: Set[str]) -> str:
        """Return the host with most slots that is not barred; "" if there is none."""
        return next((host for _, host in reversed(self._by_size) if host not in barred), "")


def _free(decision: Decision, taken: frozenset[SlotRef]) -> dict[str, _FreeHosts]:
    """Return the free slots of each kind."""
    pool = decision.pool
    assert pool.kinds is not None
    found: dict[str, list[SlotRef]] = {shape.kind: [] for shape in pool.shapes}
    for ref in chain.from_iterable(pool.free.values()):
        if ref not in taken and (kind := pool.kinds[ref]) in found:
            found[kind].append(ref)
    return {kind: _FreeHosts(refs) for kind, refs in found.items()}


def _on_fewer_hosts(
    has: tuple[SlotRef, ...], free: _FreeHosts, unfit: Set[str], crowded: Set[str]
) -> tuple[SlotRef, ...]:
    """Return as many slots, of its own and free ones, on fewer hosts, its own hosts first; () if there are none.

    `unfit`: hosts that it cannot use. `crowded`: hosts that it can use only if one is enough.
    """
    own, count = by_host(has), len(has)
    there = {host: refs if host in unfit else (*refs, *free.slots.get(host, ())) for host, refs in own.items()}
    chosen: list[str] = []
    missing = count
    while missing > 0:
        if len(chosen) + 1 >= len(own):
            return ()
        host = _next_host(own, there, missing, free, {*chosen, *unfit, *own}, crowded if chosen else set(), chosen)
        host = host or _largest_host(there, free, {*chosen, *unfit, *own, *crowded}, chosen)
        if not host:
            return ()
        chosen.append(host)
        there.setdefault(host, free.slots.get(host, ()))
        missing -= len(there[host])
    kept = [ref for host in chosen for ref in own.get(host, ())][:count]
    new = SlotsByHost({host: free.slots[host] for host in chosen if host in free.slots and host not in unfit})
    return tuple(sorted([*kept, *new.take(count - len(kept))]))


def _next_host(
    own: _ByHost, there: _ByHost, missing: int, free: _FreeHosts, barred: Set[str], crowded: Set[str], chosen: list[str]
) -> str:
    """Return a host that has all that is missing: its own one with most of its slots, or else the smallest other."""
    enough = [host for host in own if host not in chosen and len(there[host]) >= missing]
    if enough:
        return min(enough, key=lambda host: (-len(own[host]), len(there[host]), host))
    return free.smallest(missing, barred | crowded)


def _largest_host(there: _ByHost, free: _FreeHosts, barred: Set[str], chosen: list[str]) -> str:
    """Return the host with most slots for it; of equals one of its own."""
    left = [host for host in there if host not in chosen]
    mine = min(left, key=lambda host: (-len(there[host]), host), default="")
    other = free.largest(barred)
    return other if len(free.slots.get(other, ())) > len(there.get(mine, ())) else mine


def _worthwhile(
    decision: Decision, view: JobView, demand: Demand, shape: Shape, slots: JobSlots, chosen: tuple[SlotRef, ...]
) -> Joining | None:
    """Return the move to `chosen` slots, if its speed there, less the cost of the move, is higher than now."""
    pool, scaling = decision.pool, demand.scalings[shape.kind]
    leaves, takes = set(slots.kept) - set(chosen), set(chosen) - set(slots.kept)
    if pool.classes is not None and sorted(map(pool.classes.__getitem__, leaves), key=sorted) != sorted(
        map(pool.classes.__getitem__, takes), key=sorted
    ):
        return None
    hosts = len({ref.host for ref in slots.kept}), len({ref.host for ref in chosen})
    now, then = (speed_on_hosts(view, shape.kind, slots.target, count, pool.ratios) for count in hosts)
    if not now or not then:
        return None
    at_best = speed_on_hosts(view, shape.kind, slots.target, shape.size_of(slots.target).hosts, pool.ratios)
    present = scaling.speedup(slots.target) * now / at_best
    rest = seconds_left(scaling.remaining_seconds, demand.gpu_seconds, present, slots.target)
    left = lasts_for(rest, pool.at - demand.submitted_at, demand.changes)
    cost = scaling.pause_seconds + len(takes) * scaling.start_seconds / slots.target
    worth = then / now * kept_by_move(cost, left)
    if worth <= 1 + _LEAST_GAIN:
        return None
    return Joining(view.id, tuple(sorted(leaves)), tuple(sorted(takes)), hosts, then / now, worth)

"""Choice of the host for a job that needs all its slots on one.

Such a job is of fixed size, so it stays where it starts. It takes part in its group's division as soon as one host
could have enough for it: slots that are free, coming, or held by elastic jobs, which then leave that host
as soon as they have others instead. Nobody of fixed size is stopped for the sake of a host, so until then the job waits
and others may overtake it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from scheduling.snapshot import SlotRef

__all__ = ["HostChoices", "choose_hosts"]

Refs = tuple[SlotRef, ...]


@dataclass(frozen=True)
class HostChoices:
    """The hosts that jobs are to start on in this cycle or a later one."""

    #: Free slots that are kept for a job on one host, all that it needs or as many as are free there yet.
    kept_for: dict[int, Refs] = field(default_factory=dict)
    #: Elastic job -> slots that it leaves for one of these.
    moving: dict[int, set[SlotRef]] = field(default_factory=lambda: defaultdict(set))

    #: Jobs for which no host has enough -> the largest number that any could have.
    too_large: dict[int, int] = field(default_factory=dict)

    @property
    def kept(self) -> frozenset[SlotRef]:
        return frozenset(chain.from_iterable(self.kept_for.values()))


def choose_hosts(
    host_choices: HostChoices,
    wanting: Mapping[int, int],
    free: Iterable[SlotRef],
    coming: Iterable[SlotRef],
    movable: Iterable[tuple[int, SlotRef]],
) -> None:
    """Add to `host_choices` a host for each job of `wanting`, in their order: one where fewest slots have to be left.

    wanting: how many slots each needs. movable: slots that an elastic job holds, in the order in which they are left.
    A job whose host cannot be found waits again.
    """
    kept, moved = host_choices.kept, set(chain.from_iterable(host_choices.moving.values()))
    hosts = defaultdict[str, _Host](_Host)
    for ref in free:
        if ref not in kept:
            hosts[ref.host].free.append(ref)
    for ref in coming:
        hosts[ref.host].coming += 1
    for job, ref in movable:
        if ref not in moved:
            hosts[ref.host].movable.append((job, ref))
    alike = _Alike(hosts)
    for wants, count in wanting.items():
        name = alike.best(count)
        if name is None:
            host_choices.too_large[wants] = max((sum(host.sizes) for host in hosts.values()), default=0)
            continue
        host = hosts[name]
        host_choices.kept_for[wants] = tuple(host.free[:count])
        del host.free[:count]
        lacking = count - len(host_choices.kept_for[wants])
        returning = min(lacking, host.coming)
        host.coming -= returning
        for job, ref in host.movable[: lacking - returning]:
            host_choices.moving[job].add(ref)
        del host.movable[: lacking - returning]
        alike.add(name)


@dataclass
class _Host:
    """Slots that may still be had on a host."""

    free: list[SlotRef] = field(default_factory=list)
    coming: int = 0
    #: Jobs and their slots, in the order in which they leave.
    movable: list[tuple[int, SlotRef]] = field(default_factory=list)

    @property
    def sizes(self) -> "_Sizes":
        return _Sizes(len(self.free), self.coming, len(self.movable))


class _Sizes(NamedTuple):
    """Numbers of slots of a host that are free, coming and held by elastic jobs."""

    free: int
    coming: int
    movable: int

    def cost(self, count: int) -> tuple[int, int, int]:
        """Return what a job of `count` slots costs there; the tightest of those that are enough costs least."""
        there = self.free + self.coming
        return max(0, count - there), max(0, count - self.free), there


class _Alike:
    """Hosts by their sizes: there are few of these, however many hosts."""

    def __init__(self, hosts: Mapping[str, _Host]) -> None:
        self._hosts = hosts
        #: Heaps. A host whose sizes have changed stays where it was, until it comes to the top.
        self._names: dict[_Sizes, list[str]] = defaultdict(list)
        for name in sorted(hosts):
            self._names[hosts[name].sizes].append(name)

    def add(self, name: str) -> None:
        """Add a host whose sizes have changed."""
        heappush(self._names[self._hosts[name].sizes], name)

    def best(self, count: int) -> str | None:
        """Return the first of the hosts with enough slots that cost least."""
        costs = {sizes: sizes.cost(count) for sizes in [*self._names] if sum(sizes) >= count and self._first(sizes)}
        least = min(costs.values(), default=None)
        return min((self._names[sizes][0] for sizes, cost in costs.items() if cost == least), default=None)

    def _first(self, sizes: _Sizes) -> str:
        """Return the first host of these sizes; "": there is none any more."""
        names = self._names[sizes]
        while names and self._hosts[names[0]].sizes != sizes:
            heappop(names)
        if not names:
            del self._names[sizes]
        return names[0] if names else ""

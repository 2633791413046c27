"""Free slots by host, of which jobs take some: on few hosts, as many on each, or those of whole GPUs."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, groupby, islice
from operator import attrgetter

from scheduling.snapshot import SlotRef

__all__ = ["SlotsByHost", "SlotsLeft", "by_host"]

_HOST = attrgetter("host")


def by_host(refs: Iterable[SlotRef]) -> dict[str, tuple[SlotRef, ...]]:
    return {host: tuple(there) for host, there in groupby(sorted(refs), key=_HOST)}


class SlotsByHost:
    """Free slots by host; taken ones are gone. Hosts are found by their size: taking costs the same for any number."""

    def __init__(self, slots: Mapping[str, tuple[SlotRef, ...]]) -> None:
        """`slots` of each host in order; see `by_host`."""
        self._slots = dict(slots)
        #: Number of free slots on all hosts.
        self.count = sum(map(len, self._slots.values()))
        #: Size -> number of hosts.
        self._numbers = Counter(map(len, self._slots.values()))
        #: Size -> heap of hosts. A host that has become smaller since stays where it was, until it comes to the top.
        self._hosts: dict[int, list[str]] = defaultdict(list)
        for host, there in self._slots.items():
            self._hosts[len(there)].append(host)
        for hosts in self._hosts.values():
            heapify(hosts)
        self._sizes = sorted(self._hosts)

    def take(self, count: int) -> list[SlotRef]:
        """Take up to `count` slots, on as few hosts as possible."""
        chosen: list[SlotRef] = []
        left = min(count, self.count)
        while left > 0:
            host = self._best_host(left)
            there = self._slots[host]
            self._remove(host, left)
            chosen += there[:left]
            left -= len(there)
        return chosen

    @property
    def sizes(self) -> dict[str, int]:
        """Number of slots left on each host that has any."""
        return {host: len(there) for host, there in self._slots.items() if there}

    def size_of(self, host: str) -> int:
        """Return the number of slots left on a host."""
        return len(self._slots.get(host, ()))

    @property
    def host_count(self) -> int:
        """Number of hosts that had any at first."""
        return len(self._slots)

    def take_on(self, hosts: Iterable[str], count: int) -> list[SlotRef]:
        """Take up to `count` slots on these hosts, on as few of them as possible."""
        free = {host: self._slots[host] for host in hosts if self._slots.get(host)}
        if count <= 0 or not free:
            return []
        chosen = SlotsByHost(free).take(count)
        for host, taken in Counter(ref.host for ref in chosen).items():
            self._remove(host, taken)
        return chosen

    def _best_host(self, count: int) -> str:
        sizes, slots = self._sizes, self._slots
        while True:
            position = bisect_left(sizes, count) if count < sizes[-1] else -1
            hosts = self._hosts[sizes[position]]
            while hosts and len(slots[hosts[0]]) != sizes[position]:
                heappop(hosts)
            if hosts:
                return hosts[0]
            del self._hosts[sizes[position]], sizes[position]

    def take_equal(self, count: int, per_gpu: int = 1) -> list[SlotRef]:
        """Take `count` slots, as many on each host, on as few hosts as possible; none if there are no such hosts.

        per_gpu: slots of one host that each GPU counts as.
        """
        for each in (each for each in range(count, 0, -1) if count % each == 0 and each % per_gpu == 0):
            enough = [size for size in self._sizes if size >= each]
            if sum(self._numbers[size] for size in enough) >= count // each:
                # Hosts that just have enough leave the others whole.
                hosts = list(islice(chain.from_iterable(map(self._popped, enough)), count // each))
                chosen = [ref for host in hosts for ref in self._slots[host][:each]]
                for host in hosts:
                    self._remove(host, each)
                return chosen
        return []

    def take_whole(self, count: int, per_gpu: int, kept: Iterable[SlotRef]) -> list[SlotRef]:
        """Take up to `count` slots, with which a job has a multiple of `per_gpu` on each host.

        Hosts of its `kept` slots come first, then the one that is just large enough, or else the largest.
        """
        has, chosen = Counter(ref.host for ref in kept), list[SlotRef]()
        left = {host: (held + len(self._slots.get(host, ()))) // per_gpu * per_gpu - held for host, held in has.items()}

        def place(host: str) -> tuple[bool, int, str]:
            too_few = left[host] < count - len(chosen)
            return too_few, -left[host] if too_few else left[host], host

        while own := [host for host, size in left.items() if size > 0]:
            host = min(own, key=place)
            wants = count - len(chosen)
            # The slots that complete a GPU, and then whole ones.
            begun = -has[host] % per_gpu
            taken = min(left.pop(host), begun + max(0, wants - begun) // per_gpu * per_gpu)
            if begun <= wants:
                chosen += self._slots[host][:taken]
                self._remove(host, taken)
        while (wants := count - len(chosen)) >= per_gpu and (found := self._best_whole(wants, per_gpu)):
            taken = min(len(self._slots[found]), wants) // per_gpu * per_gpu
            chosen += self._slots[found][:taken]
            self._remove(found, taken)
        return chosen

    def remove(self, refs: Iterable[SlotRef]) -> None:
        """Take these slots, as far as they are here."""
        for host, gone in by_host(refs).items():
            if there := self._slots.get(host):
                self._set(host, tuple(ref for ref in there if ref not in gone))

    def put_back(self, refs: Iterable[SlotRef]) -> None:
        """Give back slots that were taken."""
        for host, returned in by_host(refs).items():
            self._set(host, tuple(sorted((*returned, *self._slots[host]))))

    def _best_whole(self, count: int, per_gpu: int) -> str:
        """Return the host with the fewest whole GPUs that are `count` slots at least, or else with most; "": none."""
        sizes = [size for size in self._sizes if self._numbers[size] and size >= per_gpu]
        if not sizes:
            return ""
        whole = next((size for size in sizes if size // per_gpu * per_gpu >= count), sizes[-1]) // per_gpu
        return min(self._first(size) for size in sizes if size // per_gpu == whole)

    def _first(self, size: int) -> str:
        """Return the first host of a size, of which there is one."""
        hosts = self._hosts[size]
        while len(self._slots[hosts[0]]) != size:
            heappop(hosts)
        return hosts[0]

    def _popped(self, size: int) -> Iterator[str]:
        """Yield the hosts of a size in order, each of which is taken from then."""
        hosts, before = self._hosts[size], ""
        while hosts:
            host = heappop(hosts)
            if len(self._slots[host]) == size and host != before:
                yield host
            before = host

    def _remove(self, host: str, count: int) -> None:
        self._set(host, self._slots[host][count:])

    def _set(self, host: str, slots: tuple[SlotRef, ...]) -> None:
        before, size = len(self._slots[host]), len(slots)
        self._slots[host] = slots
        self.count += size - before
        self._numbers[before] -= 1
        self._numbers[size] += 1
        if not size or size == before:
            return
        if size not in self._hosts:
            insort(self._sizes, size)
        heappush(self._hosts[size], host)


class SlotsLeft:
    """Free slots that no job has taken yet, indexed once for each set of hosts that jobs cannot use."""

    def __init__(self, free: Mapping[str, tuple[SlotRef, ...]]) -> None:
        self._free = free
        self._taken: list[SlotRef] = []
        self._without: dict[frozenset[str], SlotsByHost] = {}

    def on_others(self, hosts: frozenset[str]) -> SlotsByHost:
        """Return what is left on other hosts than these."""
        if hosts not in self._without:
            slots = SlotsByHost({host: refs for host, refs in self._free.items() if host not in hosts})
            slots.remove(self._taken)
            self._without[hosts] = slots
        return self._without[hosts]

    def taken(self, refs: Sequence[SlotRef], by: SlotsByHost) -> list[SlotRef]:
        """Take the slots that were taken from one index from the others as well, and return them."""
        self._taken += refs
        for slots in self._without.values():
            if slots is not by:
                slots.remove(refs)
        return [*refs]

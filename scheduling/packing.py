"""Slots by host, to be taken by best fit: the smallest host that takes all that is left to place, or the largest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter

from scheduling.snapshot import SlotRef

__all__ = ["SlotsByHost", "by_host"]

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

"""Choice of hosts under policy goodput: jobs on several hosts disturb each other where they share one's network.

So there is at most one such job on a host, as far as that is possible: it takes whole hosts before parts, and parts of
hosts before those that another one is on. Where `packing.pack` already keeps them apart, its way is the better one: it
needs fewer hosts.
"""

from collections import Counter
from collections.abc import Mapping

from scheduling.placement.packing import SlotsByHost, pack
from scheduling.snapshot import SlotRef

__all__ = ["shared_hosts", "spread"]

#: Job -> slots that it keeps.
Kept = Mapping[int, tuple[SlotRef, ...]]
#: Host -> slots that nobody holds, in order.
Free = Mapping[str, tuple[SlotRef, ...]]


def spread(wanted: Mapping[int, int], kept: Kept, free: Free, slots_of: Mapping[str, int]) -> dict[int, list[SlotRef]]:
    """Job -> slots of `free`, as many as `wanted` says, in all no more than there are: on its own hosts first.

    slots_of: host -> how many slots it has.
    """
    packed = pack(wanted, kept, SlotsByHost(free))
    if not (shared := shared_hosts(kept, packed)):
        return packed
    apart = _apart(wanted, kept, SlotsByHost(free), slots_of)
    return apart if shared_hosts(kept, apart) < shared else packed


def shared_hosts(kept: Kept, claims: Mapping[int, list[SlotRef]]) -> int:
    """Return how many jobs on several hosts there are too many, counted on each host."""
    on = Counter(host for hosts in _hosts(kept, claims).values() if len(hosts) > 1 for host in hosts)
    return sum(count - 1 for count in on.values())


def _hosts(kept: Kept, claims: Mapping[int, list[SlotRef]]) -> dict[int, set[str]]:
    jobs = {*kept, *claims}
    return {job: {ref.host for ref in (*kept.get(job, ()), *claims.get(job, ()))} for job in sorted(jobs)}


def _apart(
    wanted: Mapping[int, int], kept: Kept, free: SlotsByHost, slots_of: Mapping[str, int]
) -> dict[int, list[SlotRef]]:
    claims = {job: free.take_on({ref.host for ref in kept.get(job, ())}, count) for job, count in wanted.items()}
    lacking = {job: count - len(claims[job]) for job, count in wanted.items() if count > len(claims[job])}
    # The largest first: small ones fit into what these leave.
    for job in sorted(lacking, key=lambda job: -lacking[job]):
        claims[job] += _take(job, lacking[job], kept, claims, free, slots_of)
    return claims


def _take(
    job: int,
    count: int,
    kept: Kept,
    claims: Mapping[int, list[SlotRef]],
    free: SlotsByHost,
    slots_of: Mapping[str, int],
) -> list[SlotRef]:
    hosts = _hosts(kept, claims)
    own = hosts.pop(job)
    if not own and any(size >= count for size in free.sizes.values()):
        return free.take(count)
    taken: list[SlotRef] = []
    for host in sorted(free.sizes, key=lambda host: (-free.sizes[host], host)):
        if free.sizes[host] == slots_of.get(host) and free.sizes[host] <= count - len(taken):
            taken += free.take_on({host}, count - len(taken))
    crowded = {host for others in hosts.values() if len(others) > 1 for host in others}
    taken += free.take_on(free.sizes.keys() - crowded, count - len(taken))
    return taken + free.take(count - len(taken))

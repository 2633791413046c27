"""Choice of hosts under policy goodput: jobs on several hosts disturb each other where they share one's network.

So there is at most one such job on a host, as far as that is possible: it takes whole hosts before parts, and parts of
hosts before those that another one is on. Where `packing.pack` already keeps them apart, its way is the better one: it
needs fewer hosts.
"""

from collections import Counter
from collections.abc import Mapping

from scheduling.placement.packing import pack
from scheduling.placement.slots_by_host import SlotsByHost
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
    hosts = _hosts(kept, claims)
    #: Host -> number of jobs on several hosts that are there.
    crowds = Counter(host for there in hosts.values() if len(there) > 1 for host in there)
    # The largest first: small ones fit into what these leave.
    for job in sorted(lacking, key=lambda job: -lacking[job]):
        own = hosts[job]
        if len(own) > 1:
            crowds.subtract(own)
        taken = _take(lacking[job], free, slots_of, crowds, starts=not own)
        claims[job] += taken
        own |= {ref.host for ref in taken}
        if len(own) > 1:
            crowds.update(own)
    return claims


def _take(
    count: int, free: SlotsByHost, slots_of: Mapping[str, int], crowds: Mapping[str, int], *, starts: bool
) -> list[SlotRef]:
    """Take so many slots for one job. `starts`: it is on no host yet."""
    sizes = free.sizes
    if starts and any(size >= count for size in sizes.values()):
        return free.take(count)
    taken: list[SlotRef] = []
    whole = (host for host, size in sizes.items() if size == slots_of.get(host) and size <= count)
    for host in sorted(whole, key=lambda host: (-sizes[host], host)):
        if sizes[host] <= count - len(taken):
            taken += free.take_on({host}, count - len(taken))
        if len(taken) == count:
            return taken
    taken += free.take_on([host for host in free.sizes if not crowds.get(host)], count - len(taken))
    return taken + free.take(count - len(taken))

"""Choice of hosts for jobs that get slots in the same cycle, on as few hosts each as possible, however they are served.

What counts is the number of pairs of a job and a host that it is new on. Most often each job finds one host that is
enough, and serving one after the other is the best there is. Where it is not, few jobs and hosts are tried out: any
best way can be had by giving again and again to one job what one host has, until that job or that host is done. (Give
it less, and the rest comes from another pair; pairs of a best way form no circle, so there is always one at its end.)
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from scheduling.placement.slots_by_host import SlotsByHost
from scheduling.snapshot import SlotRef

__all__ = ["pack"]

#: Limits of the search: jobs, hosts and steps.
_MAX_JOBS, _MAX_HOSTS, _MAX_STEPS = 8, 16, 500

#: Slots each; the largest first.
Sizes = tuple[int, ...]
#: From a job that lacks so many to a host that has so many.
Pair = tuple[int, int]


def pack(
    wanted: Mapping[int, int], kept: Mapping[int, tuple[SlotRef, ...]], free: SlotsByHost
) -> dict[int, list[SlotRef]]:
    """Job -> slots of `free`, which are gone then: as many as `wanted` says, in all no more than there are. On hosts of
    its `kept` slots first, in the order of `wanted`."""
    claims = {
        job: free.take_on({ref.host for ref in near}, count) if (near := kept.get(job)) else []
        for job, count in wanted.items()
    }
    lacking = {job: count - len(claims[job]) for job, count in wanted.items() if count > len(claims[job])}
    if 1 < len(lacking) <= _MAX_JOBS and free.host_count <= _MAX_HOSTS:
        for job, host, count in _tried(lacking, free):
            claims[job] += free.take_on({host}, count)
            lacking[job] -= count
        in_order = list(lacking.items())
    else:
        # Large ones first: small ones fit into what these leave.
        in_order = sorted(lacking.items(), key=itemgetter(1), reverse=True)
    for job, count in in_order:
        claims[job] += free.take(count)
    return claims


def _tried(lacking: Mapping[int, int], free: SlotsByHost) -> list[tuple[int, str, int]]:
    """(job, host, slots) of a best way; empty if one after the other is as good, or that takes too many steps."""
    wanted, there, result = dict(lacking), free.sizes, []
    trial = SlotsByHost({host: tuple(SlotRef(host, index) for index in range(size)) for host, size in there.items()})
    pairs = sum(len({ref.host for ref in trial.take(count)}) for count in lacking.values())
    for lacks, has in _best_pairs(_sorted(wanted.values()), _sorted(there.values()), fewer_than=pairs):
        job = next(one for one, count in wanted.items() if count == lacks)
        host = min(one for one, count in there.items() if count == has)
        result.append((job, host, min(lacks, has)))
        wanted[job] -= min(lacks, has)
        there[host] -= min(lacks, has)
    return result


def _sorted(counts: Iterable[int]) -> Sizes:
    return tuple(sorted(filter(None, counts), reverse=True))


def _best_pairs(wanted: Sizes, there: Sizes, *, fewer_than: int) -> Sequence[Pair]:
    search = _Search()
    for most in range(_least_pairs(wanted, there), fewer_than):
        found = search.within(wanted, there, most)
        if found is not None:
            return found
    return ()


def _least_pairs(wanted: Sizes, there: Sizes) -> int:
    """No way has fewer: what each job would need if the others were not there."""
    total = 0
    for lacks in wanted:
        for has in there:
            if lacks <= 0:
                break
            lacks -= has
            total += 1
    return total


class _Search:
    def __init__(self) -> None:
        self._steps = 0
        #: Positions that were found to be impossible.
        self._dead: set[tuple[Sizes, Sizes, int]] = set()

    def within(self, wanted: Sizes, there: Sizes, most: int) -> tuple[Pair, ...] | None:
        """At most so many pairs that serve everybody; () if that takes too many steps, None: there are none."""
        if not wanted or self._steps >= _MAX_STEPS:
            return ()
        state = (wanted, there, most)
        if state in self._dead or _least_pairs(wanted, there) > most:
            return None
        self._steps += 1
        for lacks, has in _pairs(wanted, there):
            given = min(lacks, has)
            later = self.within(_without(wanted, lacks, given), _without(there, has, given), most - 1)
            if later is not None:
                return ((lacks, has), *later) if self._steps < _MAX_STEPS else ()
        self._dead.add(state)
        return None


def _pairs(wanted: Sizes, there: Sizes) -> list[Pair]:
    """A job and a host of the same size belong together: whatever else the host served fits where the job was."""
    same = set(wanted).intersection(there)
    if same:
        return [(max(same), max(same))]
    return [(lacks, has) for lacks in sorted(set(wanted), reverse=True) for has in sorted(set(there), reverse=True)]


def _without(sizes: Sizes, size: int, given: int) -> Sizes:
    left = list(sizes)
    left.remove(size)
    return _sorted([*left, size - given])

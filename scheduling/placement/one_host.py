"""Choice of the host for a job that needs all its slots on one.

Such a job is of fixed size, so it stays where it starts. It takes part in its group's division as soon as one host
could have enough for it: slots that are free, coming, or held by elastic jobs, which then leave that host
as soon as they have others instead. Nobody of fixed size is stopped for the sake of a host, so until then the job waits
and others may overtake it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

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
    there, held_on = defaultdict[str, list[SlotRef]](list), defaultdict[str, list[tuple[int, SlotRef]]](list)
    back = Counter(ref.host for ref in coming)
    for ref in free:
        if ref not in kept:
            there[ref.host].append(ref)
    for job, ref in movable:
        if ref not in moved:
            held_on[ref.host].append((job, ref))
    for wants, count in wanting.items():
        host = _best(count, there, back, held_on)
        if host is None:
            hosts = there.keys() | back.keys() | held_on.keys()
            most = (len(there.get(host, ())) + back[host] + len(held_on.get(host, ())) for host in hosts)
            host_choices.too_large[wants] = max(most, default=0)
            continue
        host_choices.kept_for[wants] = tuple(there[host][:count])
        del there[host][:count]
        lacking = count - len(host_choices.kept_for[wants])
        returning = min(lacking, back[host])
        back[host] -= returning
        for job, ref in held_on[host][: lacking - returning]:
            host_choices.moving[job].add(ref)
        del held_on[host][: lacking - returning]


def _best(
    count: int, free: Mapping[str, Sequence[SlotRef]], back: Mapping[str, int], held_on: Mapping[str, Sequence[object]]
) -> str | None:
    hosts: Set[str] = free.keys() | back.keys() | held_on.keys()

    def cost(host: str) -> tuple[int, int, int, str]:
        there, returning = len(free.get(host, ())), back.get(host, 0)
        # The tightest of those that are enough.
        return max(0, count - there - returning), max(0, count - there), there + returning, host

    enough = [
        host for host in hosts if len(free.get(host, ())) + back.get(host, 0) + len(held_on.get(host, ())) >= count
    ]
    return min(enough, key=cost, default=None)

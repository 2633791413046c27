"""Capacity that would be of use: hosts that waiting trainings need, hosts that pay, and the host that is missed least.

The answers come from the scheduler's own cycle, run once more with hosts that are not there, or without one that is:
quotas, policies and placement count as they do for real hosts.

The value of a division of slots is the sum of its trainings' speed-ups, in GPUs that work alone. A further host pays
if it adds more than `worth` per slot. A training's speed-up is known from its profile. Without a profile it is
the number of slots that it needs: its minimum, or all of them if its size is fixed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from scheduling.placement.slot_choice import JobSlots
from scheduling.policies.kind_ratios import Ratios
from scheduling.policies.speedups import Shape, scalings_of
from scheduling.preview import without_host
from scheduling.schedule import run_cycle
from scheduling.sharing.pool import shapes_of
from scheduling.snapshot import JobView, SlotRef, SlotView, Snapshot

__all__ = ["HostShape", "Leaving", "Wanted", "cheapest_to_leave", "wanted_hosts", "with_hosts"]

#: Host names begin with a letter or a digit, so no host has this name, and these come last in the order of hosts.
_NEW = "~"
#: Largest number of numbers of hosts beyond the needed ones that are tried.
_MOST_TRIED = 32
_NOTHING = 1e-6


@dataclass(frozen=True)
class HostShape:
    """A host that could come."""

    resource_groups: tuple[str, ...]
    #: GPU model; "": unknown.
    kind: str
    slots: int


@dataclass(frozen=True)
class Wanted:
    """Hosts of a shape that would be of use now, beyond those that are there."""

    #: Hosts without which some waiting trainings do not start, and further ones that pay.
    waiting_hosts: int = 0
    paying_hosts: int = 0
    #: Slots that the trainings of `waiting` would take now, within their quotas.
    waiting_slots: int = 0
    #: Slots of the paying hosts.
    paying_slots: int = 0
    #: Trainings that start with the needed hosts and wait without them, in order of id.
    waiting: tuple[int, ...] = ()
    #: Waiting trainings that even the most hosts do not help: their quota, their group or their size forbids it.
    unhelped: tuple[int, ...] = ()
    #: Value that the paying hosts add, in GPUs that work alone.
    gain: float = 0.0
    #: Whether more hosts than the limit would be of use.
    limited: bool = False

    @property
    def hosts(self) -> int:
        return self.waiting_hosts + self.paying_hosts


@dataclass(frozen=True)
class Leaving:
    """Effect of a host's leaving."""

    host: str
    slots: int
    #: Trainings that hold slots now and would hold none.
    stops: int
    #: Slots on it that trainings keep to their end, because they cannot move.
    stays: int
    #: Slots on it that trainings leave live.
    moved: int
    #: Value that is lost, in GPUs that work alone.
    loss: float


def with_hosts(snapshot: Snapshot, shape: HostShape, count: int) -> Snapshot:
    """Return the snapshot with further hosts of this shape, which are free."""
    known = {slot.ref.host for slot in snapshot.slots if slot.ref.host.startswith(_NEW)}
    new = tuple(
        SlotView(SlotRef(f"{_NEW}{len(known) + host:05}", index), shape.resource_groups, True, device=shape.kind)
        for host in range(count)
        for index in range(shape.slots)
    )
    if not snapshot.shares:
        return replace(snapshot, slots=snapshot.slots + new)
    # Hosts to come are like the poorest of their kind that is known.
    alike = {slot.ref.host for slot in snapshot.slots if slot.device == shape.kind} & snapshot.shares.keys()
    share = min(snapshot.shares[host] for host in alike or snapshot.shares)
    shares = {**snapshot.shares, **{slot.ref.host: share for slot in new}}
    return replace(snapshot, slots=snapshot.slots + new, shares=shares)


def wanted_hosts(snapshot: Snapshot, shape: HostShape, most: int, worth: float) -> Wanted:
    """Return the hosts of this shape that would be of use, at most `most`. `worth`: see the module.

    One host more than the limit is tried, to tell whether the limit matters.
    """
    tries = _Tries(snapshot, shape)
    queue = {job.id for job in snapshot.jobs if job.state == "PENDING"}
    now = tries.served(0, queue)
    helped = tries.served(most, queue)
    needed = _fewest(lambda count: len(tries.served(count, queue)) >= len(helped), most)
    waiting = tries.served(needed, queue) - now
    paying, gain = _paying(tries, needed, most, worth)
    placed = tries.placed(needed)
    total = needed + paying
    return Wanted(
        waiting_hosts=needed,
        paying_hosts=paying,
        waiting_slots=sum(placed[job].target for job in waiting),
        paying_slots=paying * shape.slots,
        waiting=tuple(sorted(waiting)),
        unhelped=tuple(sorted(queue - now - helped)),
        gain=round(gain, 6),
        limited=total == most and _more_would_help(tries, most, queue, worth),
    )


def cheapest_to_leave(snapshot: Snapshot, hosts: Collection[str]) -> list[Leaving]:
    """Return the effect of each host's leaving, the one that is missed least first.

    Trainings that would stop weigh most, then those that cannot move, then lost speed, then the moves.
    """
    before = run_cycle(snapshot).placed
    value = _value(snapshot, before)
    found = [_leaving(snapshot, host, before, value) for host in sorted(hosts)]
    return sorted(found, key=lambda one: (one.stops, one.stays, one.loss, one.moved, one.slots, one.host))


class _Tries:
    """Cycles with different numbers of further hosts, each run once."""

    def __init__(self, snapshot: Snapshot, shape: HostShape) -> None:
        self._snapshot, self.shape = snapshot, shape
        self._placed: dict[int, Mapping[int, JobSlots]] = {}
        self._values: dict[int, float] = {}

    def placed(self, count: int) -> Mapping[int, JobSlots]:
        if count not in self._placed:
            self._placed[count] = run_cycle(with_hosts(self._snapshot, self.shape, count)).placed
        return self._placed[count]

    def served(self, count: int, jobs: Collection[int]) -> set[int]:
        """Return those of the jobs that get slots."""
        placed = self.placed(count)
        return {job for job in jobs if job in placed and placed[job].target}

    def value(self, count: int) -> float:
        if count not in self._values:
            self._values[count] = _value(with_hosts(self._snapshot, self.shape, count), self.placed(count))
        return self._values[count]


def _fewest(is_enough: Callable[[int], bool], most: int) -> int:
    """Return the least count from 0 to `most` that is enough. `most` is, and more than enough is enough."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def _paying(tries: _Tries, needed: int, most: int, worth: float) -> tuple[int, float]:
    """Return the number of hosts beyond the needed ones that brings the highest value above its price, and its gain."""
    price = worth * tries.shape.slots
    step = max(1, -(-(most - needed) // _MOST_TRIED))
    best, best_net, start = needed, 0.0, tries.value(needed)
    for count in (*range(needed + step, most, step), most):
        net = tries.value(count) - start - price * (count - needed)
        if net > best_net + _NOTHING:
            best, best_net = count, net
    return best - needed, tries.value(best) - start


def _more_would_help(tries: _Tries, most: int, queue: Collection[int], worth: float) -> bool:
    more = most + max(1, most)
    if len(tries.served(more, queue)) > len(tries.served(most, queue)):
        return True
    gain = tries.value(most + 1) - tries.value(most)
    return gain > worth * tries.shape.slots + _NOTHING


def _leaving(snapshot: Snapshot, host: str, before: Mapping[int, JobSlots], value: float) -> Leaving:
    without = without_host(snapshot, host)
    after = run_cycle(without).placed
    here = [slot for slot in snapshot.slots if slot.ref.host == host]
    held = {slot.ref for slot in here if slot.held_by is not None and not slot.vacating}
    stays = {ref for one in after.values() for ref in set(one.kept) - set(one.leaving)} & held
    stops = [job for job, one in before.items() if one.target and not after[job].target]
    loss = value - _value(without, after)
    return Leaving(host, len(here), len(stops), len(stays), len(held - stays), round(max(0.0, loss), 6))


def _value(snapshot: Snapshot, placed: Mapping[int, JobSlots]) -> float:
    """Return the sum of the trainings' speed-ups on the slots that they get."""
    shapes = {group.name: shapes_of(snapshot, group.resource_group) for group in snapshot.groups}
    ratios = Ratios(snapshot.ratios)
    return sum(
        _speedup(job, placed[job.id], shapes[job.group], ratios)
        for job in snapshot.jobs
        if job.id in placed and placed[job.id].target
    )


def _speedup(job: JobView, slots: JobSlots, shapes: tuple[Shape, ...], ratios: Ratios) -> float:
    count = slots.target
    needed = float(min(count, job.min_slots) if job.elastic else count)
    if job.profile is None or not job.profile.parameters or not job.elastic:
        return needed
    kind = slots.kind if slots.kind in {shape.kind for shape in shapes} else shapes[0].kind
    assert kind is not None
    return max(needed, scalings_of(job, shapes, {kind: count}, ratios)[kind].speedup(count))

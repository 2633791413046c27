"""Entitlement of instance groups that share slots: quotas first, then weights.

Each group asks for what its jobs can use at most. It gets, as far as the slots that its resource group offers reach:

1. its quota, or all that it asks for if that is less; where there is less than that, all rise in proportion to their
   quotas until each has what it asks for, so that nobody gains by asking for more;
2. what it does not lend of its quota, if it asks for less, in the same way: a reserve keeps borrowers away, and nobody
   from what is his own;
3. of what is left, all that it still asks for, or else a part in proportion to its weight; with weight 0 nothing.

That is weighted max-min fairness in stages: nobody's part can be raised without lowering that of a group which has,
beyond its quota, no more for its weight (KAI's "deserved quota" and "over-quota weight" are stages 1 and 3). Parts
are solved for exactly and then made whole: rounded down, the remainder to the largest fractions; of equal ones to the
group that has asked for the longest time, then by name. Never to the group that holds more: parts that follow from what
is held do not come to rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor
from operator import itemgetter

from scheduling.sharing.flow import Amount, Flow
from scheduling.snapshot import limit_of

__all__ = ["Claimant", "GroupEntitlement", "SlotClass", "SlotFlow", "deserved", "in_whole_slots", "reachable_slots"]

#: Slots that the same resource groups offer: these, of those that matter.
SlotClass = frozenset[str]
#: Flow of slots by class to resource groups. Each question moves only the difference to the last one.
SlotFlow = Flow[str, SlotClass]


@dataclass(frozen=True)
class Claimant:
    """An instance group, as far as its part depends on it. All counts are slots."""

    name: str
    resource_group: str
    #: The most that its jobs can use.
    wants: int
    quota: int | None = None
    weight: int = 1
    borrows: bool = True
    lends: bool = True
    #: Number of slots that the group keeps for now, whatever belongs to others.
    least: int = 0
    #: When the first of its jobs was submitted (Unix seconds).
    since: float = 0.0

    @property
    def asked_of_quota(self) -> int:
        return min(self.quota or 0, self.wants)

    @property
    def owned(self) -> int:
        """Return the slots of a group before anybody borrows. A quota that is not lent is kept, even unused."""
        return self.asked_of_quota if self.lends else self.quota or 0

    @property
    def most(self) -> int:
        limit = limit_of(self.quota, self.weight, borrows=self.borrows)
        return max(self.owned, self.wants if limit is None else min(self.wants, limit))


@dataclass(frozen=True)
class GroupEntitlement:
    """The part of an instance group beside others that use the same slots. All counts are slots in service."""

    #: Number of slots that its resource group offers.
    total: int
    #: The most that its jobs can use.
    wants: int
    #: Exact part by quota and weight; see `deserved`.
    deserved: Fraction
    #: Number of slots in this cycle: its part made whole, and unused parts of others, less what they still keep.
    room: int
    #: Number of slots that its jobs have after all pending changes.
    used: int
    #: Number of slots that its jobs hold now.
    held: int
    quota: int | None
    weight: int
    borrows: bool
    #: Number of slots that its fixed-size jobs keep on hosts that are draining; they count for its limit.
    draining: int = 0

    @property
    def limit(self) -> int | None:
        """See `limit_of`."""
        return limit_of(self.quota, self.weight, borrows=self.borrows)

    @property
    def gives_back(self) -> int:
        return max(0, self.held - self.used)


Parts = dict[str, Fraction]


def deserved(claimants: Sequence[Claimant], sizes: Mapping[SlotClass, int], slot_flow: SlotFlow | None = None) -> Parts:
    """Return the exact part of each, by name. sizes: slots of each class. slot_flow: of these, from an earlier call.

    A group whose part would be less than its `least` has that, and the others share what it leaves.
    """
    kept, slot_flow = Parts(), slot_flow or reachable_slots(claimants, sizes)
    while True:
        parts = _shared(claimants, kept, sizes, slot_flow)
        violated = [one for one in claimants if parts[one.name] < one.least]
        if not violated:
            return parts
        kept |= {one.name: Fraction(one.least) for one in violated}


def in_whole_slots(
    claimants: Sequence[Claimant],
    parts: Mapping[str, Fraction],
    sizes: Mapping[SlotClass, int],
    slot_flow: SlotFlow | None = None,
) -> dict[str, int]:
    """Return `parts` rounded to whole slots. `slot_flow`: see `deserved`."""
    result, slot_flow = (
        {name: floor(part) for name, part in parts.items()},
        slot_flow or reachable_slots(claimants, sizes),
    )
    requested = _by_resource_group(claimants, result)
    slot_flow.ask(requested)
    rests = {one.name: parts[one.name] % 1 for one in claimants}
    line = sorted(
        (one for one in claimants if rests[one.name]), key=lambda one: (-rests[one.name], one.since, one.name)
    )
    for one in line:
        raised = requested[one.resource_group] + 1
        if slot_flow.ask({one.resource_group: raised}):
            requested[one.resource_group] = raised
            result[one.name] += 1
        else:
            slot_flow.ask({one.resource_group: requested[one.resource_group]})
    return result


def reachable_slots(claimants: Iterable[Claimant], sizes: Mapping[SlotClass, int]) -> SlotFlow:
    """Flow by resource group: instance groups on the same one have the same slots open to them."""
    reach: dict[str, list[SlotClass]] = {one.resource_group: [] for one in claimants}
    for offered in sizes:
        for name in offered & reach.keys():
            reach[name].append(offered)
    return Flow(reach, sizes)


def _by_resource_group(claimants: Iterable[Claimant], parts: Mapping[str, Amount]) -> dict[str, Amount]:
    requested: dict[str, Amount] = {}
    for one in claimants:
        requested[one.resource_group] = requested.get(one.resource_group, 0) + parts[one.name]
    return requested


def _shared(claimants: Sequence[Claimant], kept: Parts, sizes: Mapping[SlotClass, int], slot_flow: SlotFlow) -> Parts:
    level = {one.name: kept.get(one.name, Fraction(0)) for one in claimants}
    for tops, speeds in (
        ([one.asked_of_quota for one in claimants], [one.quota or 0 for one in claimants]),
        ([one.owned for one in claimants], [one.quota or 0 for one in claimants]),
        ([one.most for one in claimants], [one.weight for one in claimants]),
    ):
        rises = [
            _Rise(one, level[one.name], Fraction(0 if one.name in kept else top), speed)
            for one, top, speed in zip(claimants, tops, speeds, strict=True)
        ]
        if any(rise.height for rise in rises):
            level |= _raised(rises, sizes, slot_flow)
    return level


@dataclass(frozen=True)
class _Rise:
    claimant: Claimant
    begins: Fraction
    #: Highest level that the claimant may rise to.
    top: Fraction
    #: Speed at which it rises beside the others.
    speed: int

    @cached_property
    def height(self) -> Fraction:
        return max(Fraction(0), self.top - self.begins) if self.speed else Fraction(0)

    def at(self, time: Fraction | None) -> Fraction:
        """Return the level at this time; None: at the end."""
        return self.begins + (self.height if time is None else min(self.height, time * self.speed))


def _raised(rises: Sequence[_Rise], sizes: Mapping[SlotClass, int], slot_flow: SlotFlow) -> Parts:
    """All rise, each at its speed, until it is at its top or nothing is left that it could have.

    First as if everything were open to all. Where that does not fit, those who cannot all have so much use up all that
    is open to them and stop before that moment, and the others stop after it, on the rest: each side alone is a smaller
    question of the same kind (Groenevelt 1991).
    """
    level, questions = Parts(), [(rises, sizes, slot_flow)]
    while questions:
        rises, sizes, slot_flow = questions.pop()
        claimants = [rise.claimant for rise in rises]
        time = _when_full(sum(sizes.values()), rises)
        parts = {rise.claimant.name: rise.at(time) for rise in rises}
        if slot_flow.ask(_by_resource_group(claimants, parts)):
            level |= parts
            continue
        stuck = slot_flow.starved()
        for side in (True, False):
            ones = [rise for rise in rises if (rise.claimant.resource_group in stuck) is side]
            there = {names: count for names, count in sizes.items() if names.isdisjoint(stuck) is not side}
            questions.append((ones, there, reachable_slots((rise.claimant for rise in ones), there)))
    return level


def _when_full(slots: int, rises: Iterable[_Rise]) -> Fraction | None:
    """Return the time at which they have used up that many slots. None: never."""
    room = Fraction(slots) - sum(rise.begins for rise in rises)
    climbs = [(rise.height / rise.speed, rise) for rise in rises if rise.height]
    speed = sum(rise.speed for _, rise in climbs)
    for end, rise in sorted(climbs, key=itemgetter(0)):
        if room <= end * speed:
            return room / speed
        room -= rise.height
        speed -= rise.speed
    return None

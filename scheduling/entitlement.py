"""How many slots each instance group may have, where several share them: quotas first, then weights.

Each group asks for what its jobs can use at most. It gets, as far as the slots that its resource group offers reach:

1. its quota, or all that it asks for if that is less; where there is less than that, all rise in proportion to their
   quotas until each has what it asks for, so that nobody gains by asking for more;
2. what it does not lend of its quota, if it asks for less, in the same way: a reserve keeps borrowers away, and nobody
   from what is his own;
3. of what is left, all that it still asks for, or else a part in proportion to its weight.

That is weighted max-min fairness in stages: nobody's part can be raised without lowering that of a group which has,
beyond its quota, no more for its weight (KAI's "deserved quota" and "over-quota weight" are stages 1 and 3). Parts
are solved for exactly and then made whole: rounded down, the remainder to the largest fractions; of equal ones to the
group that has asked for the longest time, then by name. Never to the group that holds more: parts that follow from what
is held do not come to rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from scheduling.flow import Amount, Flow

__all__ = ["Claimant", "GroupEntitlement", "SlotClass", "deserved", "whole"]

#: Slots that the same resource groups offer: these, of those that matter.
SlotClass = frozenset[str]


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
    #: What it keeps for now, whatever belongs to others.
    least: int = 0
    #: When the first of its jobs was submitted (Unix seconds).
    since: float = 0.0

    @property
    def asked_of_quota(self) -> int:
        return min(self.quota or 0, self.wants)

    @property
    def owned(self) -> int:
        """What it gets before anybody borrows. A quota that is not lent is kept, even unused."""
        return self.asked_of_quota if self.lends else self.quota or 0

    @property
    def most(self) -> int:
        limited = self.wants if self.quota is None or self.borrows else min(self.wants, self.quota)
        return max(self.owned, limited)


@dataclass(frozen=True)
class GroupEntitlement:
    """The part of an instance group beside others that use the same slots. All counts are slots in service."""

    #: That its resource group offers.
    total: int
    #: The most that its jobs can use.
    wants: int
    #: Its exact part by quota and weight; see `deserved`.
    deserved: Fraction
    #: What it may have in this cycle: its part made whole, what others leave of theirs, less what they still keep.
    room: int
    #: What its jobs have once everything has changed hands.
    used: int
    #: What they hold now.
    held: int
    quota: int | None
    weight: int
    borrows: bool

    @property
    def gives_back(self) -> int:
        return max(0, self.held - self.used)


Parts = dict[str, Fraction]


def deserved(claimants: Sequence[Claimant], sizes: Mapping[SlotClass, int]) -> Parts:
    """The exact part of each, by name. `sizes`: slots of each class.

    A group whose part would be less than its `least` has that, and the others share what it leaves.
    """
    kept, flow = Parts(), _flow(claimants, sizes)
    while True:
        parts = _shared(claimants, kept, flow)
        violated = [one for one in claimants if parts[one.name] < one.least]
        if not violated:
            return parts
        kept |= {one.name: Fraction(one.least) for one in violated}


def whole(
    claimants: Sequence[Claimant], parts: Mapping[str, Fraction], sizes: Mapping[SlotClass, int]
) -> dict[str, int]:
    """`parts` in whole slots."""
    result, flow = {name: floor(part) for name, part in parts.items()}, _flow(claimants, sizes)
    asked = _by_resource_group(claimants, result)
    flow.ask(asked)
    line = sorted(claimants, key=lambda one: (-(parts[one.name] % 1), one.since, one.name))
    for one in line:
        raised = asked[one.resource_group] + 1
        if parts[one.name] % 1 and flow.ask({one.resource_group: raised}):
            asked[one.resource_group] = raised
            result[one.name] += 1
        else:
            flow.ask({one.resource_group: asked[one.resource_group]})
    return result


def _flow(claimants: Iterable[Claimant], sizes: Mapping[SlotClass, int]) -> Flow[str, SlotClass]:
    """Of resource groups: instance groups on the same one have the same slots open to them."""
    reach: dict[str, list[SlotClass]] = {one.resource_group: [] for one in claimants}
    for offered in sizes:
        for name in offered & reach.keys():
            reach[name].append(offered)
    return Flow(reach, sizes)


def _by_resource_group(claimants: Iterable[Claimant], parts: Mapping[str, Amount]) -> dict[str, Amount]:
    asked: dict[str, Amount] = {}
    for one in claimants:
        asked[one.resource_group] = asked.get(one.resource_group, 0) + parts[one.name]
    return asked


def _shared(claimants: Sequence[Claimant], kept: Parts, flow: Flow[str, SlotClass]) -> Parts:
    open_to = [one for one in claimants if one.name not in kept]
    level = {one.name: kept.get(one.name, Fraction(0)) for one in claimants}
    for rises in (
        [_Rise(one, Fraction(one.asked_of_quota), one.quota or 0) for one in open_to],
        [_Rise(one, Fraction(one.owned), one.quota or 0) for one in open_to],
        [_Rise(one, Fraction(one.most), one.weight) for one in open_to],
    ):
        level = _raised(claimants, level, rises, flow)
    return level


@dataclass(frozen=True)
class _Rise:
    claimant: Claimant
    #: How high it may rise.
    top: Fraction
    #: How fast, beside the others.
    speed: int


def _raised(claimants: Sequence[Claimant], level: Parts, rises: Iterable[_Rise], flow: Flow[str, SlotClass]) -> Parts:
    """All rise, each at its speed, until it is at its top or nothing is left that it could have."""
    rising = [rise for rise in rises if rise.top > level[rise.claimant.name]]
    while rising:
        time = max((rise.top - level[rise.claimant.name]) / rise.speed for rise in rising)
        stuck: frozenset[str] = frozenset()
        while not flow.ask(_by_resource_group(claimants, tried := level | _at(time, level, rising))):
            # Earlier, just when what these can reach was used up. It becomes less with each pass, so this ends.
            stuck = flow.starved()
            left = flow.served(stuck) - sum(level[one.name] for one in claimants if one.resource_group in stuck)
            time = _when_full(left, [rise for rise in rising if rise.claimant.resource_group in stuck], level)
        level = tried
        rising = [
            rise
            for rise in rising
            if rise.top > level[rise.claimant.name] and rise.claimant.resource_group not in stuck
        ]
    return level


def _at(time: Fraction, level: Parts, rising: Iterable[_Rise]) -> Parts:
    return {rise.claimant.name: min(rise.top, level[rise.claimant.name] + time * rise.speed) for rise in rising}


def _when_full(room: Fraction, rising: Iterable[_Rise], level: Parts) -> Fraction:
    """When these, beginning at `level`, have used up `room`."""
    climbs = [(rise.top - level[rise.claimant.name], rise.speed) for rise in rising]
    speed = sum(each for _, each in climbs)
    for height, each in sorted(climbs, key=lambda climb: climb[0] / climb[1]):
        if room * each <= height * speed:
            break
        room -= height
        speed -= each
    return room / speed

"""How many slots each instance group may have, where several share them: quotas first, then weights.

Each group asks for what its jobs can use at most. It gets, as far as the slots that its resource group offers reach:

1. its quota, or all that it asks for if that is less; where the quotas together are more than there is, each the same
   part of its own;
2. of what is left, all that it still asks for, or else a part in proportion to its weight.

That is weighted max-min fairness in two stages: nobody's part can be raised without lowering that of a group which has,
beyond its quota, no more for its weight (KAI's "deserved quota" and "over-quota weight" are the same two stages). Parts
are solved for exactly and then made whole: rounded down, the remainder to the largest fractions; of equal ones to the
group that has asked for the longest time, then by name. Never to the group that holds more: parts that follow from what
is held do not come to rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from scheduling.flow import flow

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
    def owned(self) -> int:
        """What it gets before anybody borrows. A quota that is not lent is kept, even unused."""
        if self.quota is None:
            return 0
        return self.quota if not self.lends else min(self.quota, self.wants)

    @property
    def most(self) -> int:
        limited = self.quota is not None and not self.borrows
        return max(self.owned, min(self.wants, self.quota) if limited and self.quota is not None else self.wants)


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

    @property
    def gives_back(self) -> int:
        return max(0, self.held - self.used)


Parts = dict[str, Fraction]


def deserved(claimants: Sequence[Claimant], sizes: Mapping[SlotClass, int]) -> Parts:
    """The exact part of each, by name. `sizes`: slots of each class.

    A group whose part would be less than its `least` has that, and the others share what it leaves.
    """
    kept: Parts = {}
    while True:
        parts = _shared(claimants, kept, sizes)
        violated = [one for one in claimants if parts[one.name] < one.least]
        if not violated:
            return parts
        kept |= {one.name: Fraction(one.least) for one in violated}


def whole(
    claimants: Sequence[Claimant], parts: Mapping[str, Fraction], sizes: Mapping[SlotClass, int]
) -> dict[str, int]:
    """`parts` in whole slots."""
    result = {name: floor(part) for name, part in parts.items()}
    line = sorted(claimants, key=lambda one: (-(parts[one.name] % 1), one.since, one.name))
    for one in line:
        raised = {**result, one.name: result[one.name] + 1}
        if parts[one.name] % 1 and not _starved(claimants, raised, sizes):
            result = raised
    return result


def _shared(claimants: Sequence[Claimant], kept: Parts, sizes: Mapping[SlotClass, int]) -> Parts:
    open_to = [one for one in claimants if one.name not in kept]
    level = {one.name: kept.get(one.name, Fraction(0)) for one in claimants}
    owned = [_Rise(one, Fraction(one.owned), one.owned) for one in open_to]
    level = _raised(claimants, level, owned, sizes)
    over = [_Rise(one, Fraction(one.most), one.weight) for one in open_to]
    return _raised(claimants, level, over, sizes)


@dataclass(frozen=True)
class _Rise:
    claimant: Claimant
    #: How high it may rise.
    top: Fraction
    #: How fast, beside the others.
    speed: int


def _raised(
    claimants: Sequence[Claimant], level: Parts, rises: Iterable[_Rise], sizes: Mapping[SlotClass, int]
) -> Parts:
    """All rise, each at its speed, until it is at its top or nothing is left that it could have."""
    rising = [rise for rise in rises if rise.top > level[rise.claimant.name]]
    while rising:
        time = max((rise.top - level[rise.claimant.name]) / rise.speed for rise in rising)
        stuck: frozenset[str] = frozenset()
        while starved := _starved(claimants, tried := level | _at(time, level, rising), sizes):
            # Earlier, just when what these can reach was used up. It becomes less with each pass, so this ends.
            time, stuck = _when_full(claimants, level, rising, starved, sizes), starved
        level = tried
        rising = [
            rise
            for rise in rising
            if rise.top > level[rise.claimant.name] and rise.claimant.resource_group not in stuck
        ]
    return level


def _at(time: Fraction, level: Parts, rising: Iterable[_Rise]) -> Parts:
    return {rise.claimant.name: min(rise.top, level[rise.claimant.name] + time * rise.speed) for rise in rising}


def _when_full(
    claimants: Iterable[Claimant],
    level: Parts,
    rising: Iterable[_Rise],
    starved: frozenset[str],
    sizes: Mapping[SlotClass, int],
) -> Fraction:
    """When the groups on these resource groups have all that is open to any of them."""
    left = sum(size for offered, size in sizes.items() if offered & starved)
    room = left - sum((level[one.name] for one in claimants if one.resource_group in starved), Fraction(0))
    climbs = [
        (rise.top - level[rise.claimant.name], rise.speed) for rise in rising if rise.claimant.resource_group in starved
    ]
    speed = sum(each for _, each in climbs)
    for height, each in sorted(climbs, key=lambda climb: climb[0] / climb[1]):
        if room * each <= height * speed:
            break
        room -= height
        speed -= each
    return room / speed


def _starved(
    claimants: Iterable[Claimant], parts: Mapping[str, Fraction] | Mapping[str, int], sizes: Mapping[SlotClass, int]
) -> frozenset[str]:
    """Resource groups whose instance groups cannot all have these parts. Empty: everybody can."""
    asked: dict[str, Fraction] = {}
    for one in claimants:
        asked[one.resource_group] = asked.get(one.resource_group, Fraction(0)) + parts[one.name]
    reach = {name: [offered for offered in sizes if name in offered] for name in asked}
    return flow(asked, reach, sizes).starved()

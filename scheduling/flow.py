"""Who can have how many of what, where some slots are open to some and not to others: a bipartite flow."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Generic, TypeVar

__all__ = ["Amount", "Flow", "flow"]

Asker = TypeVar("Asker", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
Amount = int | Fraction


class Flow(Generic[Asker, Place]):
    """As much as all can have together of what they ask for, which may change: only the difference is moved.

    Found by shortest augmenting paths. Cost of a change: for each part that is moved, at most once through `reach`;
    a place that is used up is not looked at again for who could take directly of it, and who could have no more is not
    asked again, until somebody gives something back.
    """

    def __init__(self, reach: Mapping[Asker, Sequence[Place]], sizes: Mapping[Place, int]) -> None:
        """`reach`: asker -> the places that are open to it."""
        self._reach = reach
        #: Counts below are in parts of a slot: so many of them make one.
        self._unit = 1
        self._asked = dict.fromkeys(reach, 0)
        #: What each has at each place.
        self._amounts: dict[Asker, dict[Place, int]] = {asker: {} for asker in reach}
        #: What each lacks of what it asks for.
        self._unmet = dict.fromkeys(reach, 0)
        #: Place -> what nobody has of it.
        self._spare = dict(sizes)
        #: Place -> to whom it is open.
        self._users: dict[Place, list[Asker]] = {place: [] for place in sizes}
        for asker, places in reach.items():
            for place in places:
                self._users[place].append(asker)
        #: How many of its places, from the first on, are known to be used up.
        self._passed = dict.fromkeys(reach, 0)
        #: Askers that can have no more. Whatever they reach is used up by them, so nobody else changes that.
        self._stuck: set[Asker] = set()

    def hold(self, asker: Asker, held: Mapping[Place, int], most: int) -> None:
        """It begins with up to `most` of these."""
        for place, count in held.items():
            kept = min(count, most - self._asked[asker], self._spare[place])
            self._add(asker, place, kept)
            self._asked[asker] += kept

    def ask(self, asked: Mapping[Asker, Amount]) -> bool:
        """Serve these from now on with so much, as far as possible, each in turn; returns whether all have all.

        For one that gets more, others are moved from place to place, and keep their amount.
        """
        self._count_in(lcm(self._unit, *(amount.denominator for amount in asked.values())))
        for asker, amount in asked.items():
            wanted = amount.numerator * (self._unit // amount.denominator)
            self._unmet[asker] += wanted - self._asked[asker]
            self._asked[asker] = wanted
            if self._unmet[asker] < 0:
                self._give_back(asker)
        lacking = self._lacking()
        for asker in lacking:
            self._serve(asker)
        return not any(map(self._unmet.__getitem__, lacking))

    def starved(self) -> frozenset[Asker]:
        """Who cannot all have what they ask for, however it is divided: those who lack some and who compete with them.

        Everything that is open to any of them is used up by them. Empty: everybody has all.
        """
        return frozenset(self._way(self._lacking())[0])

    def served(self, askers: Iterable[Asker]) -> Fraction:
        """What these have together. Nobody could have more without another having less."""
        return Fraction(sum(self._asked[asker] - self._unmet[asker] for asker in askers), self._unit)

    def at(self, asker: Asker) -> dict[Place, int]:
        """What it has at each place, as long as all have asked for whole amounts."""
        assert self._unit == 1
        return {place: amount for place, amount in self._amounts[asker].items() if amount}

    def _count_in(self, unit: int) -> None:
        """Count in parts of a slot so small that all is whole: exact, and much faster than fractions."""
        finer, self._unit = unit // self._unit, unit
        if finer == 1:
            return
        self._asked, self._unmet = _times(finer, self._asked), _times(finer, self._unmet)
        self._spare = _times(finer, self._spare)
        self._amounts = {asker: _times(finer, at) for asker, at in self._amounts.items()}

    def _lacking(self) -> list[Asker]:
        return [asker for asker, lacks in self._unmet.items() if lacks]

    def _serve(self, asker: Asker) -> None:
        while self._unmet[asker] and (place := self._open_to(asker)) is not None:
            amount = min(self._unmet[asker], self._spare[place])
            self._add(asker, place, amount)
            self._unmet[asker] -= amount
        while self._unmet[asker] and asker not in self._stuck:
            came_from, end = self._way([asker])
            if end is None:
                self._stuck.update(came_from)
                return
            # From the end: each takes of its place, and leaves that of the next step in the list.
            steps = [end]
            while (step := came_from[steps[-1][0]]) is not None:
                steps.append(step)
            self._move(asker, steps)

    def _way(
        self, starts: Sequence[Asker]
    ) -> tuple[dict[Asker, tuple[Asker, Place] | None], tuple[Asker, Place] | None]:
        """The shortest way from any of `starts` to a place with something left, over places that others would leave."""
        came_from: dict[Asker, tuple[Asker, Place] | None] = dict.fromkeys(starts)
        for asker in starts:
            if (place := self._open_to(asker)) is not None:
                return came_from, (asker, place)
        waiting, seen = deque(starts), set[Place]()
        while waiting and len(came_from) < len(self._reach):
            asker = waiting.popleft()
            for place in self._reach[asker]:
                if place in seen:
                    continue
                seen.add(place)
                for other in self._users[place]:
                    if other in came_from or not self._amounts[other].get(place):
                        continue
                    came_from[other] = (asker, place)
                    if (end := self._open_to(other)) is not None:
                        return came_from, (other, end)
                    waiting.append(other)
        return came_from, None

    def _open_to(self, asker: Asker) -> Place | None:
        """The first of its places with something left."""
        places, passed = self._reach[asker], self._passed[asker]
        while passed < len(places) and not self._spare[places[passed]]:
            passed += 1
        self._passed[asker] = passed
        return places[passed] if passed < len(places) else None

    def _move(self, first: Asker, steps: Sequence[tuple[Asker, Place]]) -> None:
        left = [(asker, place) for (asker, _), (_, place) in pairwise(steps)]
        taken = (self._amounts[asker][place] for asker, place in left)
        amount = min(self._unmet[first], self._spare[steps[0][1]], *taken)
        for asker, place in steps:
            self._add(asker, place, amount)
        for asker, place in left:
            self._add(asker, place, -amount)
        self._unmet[first] -= amount

    def _give_back(self, asker: Asker) -> None:
        """What it has beyond what it asks for."""
        for place, amount in self._amounts[asker].items():
            if not self._unmet[asker]:
                break
            less = min(amount, -self._unmet[asker])
            self._add(asker, place, -less)
            self._unmet[asker] += less
        self._passed = dict.fromkeys(self._reach, 0)
        self._stuck.clear()

    def _add(self, asker: Asker, place: Place, amount: int) -> None:
        self._spare[place] -= amount
        self._amounts[asker][place] = self._amounts[asker].get(place, 0) + amount


def flow(
    asked: Mapping[Asker, int],
    reach: Mapping[Asker, Sequence[Place]],
    sizes: Mapping[Place, int],
    held: Mapping[Asker, Mapping[Place, int]],
) -> Flow[Asker, Place]:
    """`held` is where they are to begin with; it is left only as far as others cannot be served otherwise."""
    found = Flow(reach, sizes)
    for asker in asked:
        found.hold(asker, held[asker], most=asked[asker])
    found.ask(asked)
    return found


def _times(factor: int, counts: Mapping[Key, int]) -> dict[Key, int]:
    return {key: factor * count for key, count in counts.items()}

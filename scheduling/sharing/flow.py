"""Bipartite flow: the division of slots where some are open to some and not to others."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from math import lcm
from typing import Generic, TypeVar

__all__ = ["Amount", "Flow", "flow"]

Asker = TypeVar("Asker", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
Amount = int | Fraction
#: Move of one unit at a place, from or to an asker.
Step = tuple[Asker, Place]


class Flow(Generic[Asker, Place]):
    """Maximum flow of demands, which may change: only the difference is moved.

    Found by shortest augmenting paths, the first of equals in the order of `reach`. Each asker's height says how far it
    is at least from a place with something left, so a path goes straight down and is looked for again only where it is
    blocked (Ahuja and Orlin 1991). Heights only rise until somebody gives something back; then they are found anew.
    """

    def __init__(self, reach: Mapping[Asker, Sequence[Place]], sizes: Mapping[Place, int]) -> None:
        """`reach`: asker -> the places that are open to it."""
        self._reach = reach
        #: Counts below are in parts of a slot: so many of them make one.
        self._unit = 1
        self._requested = dict.fromkeys(reach, 0)
        #: Units that each asker has at each place.
        self._amounts: dict[Asker, dict[Place, int]] = {asker: {} for asker in reach}
        #: Units that each asker lacks of its request.
        self._unmet = dict.fromkeys(reach, 0)
        #: Place -> what nobody has of it.
        self._spare = dict(sizes)
        #: Place -> to whom it is open.
        self._users: dict[Place, list[Asker]] = {place: [] for place in sizes}
        for asker, places in reach.items():
            for place in places:
                self._users[place].append(asker)
        #: Number of an asker's places, from the first on, that are known to be used up.
        self._passed = dict.fromkeys(reach, 0)
        #: How many others must leave a place, at the least, for each to have more; as many as there are: it can have no
        #: more. Empty: not known.
        self._heights: dict[Asker, int] = {}
        #: Number of raises since the heights were computed.
        self._raised = 0
        #: Number of askers at each height.
        self._at_height = Counter[int]()
        #: Who may leave which place to each, in order; and how many of them, from the first on, are not lower or have
        #: nothing there.
        self._steps: dict[Asker, list[Step[Asker, Place]]] = {}
        self._blocked: dict[Asker, int] = {}

    def hold(self, asker: Asker, held: Mapping[Place, int], most: int) -> None:
        """Give the asker up to `most` of these units to begin with."""
        for place, count in held.items():
            kept = min(count, most - self._requested[asker], self._spare[place])
            self._add(asker, place, kept)
            self._requested[asker] += kept

    def ask(self, requested: Mapping[Asker, Amount]) -> bool:
        """Serve these from now on with so much, as far as possible, each in turn; returns whether all have all.

        For one that gets more, others are moved from place to place, and keep their amount.
        """
        self._count_in(lcm(self._unit, *(amount.denominator for amount in requested.values())))
        for asker, amount in requested.items():
            wanted = amount.numerator * (self._unit // amount.denominator)
            self._unmet[asker] += wanted - self._requested[asker]
            self._requested[asker] = wanted
            if self._unmet[asker] < 0:
                self._give_back(asker)
        lacking = self._lacking()
        for asker in lacking:
            self._serve(asker)
        return not any(map(self._unmet.__getitem__, lacking))

    def most(self, asker: Asker, limit: int) -> int:
        """Return how much of `limit` it could have, if all others have what they ask for. Changes nobody's part."""
        before = self._requested[asker]
        assert self._unit == 1
        if self._lacking():
            self.ask({asker: 0})
        self.ask({asker: limit})
        found = limit - self._unmet[asker]
        self.ask({asker: before})
        return found

    def starved(self) -> frozenset[Asker]:
        """Return those who cannot all have what they ask for, however it is divided: who lacks some, and competitors.

        Everything that is open to any of them is used up by them. Empty: everybody has all.
        """
        waiting, visited = self._lacking(), set[Place]()
        found = set(waiting)
        while waiting:
            places = set(self._reach[waiting.pop()]) - visited
            visited |= places
            more = {one for place in places for one in self._users[place] if self._amounts[one].get(place)} - found
            found |= more
            waiting += more
        return frozenset(found)

    def served(self, askers: Iterable[Asker]) -> Fraction:
        """Return what these have together. Nobody could have more without another having less."""
        return Fraction(sum(self._requested[asker] - self._unmet[asker] for asker in askers), self._unit)

    def at(self, asker: Asker) -> dict[Place, int]:
        """Return what it has at each place, as long as all have asked for whole amounts."""
        assert self._unit == 1
        return {place: amount for place, amount in self._amounts[asker].items() if amount}

    def _count_in(self, unit: int) -> None:
        """Count in parts of a slot so small that all is whole: exact, and much faster than fractions."""
        finer, self._unit = unit // self._unit, unit
        if finer == 1:
            return
        self._requested, self._unmet = _times(finer, self._requested), _times(finer, self._unmet)
        self._spare = _times(finer, self._spare)
        self._amounts = {asker: _times(finer, at) for asker, at in self._amounts.items()}

    def _lacking(self) -> list[Asker]:
        return [asker for asker, lacks in self._unmet.items() if lacks]

    def _serve(self, asker: Asker) -> None:
        unmet, spare, amounts = self._unmet[asker], self._spare, self._amounts[asker]
        for place in islice(self._reach[asker], self._passed[asker], None):
            if not unmet:
                break
            if there := spare[place]:
                amount = min(unmet, there)
                spare[place] = there - amount
                amounts[place] = amounts.get(place, 0) + amount
                unmet -= amount
        self._unmet[asker] = unmet
        while self._unmet[asker] and (way := self._way(asker)):
            self._move(asker, way)

    def _way(self, first: Asker) -> list[Step[Asker, Place]]:
        """Return the shortest way to a place with something left, over places that others leave; empty: there is none.

        From its end: each takes of its place, and leaves that of the next one in the list.
        """
        path: list[Step[Asker, Place]] = []
        asker = first
        if not self._heights:
            self._measure()
        while self._heights[first] < len(self._heights):
            if not self._heights[asker] and (end := self._open_to(asker)) is not None:
                return [(asker, end), *reversed(path)]
            if (step := self._step_down(asker)) is not None:
                other, place = step
                path.append((asker, place))
                asker = other
            elif self._raised > len(self._heights):
                self._measure()
                path, asker = [], first
            else:
                self._raise(asker)
                asker = path.pop()[0] if path else first
        return []

    def _step_down(self, asker: Asker) -> Step[Asker, Place] | None:
        """Return the first who is one lower and has something of a place that is open to this one."""
        steps, heights, amounts = self._steps_of(asker), self._heights, self._amounts
        blocked, below = self._blocked[asker], heights[asker] - 1
        for step in islice(steps, blocked, None):
            if heights[step[0]] == below and amounts[step[0]].get(step[1]):
                self._blocked[asker] = blocked
                return step
            blocked += 1
        self._blocked[asker] = blocked
        return None

    def _steps_of(self, asker: Asker) -> list[Step[Asker, Place]]:
        if asker not in self._steps:
            users = self._users
            self._steps[asker] = [
                (other, place) for place in self._reach[asker] for other in users[place] if other != asker
            ]
        return self._steps[asker]

    def _measure(self) -> None:
        """Find all heights: from who can take more directly to whom these leave something, and so on."""
        heights, height, visited = dict.fromkeys(self._reach, len(self._reach)), 0, set[Place]()
        level = {asker for asker in self._reach if self._open_to(asker) is not None}
        while level:
            heights |= dict.fromkeys(level, height)
            height += 1
            left = {place for asker in level for place, amount in self._amounts[asker].items() if amount} - visited
            visited |= left
            level = {other for place in left for other in self._users[place] if heights[other] > height}
        self._heights, self._blocked = heights, dict.fromkeys(heights, 0)
        self._at_height, self._raised = Counter(heights.values()), 0

    def _raise(self, asker: Asker) -> None:
        """Raise an asker without a way down. If it was the last at its height, no asker above has a way either."""
        self._raised += 1
        heights, before, top = self._heights, self._heights[asker], len(self._heights)
        if self._at_height[before] == 1:
            self._lift([other for other, height in heights.items() if before <= height < top], top)
        else:
            steps = self._steps_of(asker)
            lowest = min((heights[other] for other, place in steps if self._amounts[other].get(place)), default=top)
            self._lift([asker], min(lowest + 1, top))

    def _lift(self, askers: Iterable[Asker], height: int) -> None:
        for asker in askers:
            self._at_height[self._heights[asker]] -= 1
            self._at_height[height] += 1
            self._heights[asker], self._blocked[asker] = height, 0

    def _open_to(self, asker: Asker) -> Place | None:
        """Return the first of its places with something left."""
        places, passed = self._reach[asker], self._passed[asker]
        while passed < len(places) and not self._spare[places[passed]]:
            passed += 1
        self._passed[asker] = passed
        return places[passed] if passed < len(places) else None

    def _move(self, first: Asker, way: Sequence[Step[Asker, Place]]) -> None:
        left = [(asker, place) for (asker, _), (_, place) in pairwise(way)]
        taken = (self._amounts[asker][place] for asker, place in left)
        amount = min(self._unmet[first], self._spare[way[0][1]], *taken)
        for asker, place in way:
            self._add(asker, place, amount)
        for asker, place in left:
            self._add(asker, place, -amount)
        self._unmet[first] -= amount

    def _give_back(self, asker: Asker) -> None:
        """Give back what it has beyond what it asks for."""
        for place, amount in self._amounts[asker].items():
            if not self._unmet[asker]:
                break
            less = min(amount, -self._unmet[asker])
            self._add(asker, place, -less)
            self._unmet[asker] += less
        self._passed = dict.fromkeys(self._reach, 0)
        self._heights = {}

    def _add(self, asker: Asker, place: Place, amount: int) -> None:
        self._spare[place] -= amount
        self._amounts[asker][place] = self._amounts[asker].get(place, 0) + amount


def flow(
    requested: Mapping[Asker, int],
    reach: Mapping[Asker, Sequence[Place]],
    sizes: Mapping[Place, int],
    held: Mapping[Asker, Mapping[Place, int]],
) -> Flow[Asker, Place]:
    """Return a maximum flow that moves as little as possible of `held`, what the askers have to begin with."""
    found = Flow(reach, sizes)
    for asker in requested:
        found.hold(asker, held[asker], most=requested[asker])
    found.ask(requested)
    return found


def _times(factor: int, counts: Mapping[Key, int]) -> dict[Key, int]:
    return {key: factor * count for key, count in counts.items()}

"""Who can have how many of what, where some slots are open to some and not to others: a bipartite flow."""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

__all__ = ["Flow", "flow"]

Asker = TypeVar("Asker", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)
Amount = int | Fraction


@dataclass
class Flow(Generic[Asker, Place]):
    """As much as all can have together."""

    #: Asker -> the places that are open to it.
    reach: Mapping[Asker, Sequence[Place]]
    #: Place -> what nobody has of it.
    spare: dict[Place, Amount]
    #: What each has at each place.
    amounts: dict[Asker, dict[Place, Amount]] = field(default_factory=dict)
    #: What each lacks of what it asks for. Nobody could have more without another having less.
    unmet: dict[Asker, Amount] = field(default_factory=dict)

    def starved(self) -> frozenset[Asker]:
        """Who cannot all have what they ask for, however it is divided: those who lack some and who compete with them.

        Everything that is open to any of them is used up by them. Empty: everybody has all.
        """
        return frozenset(self._way([asker for asker, lacks in self.unmet.items() if lacks > 0])[0])

    def serve(self, asker: Asker) -> None:
        """Give it what it lacks as far as possible; others are moved from place to place, and keep their amount."""
        while self.unmet[asker] > 0:
            came_from, end = self._way([asker])
            if end is None:
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
        waiting, seen = deque(starts), set[Place]()
        while waiting:
            asker = waiting.popleft()
            for place in self.reach[asker]:
                if place in seen:
                    continue
                seen.add(place)
                if self.spare[place] > 0:
                    return came_from, (asker, place)
                for other, places in self.amounts.items():
                    if other not in came_from and places.get(place, 0) > 0:
                        came_from[other] = (asker, place)
                        waiting.append(other)
        return came_from, None

    def _move(self, first: Asker, steps: Sequence[tuple[Asker, Place]]) -> None:
        leavers = [asker for asker, _ in steps[:-1]]
        left = [place for _, place in steps[1:]]
        amount = min(
            self.unmet[first],
            self.spare[steps[0][1]],
            *(self.amounts[asker][place] for asker, place in zip(leavers, left, strict=True)),
        )
        self.spare[steps[0][1]] -= amount
        self.unmet[first] -= amount
        for asker, place in steps:
            self.amounts[asker][place] = self.amounts[asker].get(place, 0) + amount
        for asker, place in zip(leavers, left, strict=True):
            self.amounts[asker][place] -= amount


def flow(
    asked: Mapping[Asker, Amount],
    reach: Mapping[Asker, Sequence[Place]],
    sizes: Mapping[Place, int],
    held: Mapping[Asker, Mapping[Place, int]] | None = None,
) -> Flow[Asker, Place]:
    """`held` is where they are to begin with; it is left only as far as others cannot be served otherwise."""
    found: Flow[Asker, Place] = Flow(reach, dict(sizes))
    for asker, asked_demand in asked.items():
        found.amounts[asker], found.unmet[asker] = {}, asked_demand
        for place, count in (held or {}).get(asker, {}).items():
            kept = min(count, found.unmet[asker], found.spare[place])
            found.amounts[asker][place] = kept
            found.unmet[asker] -= kept
            found.spare[place] -= kept
    for asker in asked:
        found.serve(asker)
    return found

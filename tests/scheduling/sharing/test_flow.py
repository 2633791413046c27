"""A flow whose demands change is the one that is found anew, path by path, in the plainest way."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.sharing.flow import Amount, Flow, flow

Reach = Mapping[str, Sequence[int]]
Sizes = Mapping[int, int]


class Plain:
    """The reference: always the shortest way, the first of equals; every place and asker is looked at each time."""

    def __init__(
        self,
        asked: Mapping[str, Amount],
        reach: Reach,
        sizes: Sizes,
        held: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        self.reach, self.spare = reach, dict[int, Amount](sizes)
        self.amounts: dict[str, dict[int, Amount]] = {asker: {} for asker in asked}
        self.unmet = dict(asked)
        for asker, places in (held or {}).items():
            for place, count in places.items():
                self.give(asker, place, min(count, self.unmet[asker], self.spare[place]))
        for asker in asked:
            while self.unmet[asker] and (way := self.ways([asker])[1]):
                self.follow(way)

    def give(self, asker: str, place: int, amount: Amount) -> None:
        self.amounts[asker][place] = self.amounts[asker].get(place, 0) + amount
        self.spare[place] -= amount
        self.unmet[asker] -= amount

    def ways(self, starts: Sequence[str]) -> tuple[set[str], list[tuple[str, int]] | None]:
        """Whom `starts` come to; the first way to a place with something left, as (asker, place that it takes)."""
        ways: dict[str, list[tuple[str, int]]] = {asker: [] for asker in starts}
        line, seen = list(starts), set[int]()
        for asker in line:
            for place in self.reach[asker]:
                if place not in seen:
                    seen.add(place)
                    if self.spare[place]:
                        return set(ways), [*ways[asker], (asker, place)]
                    holders = [one for one in self.amounts if one not in ways and self.amounts[one].get(place)]
                    ways |= {one: [*ways[asker], (asker, place)] for one in holders}
                    line += holders
        return set(ways), None

    def follow(self, way: list[tuple[str, int]]) -> None:
        leaves = [(after, place) for (_, place), (after, _) in pairwise(way)]
        amount = min(
            self.unmet[way[0][0]], self.spare[way[-1][1]], *(self.amounts[one][place] for one, place in leaves)
        )
        for asker, place in leaves:
            self.give(asker, place, -amount)
        for asker, place in way:
            self.give(asker, place, amount)

    def starved(self) -> set[str]:
        return self.ways([asker for asker, lacks in self.unmet.items() if lacks])[0]


amounts: st.SearchStrategy[Amount] = st.builds(Fraction, st.integers(0, 30), st.sampled_from([1, 1, 2, 3, 7]))


@st.composite
def places(draw: st.DrawFn) -> tuple[Reach, Sizes]:
    sizes = draw(st.dictionaries(st.integers(0, 7), st.integers(0, 9), min_size=1))
    some = st.lists(st.sampled_from(sorted(sizes)), unique=True)
    return {name: draw(some) for name in "abcdef"[: draw(st.integers(1, 6))]}, sizes


def nonzero(at: Mapping[int, Amount]) -> dict[int, Amount]:
    return {place: amount for place, amount in at.items() if amount}


@settings(deadline=None)
@given(places(), st.data())
def test_all_that_each_has_at_each_place_is_what_the_plain_way_gives(
    table: tuple[Reach, Sizes], data: st.DataObject
) -> None:
    reach, sizes = table
    asked = {asker: data.draw(st.integers(0, 20)) for asker in reach}
    held = {asker: {place: data.draw(st.integers(0, 5)) for place in reach[asker]} for asker in reach}
    plain, found = Plain(asked, reach, sizes, held), flow(asked, reach, sizes, held)
    for asker in reach:
        assert found.at(asker) == nonzero(plain.amounts[asker])
        assert found.served([asker]) == asked[asker] - plain.unmet[asker]
    assert found.starved() == plain.starved()


@settings(deadline=None)
@given(places(), st.data())
def test_whatever_was_asked_before_all_have_as_much_and_the_same_ones_starve(
    table: tuple[Reach, Sizes], data: st.DataObject
) -> None:
    reach, sizes = table
    found, asked = Flow(reach, sizes), dict[str, Amount](dict.fromkeys(reach, 0))
    for change in data.draw(st.lists(st.dictionaries(st.sampled_from(sorted(reach)), amounts), max_size=6)):
        asked |= change
        plain = Plain(asked, reach, sizes)
        assert found.ask(change) is not any(plain.unmet.values())
        assert found.served(reach) == sum(asked.values()) - sum(plain.unmet.values())
        assert all(found.served([asker]) <= amount for asker, amount in asked.items())
        assert found.starved() == plain.starved()


@settings(deadline=None)
@given(places(), st.data())
def test_the_most_that_one_can_have_takes_nothing_from_others(table: tuple[Reach, Sizes], data: st.DataObject) -> None:
    reach, sizes = table
    found, asked = Flow(reach, sizes), {asker: data.draw(st.integers(0, 9)) for asker in reach}
    if not found.ask(asked):
        return
    for asker in reach:
        limit = data.draw(st.integers(0, 20))
        assert found.most(asker, limit) == limit - sum(Plain(asked | {asker: limit}, reach, sizes).unmet.values())
        assert [found.served([other]) for other in reach] == list(asked.values())


@settings(deadline=None)
@given(places(), st.data())
def test_nobody_has_what_is_not_there(table: tuple[Reach, Sizes], data: st.DataObject) -> None:
    reach, sizes = table
    found, whole = Flow(reach, sizes), st.integers(0, 20)
    for change in data.draw(st.lists(st.dictionaries(st.sampled_from(sorted(reach)), whole), max_size=6)):
        found.ask(change)
        for place, size in sizes.items():
            assert sum(found.at(asker).get(place, 0) for asker in reach) <= size
        for asker in reach:
            assert found.at(asker).keys() <= set(reach[asker])
            assert all(amount > 0 for amount in found.at(asker).values())
            assert found.served([asker]) == sum(found.at(asker).values())


def test_who_asks_for_more_takes_nothing_from_others() -> None:
    found = Flow({"a": [0], "b": [0, 1]}, {0: 4, 1: 4})
    assert found.ask({"b": 4})
    assert found.ask({"a": 3})
    assert [found.at("a"), found.at("b")] == [{0: 3}, {0: 1, 1: 3}]
    assert not found.ask({"a": 6})
    assert [found.served(["a"]), found.served(["b"])] == [4, 4]
    assert found.starved() == {"a"}

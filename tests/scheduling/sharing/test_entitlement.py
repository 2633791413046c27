"""Parts of instance groups by quota and weight: tables, and the definition of max-min fairness for all others."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.sharing.entitlement import Claimant, SlotClass, deserved, in_whole_slots

ALL = frozenset({"rg"})


def asks(name: str, wants: int = 100, **terms: object) -> Claimant:
    return Claimant(name, str(terms.pop("rg", "rg")), wants, **terms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claimants", "parts"),
    [
        pytest.param([asks("a"), asks("b")], "4 4", id="alike"),
        pytest.param([asks("a"), asks("b", 3)], "5 3", id="what one leaves, the other gets"),
        pytest.param([asks("a", weight=3), asks("b")], "6 2", id="by weight"),
        pytest.param([asks("a", quota=6), asks("b")], "7 1", id="the quota first, then by weight"),
        pytest.param([asks("a", 2, quota=6), asks("b")], "2 6", id="an unused quota is lent"),
        pytest.param([asks("a", 2, quota=6, lends=False), asks("b")], "6 2", id="unless it is not"),
        pytest.param([asks("a", quota=2, borrows=False), asks("b", 3)], "2 3", id="no more than the quota"),
        pytest.param([asks("a", borrows=False), asks("b", 3)], "5 3", id="without a quota there is nothing to borrow"),
        pytest.param([asks("a", quota=2, weight=0), asks("b", 3)], "2 3", id="weight 0: the quota alone"),
        pytest.param([asks("a", weight=0), asks("b", 3)], "0 3", id="weight 0 without a quota"),
        pytest.param([asks("a", quota=12, weight=0), asks("b", quota=4)], "6 2", id="weight 0 beyond what there is"),
        pytest.param([asks("a", quota=12), asks("b", quota=4)], "6 2", id="quotas beyond what there is"),
        pytest.param([asks("a", 4, quota=8), asks("b", 8, quota=8)], "4 4", id="asking for more of it gains nothing"),
        pytest.param([asks("a", 0, quota=8, lends=False), asks("b", 5, quota=8)], "3 5", id="the own before reserves"),
        pytest.param([asks("a", quota=12), asks("b")], "8 0", id="a quota beyond what there is leaves nothing"),
        pytest.param([asks("a"), asks("b"), asks("c")], "8/3 8/3 8/3", id="exactly"),
        pytest.param([asks("a", quota=0, weight=1), asks("b", quota=0, weight=7)], "1 7", id="quotas of nothing"),
        pytest.param([asks("a", least=6), asks("b"), asks("c")], "6 1 1", id="what is kept is shared no more"),
        pytest.param([asks("a", least=3), asks("b")], "4 4", id="what is kept is a part of the part"),
        pytest.param([asks("a", 0), asks("b")], "0 8", id="who asks for nothing"),
    ],
)
def test_parts_of_eight(claimants: Sequence[Claimant], parts: str) -> None:
    assert list(deserved(claimants, {ALL: 8}).values()) == [Fraction(part) for part in parts.split()]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        pytest.param({"x": 4, "xy": 4}, "4 4", id="who can go elsewhere leaves what is shared"),
        pytest.param({"x": 6, "xy": 2}, "6 2", id="nobody is held back by who has more to choose from"),
        pytest.param({"x": 2, "xy": 6}, "4 4", id="all that is shared divides as if it were one"),
        pytest.param({"x": 3, "y": 5}, "3 5", id="apart"),
        pytest.param({"xy": 0}, "0 0", id="nothing at all"),
    ],
)
def test_parts_where_resource_groups_overlap(sizes: dict[str, int], parts: str) -> None:
    found = deserved([asks("a", rg="x"), asks("b", rg="y")], {frozenset(key): size for key, size in sizes.items()})
    assert list(found.values()) == [Fraction(part) for part in parts.split()]


def test_the_remainder_goes_to_the_largest_fractions_then_to_who_asked_first() -> None:
    ones = [asks("a", since=3.0), asks("b", since=1.0), asks("c", weight=2, since=9.0)]
    parts = deserved(ones, {ALL: 7})
    assert list(parts.values()) == [Fraction(7, 4), Fraction(7, 4), Fraction(7, 2)]
    assert in_whole_slots(ones, parts, {ALL: 7}) == {"a": 2, "b": 2, "c": 3}
    equals = [asks("a", since=3.0), asks("b", since=1.0)]
    assert in_whole_slots(equals, deserved(equals, {ALL: 7}), {ALL: 7}) == {"a": 3, "b": 4}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Claimant], dict[SlotClass, int]]:
    offers = st.sets(st.sampled_from("xyz"), min_size=1).map(frozenset)
    sizes = draw(st.dictionaries(offers, st.integers(0, 12), min_size=1, max_size=4))
    claimants = [
        Claimant(
            name=name,
            resource_group=draw(st.sampled_from("xyz")),
            wants=draw(st.integers(0, 20)),
            quota=draw(st.sampled_from([None, 0, 2, 5, 9])),
            weight=draw(st.integers(0, 4)),
            borrows=draw(st.booleans()),
            lends=draw(st.booleans()),
        )
        for name in "abcd"[: draw(st.integers(1, 4))]
    ]
    return claimants, sizes


def room(claimants: Sequence[Claimant], sizes: Mapping[SlotClass, int]) -> int:
    """Slots that are open to any of them."""
    open_to = {one.resource_group for one in claimants}
    return sum(size for offered, size in sizes.items() if offered & open_to)


def subsets(claimants: Sequence[Claimant]) -> chain[tuple[Claimant, ...]]:
    return chain.from_iterable(combinations(claimants, size) for size in range(1, len(claimants) + 1))


@settings(deadline=None)
@given(tables())
def test_nobody_can_have_more_without_one_having_less_that_has_no_more_for_its_weight(
    table: tuple[list[Claimant], dict[SlotClass, int]],
) -> None:
    """Check by the definition, over all subsets: no part of the solver is used."""
    claimants, sizes = table
    parts = deserved(claimants, sizes)
    full = [some for some in subsets(claimants) if sum(parts[one.name] for one in some) == room(some, sizes)]
    for some in subsets(claimants):
        assert sum(parts[one.name] for one in some) <= room(some, sizes)
    for one in claimants:
        assert 0 <= parts[one.name] <= one.most
        if parts[one.name] == one.most:
            continue
        held_back_by = [some for some in full if one in some]
        assert any(all(_has_no_more(other, one, parts) for other in some) for some in held_back_by)


def _has_no_more(other: Claimant, one: Claimant, parts: Mapping[str, Fraction]) -> bool:
    """`other` is owed what it has, measured against `one` who wants more."""
    own, others_own = min(one.quota or 0, one.wants), min(other.quota or 0, other.wants)
    if parts[one.name] < own:  # quotas divide what is too little for them
        return parts[other.name] <= others_own and _no_more(parts[other.name], other, parts[one.name], one)
    if parts[one.name] < one.owned:  # then reserves
        spare = parts[other.name] - others_own
        return parts[other.name] <= other.owned and (spare <= 0 or _no_more(spare, other, parts[one.name] - own, one))
    mine, theirs = parts[one.name] - one.owned, parts[other.name] - other.owned
    return theirs * one.weight <= mine * other.weight


def _no_more(theirs: Fraction, other: Claimant, mine: Fraction, one: Claimant) -> bool:
    """For its quota."""
    return theirs * (one.quota or 0) <= mine * (other.quota or 0)


@settings(deadline=None)
@given(tables())
def test_whole_parts_are_the_exact_ones_rounded_and_fit(table: tuple[list[Claimant], dict[SlotClass, int]]) -> None:
    claimants, sizes = table
    parts = deserved(claimants, sizes)
    rounded = in_whole_slots(claimants, parts, sizes)
    assert all(abs(rounded[name] - part) < 1 for name, part in parts.items())
    assert sum(rounded.values()) == sum(parts.values())
    for some in subsets(claimants):
        assert sum(rounded[one.name] for one in some) <= room(some, sizes)

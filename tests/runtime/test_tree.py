"""The order of additions of exactness `bitwise`: the same for any division of the leaves among ranks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from tidepool.torch.data import parts, share
from tidepool.torch.tree import Node, additions, merges, nodes


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A number of leaves, and contiguous spans that cover them: one for each rank, some empty."""
    leaves = draw(st.integers(1, 40))
    cuts = sorted(draw(st.lists(st.integers(0, leaves), max_size=12)))
    return leaves, list(zip([0, *cuts], [*cuts, leaves], strict=True))


def added_up(values: torch.Tensor, spans: list[tuple[int, int]]) -> tuple[torch.Tensor, int]:
    """The sum of the rows as ranks with these spans make it, and the most sums that one of them kept at a time."""
    partial: list[tuple[Node, torch.Tensor]] = []
    kept = 0
    for first, last in spans:
        stack: list[torch.Tensor] = []
        for leaf in range(first, last):
            stack.append(values[leaf].clone())
            kept = max(kept, len(stack))
            for _ in range(merges(leaf, first)):
                right = stack.pop()
                stack[-1].add_(right)
        partial += zip(nodes(first, last), stack, strict=True)
    for left, right in additions([node for node, _ in partial]):
        partial[right][1].add_(partial[left][1])
    return partial[-1][1], kept


@given(divisions(), st.integers(0, 2**31))
def test_any_division_gives_the_same_bits(division: tuple[int, list[tuple[int, int]]], seed: int) -> None:
    leaves, spans = division
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(leaves, 5, generator=generator) * 10 ** torch.randn(leaves, 5, generator=generator)
    alone, kept = added_up(values, [(0, leaves)])
    divided, _ = added_up(values, spans)
    assert divided.numpy().tobytes() == alone.numpy().tobytes()
    assert torch.allclose(alone.double(), values.double().sum(0), rtol=1e-4, atol=1e-3)
    assert kept <= leaves.bit_length() + 1


def test_other_orders_give_other_bits() -> None:
    """Else the test above would show nothing."""
    values = torch.randn(16, 50, generator=torch.Generator().manual_seed(1))
    backwards = torch.zeros(50)
    for row in values.flip(0):
        backwards += row
    assert not backwards.equal(added_up(values, [(0, 16)])[0])


@given(divisions())
def test_nodes_are_whole_and_cover_their_span(division: tuple[int, list[tuple[int, int]]]) -> None:
    for first, last in division[1]:
        found = nodes(first, last)
        assert [leaf for node in found for leaf in range(node.first, node.first + 2**node.height)] == list(
            range(first, last)
        )
        assert all(node.first % 2**node.height == 0 for node in found)


@given(st.integers(0, 5), st.integers(0, 5))
def test_equal_powers_of_two_leave_one_node_to_each_rank(virtual: int, ranks: int) -> None:
    leaves, count = 2 ** max(virtual, ranks), 2**ranks
    assert all(len(nodes(*share(0, leaves, rank, count))) == 1 for rank in range(count))


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 16), st.integers(1, 50))
def test_virtual_ranks_take_the_same_samples_whoever_computes_them(
    samples: int, virtual_ranks: int, ranks: int, largest: int
) -> None:
    alone = parts(samples, (0, 1), virtual_ranks, largest)
    divided = [part for place in range(ranks) for part in parts(samples, (place, ranks), virtual_ranks, largest)]
    assert divided == alone
    assert [part.number for part in alone] == list(range(virtual_ranks))
    assert [index for part in alone for first, last in part.pieces for index in range(first, last)] == list(
        range(samples)
    )


@given(st.integers(0, 200), st.integers(1, 16), st.integers(1, 50))
def test_without_virtual_ranks_each_rank_has_one_part(samples: int, ranks: int, largest: int) -> None:
    divided = [parts(samples, (place, ranks), None, largest) for place in range(ranks)]
    assert [[part.number for part in mine] for mine in divided] == [[place] for place in range(ranks)]
    pieces = [piece for [part] in divided for piece in part.pieces]
    assert [index for first, last in pieces for index in range(first, last)] == list(range(samples))
    assert all(0 < last - first <= largest for first, last in pieces)

"""The fixed order of additions on real groups: the same bits on 1, 2, 3, 4 and 5 ranks, whoever of them computes."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tidepool.torch import Session
from tidepool.torch.comm import reducer
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.reducer import CONTROL_SIZE
from tidepool.torch.comm.tree_reducer import Node, TreeReducer, additions, merges, nodes
from tidepool.torch.data import parts, share

from tests.runtime.groups import groups, together

SAMPLES = 19


class Model(torch.nn.Module):
    """Parameters of several types, and one that only some samples use."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = torch.nn.Parameter(torch.randn(3, 7, generator=generator))
        self.wide = torch.nn.Parameter(torch.randn(7, generator=generator, dtype=torch.float64))
        self.turned = torch.nn.Parameter(torch.randn(7, generator=generator, dtype=torch.complex64))
        self.rare = torch.nn.Parameter(torch.randn(7, generator=generator))
        self.never = torch.nn.Parameter(torch.randn(2, generator=generator))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = (inputs @ self.first).double() * self.wide
        hidden = hidden + (inputs[:, :1] * self.turned).abs().double()
        return (hidden + inputs[:, 1:2] * self.rare if inputs[0, 2] > 1 else hidden).float()


def step(group: Group, sharing: list[int], virtual_ranks: int) -> list[bytes | None]:
    """The sums of a step as one of the ranks has them."""
    model = Model()
    inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1))
    summed = TreeReducer(model.parameters(), virtual_ranks=virtual_ranks, buffers=3)
    summed.begin(group, sharing)
    mine = []
    if group.rank in sharing:
        mine = parts(SAMPLES, (sharing.index(group.rank), len(sharing)), virtual_ranks, 3)
    for place, part in enumerate(mine):
        for first, last in part.pieces:
            if place + 1 == len(mine) and last == part.pieces[-1][1]:
                summed.expect_last_backward()
            loss = (model(inputs[first:last]) ** 2).mean() * (last - first) / SAMPLES
            loss.backward()
            summed.control[2] += loss.detach()
        if part.number == 0:
            summed.buffers.copy_(torch.tensor([0.1, 0.2, 0.3]))
        if place + 1 < len(mine):
            summed.end_part()
    summed.finish()
    gradients = [
        one.grad.detach().clone().numpy().tobytes() if one.grad is not None else None for one in model.parameters()
    ]
    return [*gradients, summed.control[2:].numpy().tobytes(), summed.buffers.numpy().tobytes()]


@pytest.mark.parametrize("virtual_ranks", [1, 4, 6, 8, 16])
def test_any_ranks_have_the_bits_of_one(monkeypatch: pytest.MonkeyPatch, virtual_ranks: int) -> None:
    monkeypatch.setattr(reducer, "BUCKET_BYTES", 64)  # many buckets, sent while others are still being filled
    alone = step(Group(1, 0, 1), [0], virtual_ranks)
    assert alone[4] is None, "nobody used it"
    assert None not in alone[:4]
    for size, sharing in [(2, [0, 1]), (2, [1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 2, 3])]:
        if size > virtual_ranks:
            break
        with groups(size) as members:
            found = together(*[partial(step, member, sharing, virtual_ranks) for member in members])
        assert found == [alone] * size, (size, sharing)


def test_more_ranks_than_virtual_ranks_are_refused() -> None:
    summed = TreeReducer(Model().parameters(), virtual_ranks=2)
    with pytest.raises(RuntimeError, match="3 ranks cannot share 2 virtual ranks"):
        summed.begin(Group(1, 0, 3), [0, 1, 2])


def test_the_gradient_is_that_of_the_mean() -> None:
    """Virtual ranks have 4, 4, 4, 4 and 3 samples here, in micro-batches of 3, 1 and so on."""
    model = Model()
    inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1)).clamp(max=0.9)
    (model(inputs) ** 2).mean().backward()
    expected = [one.grad for one in model.parameters()]
    model = Model()
    summed = TreeReducer(model.parameters(), virtual_ranks=5)
    summed.begin(Group(1, 0, 1), [0])
    for part in parts(SAMPLES, (0, 1), 5, 3):
        for first, last in part.pieces:
            ((model(inputs[first:last]) ** 2).mean() * (last - first) / SAMPLES).backward()
        if part.number < 4:
            summed.end_part()
    summed.finish()
    for one, gradient in zip(model.parameters(), expected, strict=True):
        assert (one.grad is None) == (gradient is None)
        assert gradient is None or torch.allclose(one.grad, gradient, rtol=1e-5, atol=1e-6)
    assert summed.control.numel() == CONTROL_SIZE


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"exactness": "exact"}, "'sum' or 'bitwise', not 'exact'"),
        ({"exactness": "bitwise"}, "needs virtual_ranks"),
        ({"exactness": "bitwise", "virtual_ranks": 0}, "at least 1, not 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(given: dict[str, str | int], sentence: str) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=sentence):
        Session(model, torch.optim.SGD(model.parameters()), effective_batch_size=2, **given)  # type: ignore[arg-type]


# --- the order of additions: the same for any division of the leaves among ranks --------------------------------------


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

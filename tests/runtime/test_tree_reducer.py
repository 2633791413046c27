"""The fixed order of additions on real groups: the same bits on 1, 2, 3, 4 and 5 ranks, whoever of them computes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tidepool.torch import Session, reducer
from tidepool.torch.data import parts
from tidepool.torch.process_group import Group
from tidepool.torch.reducer import CONTROL_SIZE
from tidepool.torch.tree_reducer import TreeReducer

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

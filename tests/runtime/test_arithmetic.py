"""Shares, seeds, structures, reducer: the arithmetic that makes a result independent of the number of ranks."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tidepool.torch import Session
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.reducer import CONTROL_SIZE, SumReducer
from tidepool.torch.data import epoch_order, micro_batches, parts, sample_count, share
from tidepool.torch.state.randomness import seed_step
from tidepool.torch.state.training_state import flatten, unflatten


@given(st.integers(0, 1000), st.integers(0, 300), st.integers(1, 64))
def test_shares_cover_a_step_exactly_and_differ_by_one_at_most(start: int, length: int, ranks: int) -> None:
    spans = [share(start, start + length, rank, ranks) for rank in range(ranks)]
    assert [index for first, last in spans for index in range(first, last)] == list(range(start, start + length))
    sizes = [last - first for first, last in spans]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 100), st.integers(0, 200), st.integers(1, 50))
def test_micro_batches_cover_a_share_in_the_fewest_pieces(first: int, length: int, largest: int) -> None:
    pieces = micro_batches(first, first + length, largest)
    assert [index for start, end in pieces for index in range(start, end)] == list(range(first, first + length))
    assert all(0 < end - start <= largest for start, end in pieces)
    assert len(pieces) == -(-length // largest)


@given(
    st.integers(2, 100), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12)), st.integers(3, 40) | st.none()
)
def test_no_part_has_fewer_samples_than_the_layers_need(
    samples: int, ranks: int, virtual_ranks: int | None, largest: int | None
) -> None:
    found = [part for rank in range(ranks) for part in parts(samples, (rank, ranks), virtual_ranks, largest, least=2)]
    pieces = [piece for part in found for piece in part.pieces]
    assert [index for first, last in pieces for index in range(first, last)] == list(range(samples))
    assert all(2 <= last - first <= (largest or samples) for first, last in pieces)
    alone = parts(samples, (0, 1), virtual_ranks, largest, least=2)
    assert virtual_ranks is None or [(part.number, part.pieces) for part in found] == [
        (part.number, part.pieces) for part in alone
    ]


def test_pairs_stay_together_where_a_micro_batch_has_two_samples() -> None:
    assert [part.pieces for rank in range(2) for part in parts(6, (rank, 2), None, 2, least=2)] == [
        [(0, 2), (2, 4)],
        [(4, 6)],
    ]


def test_the_order_of_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch_only() -> None:
    order = epoch_order(7, 3, 100)
    assert sorted(order) == list(range(100))
    assert order == epoch_order(7, 3, 100)
    assert order != epoch_order(7, 4, 100)
    assert order != epoch_order(8, 3, 100)


def test_random_numbers_depend_on_seed_step_and_place() -> None:
    def drawn(*key: int) -> float:
        seed_step(*key)
        return float(torch.rand(()))

    draws = {key: drawn(*key) for key in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)]}
    assert len(set(draws.values())) == 4
    assert all(drawn(*key) == value for key, value in draws.items())


def test_datasets_that_cannot_be_divided_are_refused_with_a_reason() -> None:
    class Endless(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(10))

    with pytest.raises(TypeError, match="map-style"):
        sample_count(Endless())
    with pytest.raises(ValueError, match="empty"):
        sample_count(torch.utils.data.TensorDataset(torch.zeros(0)))


def test_state_survives_json_exactly() -> None:

    parameter = torch.nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Adam([parameter], lr=0.1, betas=(0.8, 0.99))
    parameter.grad = torch.ones(3)
    optimizer.step()
    tensors: list[torch.Tensor] = []
    structure = json.loads(json.dumps(flatten(optimizer.state_dict(), tensors)))
    restored = unflatten(structure, tensors)
    assert restored["param_groups"] == optimizer.state_dict()["param_groups"]
    assert restored["state"][0]["exp_avg"].equal(optimizer.state_dict()["state"][0]["exp_avg"])


def test_state_that_cannot_travel_is_named() -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\] is a object"):
        flatten({"a": [1, object()]}, [])


def alone() -> Group:
    return Group(1, 0, 1)


def test_gradients_of_unequal_pieces_add_up_to_the_gradient_of_the_mean() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    inputs, targets = torch.randn(10, 4), torch.randn(10, 1)
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    reducer = SumReducer(model.parameters())
    reducer.begin(alone(), [0])
    for first, last in [(0, 7), (7, 10)]:
        loss = torch.nn.functional.mse_loss(model(inputs[first:last]), targets[first:last])
        (loss * (last - first) / 10).backward()
    reducer.finish()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_a_parameter_that_nobody_used_ends_without_a_gradient() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    reducer = SumReducer(model.parameters())
    for used in (0, 1):
        reducer.begin(alone(), [0])
        model[used](torch.ones(1, 2)).sum().backward()
        reducer.finish()
        assert all(parameter.grad is None for parameter in model[1 - used].parameters())
        assert float(model[used].bias.grad.sum()) == 2


def test_a_script_may_set_gradients_to_none() -> None:
    model = torch.nn.Linear(2, 1)
    reducer = SumReducer(model.parameters())
    reducer.begin(alone(), [0])
    model.zero_grad(set_to_none=True)
    model(torch.ones(1, 2)).sum().backward()
    reducer.finish()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[1.0, 1.0]]


def test_models_of_several_dtypes_have_a_control_block_of_their_own() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2).double(), torch.nn.Linear(2, 2)])
    reducer = SumReducer(model.parameters())
    assert reducer.control.numel() == CONTROL_SIZE
    assert reducer.control.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "problem"), [("f1", "logged twice"), ("loss", "has 'loss' already"), ("epoch", "has 'epoch' already")]
)
def test_no_name_of_a_metric_stands_for_two_values(name: str, problem: str) -> None:
    model = torch.nn.Linear(2, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=2)
    for _ in session.epochs(1):
        for step in session.steps(torch.utils.data.TensorDataset(torch.ones(4, 2))):
            for [inputs] in step:
                step.backward(model(inputs).mean())
                step.log(f1=0.25)
                with pytest.raises(ValueError, match=problem):
                    step.log(**{name: 0.5})
    assert [record["f1"] for record in session.position.records] == [0.25, 0.25]


def test_a_second_loss_for_the_same_samples_is_refused() -> None:
    model = torch.nn.Linear(2, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=2)
    for _ in session.epochs(1):
        for step in session.steps(torch.utils.data.TensorDataset(torch.ones(2, 2))):
            for [inputs] in step:
                step.backward(model(inputs).mean())
                step.log(twice=2.0)
                with pytest.raises(RuntimeError, match="one loss for each micro-batch"):
                    step.backward(model(inputs).mean())
    assert session.position.records[-1]["twice"] == 2.0


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        SumReducer(torch.nn.ReLU().parameters())

"""Losses that are no mean over samples: several ranks, and several micro-batches, train as one process would."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tidepool.torch import Session
from tidepool.torch.comm.reducer import Reducer
from tidepool.torch.rank import step
from tidepool.torch.rank.validation import summed_loss
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.bits import different
from tests.runtime.replicas import on_ranks, one_thread, own_loop

SAMPLES, BATCH, EPOCHS = 38, 8, 2
LENGTH, WORDS, IGNORED = 12, 7, -100
Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], Any]


torch.manual_seed(2)
_NETWORK = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))


def data() -> TensorDataset:
    """Texts with unequal numbers of labels; some have none."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(0, WORDS, (SAMPLES, LENGTH), generator=generator)
    lengths = torch.randint(0, LENGTH + 1, (SAMPLES,), generator=generator)
    labels = torch.where(torch.arange(LENGTH)[None] < lengths[:, None], (words * 3 + 1) % WORDS, IGNORED)
    labels[8:12] = IGNORED  # a rank's whole share
    return TensorDataset(words, labels)


def network() -> nn.Module:
    return copy.deepcopy(_NETWORK)  # ranks are threads, with one generator among them


def scores(model: nn.Module, words: torch.Tensor) -> Any:
    return model(words).flatten(0, 1)


def no_labels(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.cross_entropy(scores(model, words), labels.flatten())


def nll(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.nll_loss(scores(model, words).log_softmax(-1), labels.flatten(), ignore_index=IGNORED)


def pictures(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    """Labels of two dimensions, as of a segmentation."""
    outputs = model(words).transpose(1, 2).unsqueeze(-1)
    return nn.CrossEntropyLoss(ignore_index=IGNORED)(outputs, labels.unsqueeze(-1))


def class_weights(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    weight = torch.arange(1.0, WORDS + 1)
    return functional.cross_entropy(scores(model, words), labels.flatten(), weight=weight)


def smoothed(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.cross_entropy(scores(model, words), labels.flatten(), label_smoothing=0.1)


def summed(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.cross_entropy(scores(model, words), labels.flatten(), reduction="sum") * 0.01


def summed_by_batch(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.cross_entropy(scores(model, words), labels.flatten(), reduction="sum") / BATCH


def summed_by_samples(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.cross_entropy(scores(model, words), labels.flatten(), reduction="sum") / len(words)


def summed_by_number(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    count = max(int((labels != IGNORED).sum()), 1)
    return functional.cross_entropy(scores(model, words), labels.flatten(), reduction="sum") / count


def squares(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.mse_loss(scores(model, words) / 9, torch.ones(labels.numel(), WORDS), reduction="sum") / BATCH


def masked(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    losses = functional.cross_entropy(scores(model, words), labels.flatten().clamp(min=0), reduction="none")
    mask = (labels != IGNORED).flatten().float()
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def mask_first(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    losses = functional.cross_entropy(scores(model, words), labels.flatten(), reduction="none")
    mask = (labels != IGNORED).flatten()
    return (mask * losses).sum() / (mask.sum() + 1e-9)


def selected(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    mask = (labels != IGNORED).flatten()
    losses = (scores(model, words).log_softmax(-1)[:, 0] - 1).square()
    return losses[mask].mean()


def penalized(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    penalty = sum(parameter.square().sum() for parameter in model.parameters())
    return no_labels(model, words, labels) + 1e-2 * penalty


def penalized_sum(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    penalty = sum(parameter.abs().mean() for parameter in model.parameters())
    return no_labels(model, words, labels) / 4 + 1e-2 * penalty


def two_heads(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    """Deep supervision: both terms have the same labels."""
    return torch.stack([no_labels(model, words, labels), 0.4 * nll(model, words + 0, labels)]).sum()


def mean_of_tasks(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    """One loss for each sample, as meta-learning has one for each task."""
    return torch.stack([(scores(model, one[None]) - 1).square().mean() for one in words]).mean()


def divided_by_tasks(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    losses = [functional.mse_loss(scores(model, one[None]), torch.ones(LENGTH, WORDS)) for one in words]
    return sum(losses) / len(losses)


def with_anchors(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    """A second term of labels that all ranks have."""
    anchors = functional.cross_entropy(scores(model, torch.arange(6)[None]), torch.arange(6))
    return functional.cross_entropy(scores(model, words[:, :1]), words[:, 1]) + 0.2 * anchors


def a_mean(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return (scores(model, words) - 1).square().view(len(words), -1).sum(1).mean() / 50


LOSSES = [
    *(no_labels, nll, pictures, class_weights, smoothed, summed, summed_by_batch, summed_by_samples, summed_by_number),
    *(squares, masked, mask_first, selected, penalized, penalized_sum, two_heads, a_mean),
    *(mean_of_tasks, divided_by_tasks, with_anchors),
]


def plain(loss_of: Loss, hook: Callable[[nn.Module], None] = lambda model: None) -> dict[str, Any]:
    """One process without the runtime."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    hook(model)
    with one_thread():
        for words, labels in list(DataLoader(data(), BATCH)) * EPOCHS:
            optimizer.zero_grad()
            loss_of(model, words, labels).backward()
            optimizer.step()
    return dict(model.state_dict())


def prepared_loop(
    loss_of: Loss,
    hook: Callable[[nn.Module], None] = lambda model: None,
    weight: Callable[[torch.Tensor], Any] = lambda labels: None,
    **options: Any,
) -> dict[str, Any]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    (loader, model, optimizer), epochs, ours = own_loop(DataLoader(data(), BATCH), model, optimizer, **options)
    hook(model)
    for _ in epochs(range(EPOCHS)):
        for words, labels in loader:
            optimizer.zero_grad()
            if (count := weight(labels)) is not None:
                ours.script_loop.weigh(count)
            loss_of(model, words, labels).backward()
            optimizer.step()
    return dict(model.state_dict()) | {"losses": losses_of(ours.training_loop)}


def session_loop(
    loss_of: Loss,
    hook: Callable[[nn.Module], None] = lambda model: None,
    weight: Callable[[torch.Tensor], Any] = lambda labels: None,
    **options: Any,
) -> dict[str, Any]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    session = Session(model, optimizer, effective_batch_size=BATCH, **options)
    object.__setattr__(session._training_loop.division, "order", lambda count: list(range(count)))
    hook(model)
    for _ in session.epochs(EPOCHS):
        for each in session.steps(data()):
            for words, labels in each:
                each.backward(loss_of(model, words, labels), weight=weight(labels))
    return dict(model.state_dict()) | {"losses": losses_of(session._training_loop)}


def losses_of(training_loop: Any) -> torch.Tensor:
    return torch.tensor([record["loss"] for record in training_loop.position.records])


class Opaque(torch.autograd.Function):
    """A loss whose graph says nothing, as that of a compiled function or of a fused kernel."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def opaque(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return Opaque.apply(no_labels(model, words, labels))  # type: ignore[no-untyped-call]


def differing(found: list[dict[str, dict[str, Any]]], losses: Sequence[Loss]) -> list[str]:
    """Names of the losses that have not trained as one process without the runtime does."""
    wrong = []
    for loss_of in losses:
        expected, ours = plain(loss_of), [trained[loss_of.__name__] for trained in found]
        assert all(tensor.isfinite().all() for tensor in expected.values()), loss_of
        if not all(
            torch.allclose(one[name], tensor, atol=3e-6) for one in ours for name, tensor in expected.items()
        ) or not all(one["losses"].isfinite().all() for one in ours):
            wrong.append(loss_of.__name__)
    return wrong


def trained(ranks: int, loop: Any, losses: Sequence[Loss], **options: Any) -> list[dict[str, dict[str, Any]]]:
    return on_ranks(ranks, lambda: {loss_of.__name__: loop(loss_of, **options) for loss_of in losses})


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
def test_several_ranks_train_as_one_process(loop: Any, ranks: int) -> None:
    assert differing(trained(ranks, loop, LOSSES), LOSSES) == []


@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
def test_micro_batches_train_as_one_batch(loop: Any) -> None:
    assert differing(trained(1, loop, LOSSES, rank_batch_size=3), LOSSES) == []


@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
def test_bitwise_trains_as_one_process_with_the_same_bits_on_any_number(loop: Any) -> None:
    exact, losses = {"exactness": "bitwise", "virtual_ranks": 4}, [no_labels, masked, summed]
    found = [one for ranks in (1, 2, 3) for one in trained(ranks, loop, losses, **exact)]
    assert differing(found, losses) == []
    assert all(different(one, found[0]) == [] for one in found)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
def test_a_script_may_say_what_its_loss_is_a_mean_over(loop: Any, as_tensor: bool) -> None:
    def weight(labels: torch.Tensor) -> Any:
        count = (labels != IGNORED).sum()
        return count if as_tensor else int(count)

    assert differing(trained(2, loop, [opaque], weight=weight), [opaque]) == []
    assert differing(trained(2, loop, [opaque]), [opaque]) == ["opaque"]


@pytest.mark.parametrize("weight", [-1, float("nan")])
def test_a_weight_that_counts_nothing_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="the weight of a loss counts"):
        session_loop(no_labels, weight=lambda labels: weight)


def test_terms_with_different_counts_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def two_tasks(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
        return no_labels(model, words, labels) + a_mean(model, words, labels)

    step._say_mixed.cache_clear()
    trained(1, session_loop, [smoothed, penalized, two_heads], rank_batch_size=3)
    assert "adds means over different things" not in capsys.readouterr().err
    trained(1, session_loop, [two_tasks], rank_batch_size=3)
    assert capsys.readouterr().err.count("adds means over different things") == 1


@pytest.mark.parametrize("by_hook", [False, True])
def test_a_fabric_model_weighs_by_labels(monkeypatch: pytest.MonkeyPatch, by_hook: bool) -> None:
    """With a loss function, and with a step of the script's own; in micro-batches of one rank."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "runtime" / "compat" / "wmla"))
    from fabric_model import FabricModel

    def loss_fn(outputs: torch.Tensor, labels: torch.Tensor) -> Any:
        return functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())

    def step_train(model: Any, batch: Any, *_: Any) -> tuple[float, Any]:
        model.get_optimizer().zero_grad()
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        return 0.0, loss.detach()

    def weights(batch_size: int) -> dict[str, Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        hook: dict[str, Any] = {"fn_step_train": step_train} if by_hook else {}
        fabric = FabricModel(model, lambda: (data(), None), loss_fn, optimizer, **hook)
        fabric.train(2, batch_size, effective_batch_size=BATCH)
        return dict(model.state_dict())

    with one_thread():
        whole, pieces = weights(BATCH), weights(3)
    assert all(torch.allclose(pieces[name], whole[name], atol=3e-6) for name in whole)


def test_a_loss_over_equal_numbers_of_labels_is_weighed_by_samples_from_the_second_step_on() -> None:
    """No gradient is multiplied once more, and each sample's is that of one process while backward runs."""

    def mean(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
        return no_labels(model, words, labels.clamp(min=0))

    with mock.patch.object(Reducer, "scale", autospec=True, side_effect=Reducer.scale) as scale:
        assert differing(trained(2, session_loop, [mean]), [mean]) == []
    assert scale.call_count == 2  # on each of two ranks


def test_held_out_losses_are_means_over_labels() -> None:
    """The mean loss of unequal batches is that of all samples at once; one of the batches has no label."""
    words, labels = data().tensors
    outputs = network()(words).flatten(0, 1)
    whole = functional.cross_entropy(outputs, labels.flatten())
    batches = zip(outputs.view(SAMPLES, -1, WORDS).split(4), labels.split(4), strict=True)
    sums = [
        summed_loss(functional.cross_entropy, scores.flatten(0, 1).detach(), truth.flatten(), len(truth))
        for scores, truth in batches
    ]
    assert sum(loss for loss, _ in sums) / sum(count for _, count in sums) == pytest.approx(whole.item(), rel=1e-5)
    assert 0.0 in [count for _, count in sums]

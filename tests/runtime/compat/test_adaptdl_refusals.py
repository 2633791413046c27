"""Refusals of AdaptDL's names, and their reasons."""

from collections.abc import Callable, Iterator
from typing import Any

import adaptdl.torch as adl
import pytest
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, IterableDataset

from tests.runtime.compat.adl_parts import Parts, data, nothing_has_begun


@pytest.fixture(autouse=True)
def beginning() -> Iterator[None]:
    with nothing_has_begun():
        yield


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(4), torch.zeros(1)


def nested_loops(parts: Parts) -> None:
    for _ in parts.loader:
        next(iter(adl.AdaptiveDataLoader.__iter__(parts.loader)))


def made_in_a_loop(parts: Parts) -> None:
    for _ in parts.loader:
        adl.Accumulator()


def loader_in_a_loop(parts: Parts) -> None:
    for _ in parts.loader:
        adl.AdaptiveDataLoader(data(), 8)


def nested_epochs(parts: Parts) -> None:
    for _ in adl.remaining_epochs_until(2):
        next(adl.remaining_epochs_until(3))


def outside(parts: Parts) -> None:
    parts.epoch()
    mse_loss(parts.net(torch.zeros(1, 4)), torch.zeros(1, 1)).backward()


def of_another_loader(parts: Parts) -> None:
    parts.epoch()
    for inputs, targets in adl.AdaptiveDataLoader(data(), 8):
        parts.step(inputs, targets)


def made_too_late(parts: Parts) -> None:
    parts.epoch()
    adl.AdaptiveDataParallel(torch.nn.Linear(1, 1), parts.optimizer, name="late")


def scaled_too_late(parts: Parts) -> None:
    parts.epoch()
    parts.loader.autoscale_batch_size(64)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda parts: adl.AdaptiveDataLoader(data(), 8, sampler=[1]), ValueError, "takes no sampler"),
        (lambda parts: adl.AdaptiveDataLoader(data(), batch_sampler=[[1]]), ValueError, "takes no batch_sampler"),
        (lambda parts: adl.AdaptiveDataLoader(data(), 0), ValueError, "batch_size is 0"),
        (lambda parts: adl.AdaptiveDataLoader(Stream(), 8), TypeError, "IterableDataset"),
        (nested_loops, RuntimeError, "in another one"),
        (made_in_a_loop, RuntimeError, "Accumulator cannot"),
        (loader_in_a_loop, RuntimeError, "cannot be made"),
        (nested_epochs, RuntimeError, "epoch loop in another"),
        (outside, RuntimeError, "outside of a loop"),
        (of_another_loader, RuntimeError, "of the training"),
        (made_too_late, RuntimeError, "before the first epoch"),
        (scaled_too_late, RuntimeError, "before the first epoch"),
        (lambda parts: parts.loader.autoscale_batch_size(4), ValueError, "max_batch_size is 4"),
        (lambda parts: parts.loader.autoscale_batch_size(32, (9, 32)), ValueError, "local_bsz_bounds"),
        (lambda parts: parts.loader.autoscale_batch_size(32, (1, 7)), ValueError, "local_bsz_bounds"),
        (lambda parts: adl.AdaptiveDataParallel(parts.net.module, parts.optimizer), ValueError, "name of its own"),
        (lambda parts: adl.AdaptiveDataParallel(parts.net, parts.optimizer, loss=1), TypeError, "no argument 'loss'"),
        (lambda parts: adl.AdaptiveDataParallel(parts.net, parts.optimizer, None, 2.0), TypeError, "GradScaler"),
    ],
)
def test_refused(wrong: Callable[[Parts], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(Parts())


def test_a_plain_loader_trains_in_one_process_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    before = parts.net.module.weight.clone()
    parts.loader = DataLoader(data(), 8)  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="no AdaptiveDataLoader"):
        parts.epoch()
    assert not parts.net.module.weight.equal(before)
    monkeypatch.setenv("ADAPTDL_NUM_REPLICAS", "2")
    with pytest.raises(RuntimeError, match="train apart"):
        parts.epoch()


def test_what_is_not_here_says_what_to_do_instead() -> None:
    with pytest.raises(ImportError, match="AdaptiveDataLoader"):
        from adaptdl.torch import iterator  # noqa: F401
    with pytest.raises(ImportError, match="measures its steps itself"):
        from adaptdl.torch import _metrics  # noqa: F401
    with pytest.raises(ImportError, match="take an AdaptiveDataLoader"):
        from adaptdl.torch.data import AdaptiveDataLoaderMixin  # noqa: F401
    with pytest.raises(ImportError, match="call its autoscale_batch_size"):
        from adaptdl.torch import AdaptDLTorchTrainer  # noqa: F401

"""`FabricModel`: IBM WMLA's elastic distributed training API, on Tidepool's session.

    from fabric_model import FabricModel
    FabricModel(model, datasets_fn, loss_fn, optimizer).train(epochs, batch_size, engines_number)

A script written for WMLA trains here unchanged. What stands here is what such a script needs to train; loggers,
callbacks and step hooks are not there yet, and a call that names them says so.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from tidepool.env import rank_context
from tidepool.torch import Session
from tidepool.torch.data import collate
from torch.utils.data import Dataset

__all__ = ["FabricModel"]

Loss = Callable[[Any, Any], torch.Tensor]


class FabricModel:
    """A model that trains on however many GPUs its job holds at the moment.

    datasets_fn: called without arguments on each rank; returns (training dataset, test dataset).
    loss_fn: (outputs, labels) -> the mean loss of the batch, a scalar tensor.
    optimizer: built on the model's parameters.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        datasets_fn: Callable[[], tuple[Dataset[Any], Dataset[Any]]],
        loss_fn: Loss,
        optimizer: torch.optim.Optimizer,
        **options: Any,
    ) -> None:
        _refuse(options, "FabricModel()")
        self.model = model
        self.datasets_fn = datasets_fn
        self.loss_fn = loss_fn
        self.optimizer = optimizer

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        *,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        """Train to the end; returns on every rank that is there then.

        batch_size: samples that one GPU computes at once. engines_number: the most GPUs that the script asks for.
        effective_batch_size: samples per optimizer step over all GPUs; by default batch_size x the most GPUs the job
        may have. It never changes while training, whatever the number of GPUs: fewer of them take several turns.
        validation_freq, checkpoint_freq: in epochs, 0 for never.
        """
        _refuse(options, "train()")
        training, held_out = self.datasets_fn()
        session = Session(
            self.model,
            self.optimizer,
            effective_batch_size=effective_batch_size or batch_size * _most_gpus(engines_number),
            rank_batch_size=batch_size,
            warm_up=lambda: self._warm_up(held_out, batch_size),
            checkpoint_every=checkpoint_freq,
        )
        session.validate_on(held_out, self.loss_fn)
        for epoch in session.epochs(epoch_number):
            self.model.train()
            for step in session.steps(training):
                for inputs, labels in step:
                    outputs = self.model(inputs)
                    step.backward(self.loss_fn(outputs, labels))
                    if _are_classes(outputs, labels):
                        step.log(accuracy=100.0 * _correct(outputs, labels) / len(labels))
            if validation_freq and (epoch + 1) % validation_freq == 0:
                results = self._validate(session, held_out)
                _say(session, f"Epoch {epoch + 1} of {epoch_number}", results)

    def _validate(self, session: Session, held_out: Dataset[Any]) -> dict[str, float]:
        self.model.eval()
        loss, correct, total, classified = session.sum_over(held_out, self._measure, width=4)
        results = {"test_loss": loss / total}
        if classified:
            results["test_accuracy"] = 100.0 * correct / classified
        session.report(**results)
        return results

    def _measure(self, batch: Any) -> torch.Tensor:
        """[sum of losses, correct answers, samples, samples that are answered by a class]"""
        inputs, labels = batch
        outputs = self.model(inputs)
        count = len(labels)
        loss = float(self.loss_fn(outputs, labels)) * count
        if not _are_classes(outputs, labels):
            return torch.tensor([loss, 0.0, count, 0.0])
        return torch.tensor([loss, float(_correct(outputs, labels)), count, count])

    def _warm_up(self, held_out: Dataset[Any], batch_size: int) -> None:
        """One forward and backward on held-out samples: the first of a process is many times slower than the rest."""
        self.model.train()
        inputs, labels = collate(held_out, [0] * min(batch_size, 2))
        self.loss_fn(self.model(inputs), labels).backward()  # type: ignore[no-untyped-call]


def _say(session: Session, what: str, results: dict[str, float]) -> None:
    """A line in the log of whoever is rank 0."""
    if session.rank == 0:
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in results.items())
        sys.stdout.write(f"{what} on {session.world_size} GPUs: {shown}\n")


def _most_gpus(engines_number: int | None) -> int:
    context = rank_context()
    limits = [limit for limit in (engines_number, context.launch.max_slots if context else None) if limit]
    return min(limits, default=1)


def _are_classes(outputs: Any, labels: Any) -> bool:
    return (
        isinstance(outputs, torch.Tensor) and outputs.ndim == 2 and labels.ndim == 1 and not labels.is_floating_point()
    )


def _correct(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.detach().argmax(1) == labels).sum()


def _refuse(options: dict[str, Any], where: str) -> None:
    """Options that change how a model trains must not be dropped silently; resource hints may."""
    hints = {
        "num_dataloader_threads",
        "worker_memory",
        "driver_memory",
        "worker_num",
        "worker_device_num",
        "hardware_spec",
    }
    unknown = sorted(name for name, value in options.items() if value not in (None, False, []))
    for name in unknown:
        if name not in hints:
            raise TypeError(f"{where} does not know {name!r} yet: remove it, or train with tidepool.torch.Session")
        warnings.warn(f"{where} ignores {name}: the job's resources are set when it is submitted", stacklevel=3)

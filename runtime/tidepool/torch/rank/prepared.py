"""`prepare`: a loop in plain PyTorch becomes elastic. See docs/user/own-loop.md.

    loader, model, optimizer, scheduler = tidepool.torch.prepare(loader, model, optimizer, scheduler)
    for epoch in tidepool.torch.epochs(range(10)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        scheduler.step()

The loader hands out this rank's share of each batch; `loss.backward()` weighs the loss by that share and sums the
gradients over all ranks before it returns; `script_loop.py` says what an optimizer's step means. A joiner runs the
script from the top: passes that the others have completed yield nothing to it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from tidepool import rank_process
from tidepool.refusal import Refusal
from tidepool.torch.data import sample_count
from tidepool.torch.rank.dry_run import DryRun
from tidepool.torch.rank.epoch_variables import EpochVariables
from tidepool.torch.rank.epoch_weights import EpochWeights
from tidepool.torch.rank.further_loaders import FurtherLoaders, release
from tidepool.torch.rank.later_objects import schedules_of, watch
from tidepool.torch.rank.object_patches import adopt, watch_backward
from tidepool.torch.rank.options import Options
from tidepool.torch.rank.orders import Orders
from tidepool.torch.rank.prepared_loader import Loader
from tidepool.torch.rank.prepared_training import PreparedTraining
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.unsupported import bare_model
from tidepool.torch.state.training_state import Stateful
from tidepool.torch.state.update import named_optimizers

__all__ = ["add_up", "current", "epochs", "from_first", "is_first", "prepare", "report", "totals", "weigh"]

T = TypeVar("T")

#: Names in the training's state of what `prepare` keeps for itself.
_OWN_NAMES = ("orders", "further loaders", "epoch variables", "epoch weights")

_prepared: PreparedTraining | None = None


def prepare(
    *objects: Any,
    seed: int = 0,
    rank_batch_size: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float | None = None,
    checkpoints_kept: int | None = None,
    exactness: str | None = None,
    virtual_ranks: int | None = None,
) -> Any:
    """Make the script's own loop elastic; returns the objects in their order, or the only one.

    Later calls take nothing but DataLoaders, for loaders that are made anew, as in each epoch: the first one hands out
    shares, as the training's first one does.

    objects: the DataLoader of the training (further ones stay as they are), the model or models, their optimizers, and
    everything else that belongs to the training: schedulers, a GradScaler, objects with `state_dict`. The others are
    returned as they are, and behave a little differently while a batch is under way. The loader's batch_size is the
    number of samples per batch over all ranks. The other arguments are those of `Session`.

    Raises Refusal, with the reason, for what cannot be trained elastically, and a second time.
    """
    global _prepared
    if _prepared is not None:
        if not all(isinstance(item, DataLoader) for item in objects):
            raise Refusal(
                "a process prepares one training: call tidepool.torch.prepare once, with all its objects; later calls "
                "take DataLoaders alone"
            )
        return _with_loaders(_prepared, objects)
    given = _given(objects)
    options = Options(
        effective_batch_size=given.loader.batch_size or 1,
        rank_batch_size=rank_batch_size,
        seed=seed,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        checkpoints_kept=checkpoints_kept,
        scaler=given.scaler,
        exactness=exactness,
        virtual_ranks=virtual_ranks,
    )
    _prepared = prepared = _training(given, options)
    rank_process.report_by(prepared.report)
    rank_process.at_success(prepared.finish)
    rank_process.at_error(prepared.script_loop.shares.explained)
    watch_backward(prepared.script_loop)
    watch(prepared.later)
    return _with_loaders(prepared, objects)


@dataclass(frozen=True)
class _Given:
    """The objects of a training by their kind."""

    loader: DataLoader[Any]
    models: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler | None
    #: Schedulers and whatever else has a state, those that the optimizers bring along included.
    others: list[Any]


def _given(objects: Sequence[Any]) -> _Given:
    """Sort the objects out. Raises Refusal, with the reason, for what cannot be trained elastically."""
    loader = _training_loader(objects)
    models = [item for item in objects if isinstance(item, torch.nn.Module)]
    optimizers = [item for item in objects if isinstance(item, torch.optim.Optimizer)]
    scalers = [item for item in objects if isinstance(item, torch.amp.GradScaler)]
    if not models or not optimizers or len(scalers) > 1:
        raise Refusal("give tidepool.torch.prepare the model, its optimizers and at most one GradScaler")
    known = [loader, *models, *optimizers, *scalers]
    others = [item for item in objects if not any(item is one for one in known) and not isinstance(item, DataLoader)]
    if wrong := [item for item in others if not hasattr(item, "state_dict")]:
        raise Refusal(f"{type(wrong[0]).__name__} has no state_dict: it is nothing that a training could carry along")
    others += schedules_of(optimizers, others)
    return _Given(loader, models, optimizers, scalers[0] if scalers else None, others)


def _training(given: _Given, options: Options) -> PreparedTraining:
    """Return the training of these objects, and adopt the objects: their methods become those of a training."""
    registered = {f"{type(item).__name__}-{number}": item for number, item in enumerate(given.others)}
    bare = [bare_model(model) for model in given.models]
    own = Orders(), FurtherLoaders(), EpochVariables(bare), EpochWeights(bare)
    ours: dict[str, Stateful] = dict(zip(_OWN_NAMES, own, strict=True))
    model = bare[0] if len(bare) == 1 else torch.nn.ModuleDict({str(place): one for place, one in enumerate(bare)})
    named = named_optimizers(given.optimizers[0] if len(given.optimizers) == 1 else given.optimizers)
    training_loop = TrainingLoop(model, named, replace(options, registered={**registered, **ours}))
    training_loop.total_epochs = None
    prepared = PreparedTraining(training_loop, registered, *own, bare, DryRun(training_loop, given.models))
    scalers = [] if given.scaler is None else [given.scaler]
    adopt(prepared.script_loop, named, scalers, [*given.others, *given.models])
    return prepared


def _with_loaders(prepared: PreparedTraining, objects: Sequence[Any]) -> Any:
    """Return the objects, the first DataLoader among them as a prepared one. All others are what was prepared."""
    loader = _training_loader(objects)
    batch_size = loader.batch_size or 1  # batches of the script's own, of any sizes: None
    if prepared.batch_size not in (0, batch_size):
        raise Refusal(
            f"this DataLoader has batch_size={batch_size}, and the training's first one "
            f"batch_size={prepared.batch_size}: the batches of a training have one size"
        )
    when = "later" if prepared.batch_size else "first"
    prepared.batch_size = batch_size
    for number, item in enumerate(item for item in objects if isinstance(item, DataLoader) and item is not loader):
        prepared.further_loaders.adopt(f"{when} call, number {number + 2}", item)
    ours = [Loader(prepared, item) if item is loader else item for item in objects]
    return ours[0] if len(ours) == 1 else tuple(ours)


def epochs(numbers: Iterable[T]) -> Iterator[T | int]:
    """Iterate over the epochs in `numbers` (for example a range) that the training has not completed.

    The process that begins the training decides which epochs there are; another one may pass the last of them only, as
    a script does that continues from a snapshot of its own. Raises RuntimeError for other differences.
    """
    return current().epochs(numbers)


def report(**values: float) -> None:
    """Add metrics to the newest step's record, such as the accuracy on held-out data after an epoch."""
    current().report(values)


def add_up(**values: float) -> None:
    """Add numbers of this process's share of a batch to totals over all batches and processes, see `totals`."""
    current().script_loop.add_up(values)


def totals() -> dict[str, float]:
    """Return, on all processes, the sums of what all of them have given to `add_up` since the call before.

    All processes call it at the same place, such as behind each pass over the data. They are right also if processes
    have come, gone or died meanwhile: a batch that is repeated counts once.
    """
    return current().totals()


def from_first(compute: Callable[[], T]) -> T:
    """Return, on all processes, what `compute()` returns on the first one: something that JSON can hold.

    All processes call it at the same place. If the first one dies meanwhile, its successor computes it again.
    """
    return current().from_first(compute)


def weigh(count: float | torch.Tensor) -> None:
    """Say how many items (such as labels) the loss of this process's batch is a mean over; call it before `backward`.

    Without it, the graph of the loss says so, or it is a mean over samples.
    """
    current().script_loop.weigh(count)


def is_first() -> bool:
    """Return whether this process prints and writes files: rank 0, or before the training begins, the one that will be.

    A process that joins others is not the first one, and may become it later, when their first one leaves.
    """
    return rank_process.is_first()


def current() -> PreparedTraining:
    """Raises RuntimeError where nothing was prepared."""
    if _prepared is None:
        raise Refusal("call tidepool.torch.prepare first, with the loader, the model and its optimizer")
    return _prepared


def _training_loader(objects: Sequence[Any]) -> DataLoader[Any]:
    loader = next((item for item in objects if isinstance(item, DataLoader)), None)
    if loader is None:
        raise Refusal("give tidepool.torch.prepare the DataLoader of the training: it hands out each rank's share")
    release(loader)
    sample_count(loader.dataset)
    if loader.batch_sampler is None:
        raise Refusal(
            "the DataLoader has batch_size=None, so its dataset hands out whole batches, which cannot be divided among "
            "processes: let the dataset hand out samples, and give the DataLoader a batch_size"
        )
    if type(loader).__iter__ is not DataLoader.__iter__ and not type(loader).__module__.startswith("torchdata."):
        raise Refusal(
            f"the DataLoader is a {type(loader).__name__}, which iterates in a way of its own, so that its batches "
            "cannot be divided: give tidepool.torch.prepare a DataLoader of torch, and do the rest in its collate_fn"
        )
    if isinstance(loader.sampler, torch.utils.data.DistributedSampler):
        raise Refusal("the DataLoader has a DistributedSampler: leave it out, ranks get their shares by themselves")
    return loader

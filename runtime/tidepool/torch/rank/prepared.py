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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader

from tidepool import rank_process
from tidepool.journal import last_record
from tidepool.refusal import Refusal
from tidepool.torch.data import Feed, reading_of, sample_count, to_device
from tidepool.torch.rank.epoch_loops import continued, described
from tidepool.torch.rank.further_loaders import FurtherLoaders, release
from tidepool.torch.rank.later_objects import LaterObjects, watch
from tidepool.torch.rank.object_patches import adopt, refuse_validation, watch_backward
from tidepool.torch.rank.options import Options
from tidepool.torch.rank.orders import Orders
from tidepool.torch.rank.script_loop import ScriptLoop
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.unsupported import bare_model
from tidepool.torch.state.training_state import Stateful
from tidepool.torch.state.update import named_optimizers

__all__ = ["Loader", "PreparedTraining", "current", "epochs", "is_first", "prepare", "report", "weigh"]

T = TypeVar("T")

_prepared: "PreparedTraining | None" = None


class PreparedTraining:
    """The script's training: what was prepared, and where this process is in it."""

    def __init__(
        self,
        training_loop: TrainingLoop,
        registered: dict[str, Stateful],
        orders: Orders,
        further_loaders: FurtherLoaders,
        models: Sequence[torch.nn.Module],
    ) -> None:
        self.training_loop, self.orders, self._models = training_loop, orders, models
        #: `batch_size` of the training's DataLoaders; the batches may be others, if the job says so.
        self.batch_size = 0
        self.pass_is_under_way = False
        training_loop.transitions.state.may_grow = True
        self.script_loop = ScriptLoop(training_loop, registered)
        self.later = LaterObjects(self.script_loop, self._note_made)
        self.script_loop.order_digest = lambda: orders.digest
        orders.training_loop = training_loop
        self.further_loaders = self.script_loop.further_loaders = further_loaders
        further_loaders.script_loop = self.script_loop
        self.has_joined = False
        #: Passes over the loader that this process has begun: of the epoch, if the script has `epochs`, else of all.
        self._passes = 0
        self._has_epochs = self._in_epoch = False
        #: Loops over epochs that the script has begun.
        self._loops = 0
        #: Epochs of this loop that the script has repeated without batches, to make again what it made in them; and
        #: whether it is at that.
        self._repeated = 0
        self._repeats = False
        #: Structure of the state and versions of its tensors when the weights were written.
        self._written: tuple[str, list[int]] | None = None
        #: Whether a pass is over whose epilogue in the script is still running.
        self._after_pass = False
        self._has_trained = False
        #: Undoes the script's changes before its first pass, which the received state already includes.
        self._put_back: Callable[[], None] | None = None

    # --- passes ---

    @property
    def trains(self) -> bool:
        """Return whether a model that an optimizer trains is in training mode; a teacher may be in eval mode."""
        groups = [group for optimizer in self.training_loop.optimizers.values() for group in optimizer.param_groups]
        trained = {id(parameter) for group in groups for parameter in group["params"]}
        return torch.is_grad_enabled() and any(
            model.training and any(id(parameter) in trained for parameter in model.parameters())
            for model in self._models
        )

    def begin_pass(self) -> bool:
        """The script begins to iterate over the loader. False: the others have completed this pass."""
        number, position = self._passes, self.training_loop.position
        self._passes += 1
        if self._repeats or (
            not self.has_joined and not self._has_epochs and number < _epoch_of_others(self.training_loop)
        ):
            self._note_steps()
            return False
        self._join()
        if self._after_pass:
            self._end_pass()
        if number < (position.passes if self._has_epochs else position.epoch):
            return False
        if not self._has_trained:
            self._has_trained = True
            if self._put_back is not None:
                self._put_back()
            self.training_loop.transitions.state.complete()
            self.script_loop.carry_on()
        position.has_begun = True
        if not self._has_epochs:
            self.training_loop.generators.begin_epoch()
        self.training_loop.generators.begin_steps()
        return True

    def pass_is_over(self) -> None:
        self._after_pass = True

    def _end_pass(self) -> None:
        """Only now: whoever joins before does what the script does after the pass, as all do."""
        self._after_pass = False
        self.script_loop.close()
        self.orders.end()
        if self._has_epochs:
            self.training_loop.position.passes, self.training_loop.position.cursor = (
                self.training_loop.position.passes + 1,
                0,
            )
        else:
            self.training_loop.end_epoch()

    def _join(self) -> None:
        if self.has_joined:
            return
        refuse_validation(self.training_loop.context)
        self.training_loop.join()
        self.has_joined = True
        # The script's own `range` has come to its pass when it joins; `epochs` joins before what stands above the pass.
        if not self._has_epochs or self.training_loop.position.has_begun:
            self._put_back = self.script_loop.volatile()
        if self.training_loop.position.step:
            self._note_steps()

    def _note_steps(self) -> None:
        """Mark the optimizers as stepped (they have, in other processes); otherwise torch's schedules warn."""
        for optimizer in self.training_loop.optimizers.values():
            optimizer._opt_called = True  # type: ignore[attr-defined]

    # --- epochs ---

    def epochs(self, numbers: Iterable[T]) -> Iterator[T | int]:
        if self._in_epoch or (self._passes and not self._has_epochs):
            raise Refusal("tidepool.torch.epochs() is iterated once at a time, before the first pass over the data")
        own, position = list(numbers), self.training_loop.position
        self._has_epochs = True
        if not self._loops:
            position.loop = described(own)
            if self._made_path is not None and self._made_path.exists():
                yield from self._without_batches(own[: _epoch_of_others(self.training_loop)])
            self._join()
        loop, self._loops = self._loops, self._loops + 1
        if loop < len(position.earlier_loops):
            return
        if loop > len(position.earlier_loops):
            self._end_loop()
            position.loop = described(own)
        begun_at = position.earlier_loops[-1] if position.earlier_loops else 0
        yield from self._epochs(continued(own, position.loop), begun_at)

    def _epochs(self, every: Sequence[T | int], begun_at: int) -> Iterator[T | int]:
        """Yield the epochs of a loop that are left. begun_at: epochs that were complete when the loop began."""
        training_loop, position = self.training_loop, self.training_loop.position
        training_loop.total_epochs = begun_at + len(every)
        if not training_loop.transitions.state.is_complete:
            self._note_made()
            yield from self._without_batches(every[self._repeated : position.epoch - begun_at])
        while position.epoch < training_loop.total_epochs:
            number = position.epoch - begun_at
            training_loop.generators.begin_epoch()
            self._passes, self._in_epoch = 0, True
            try:
                yield every[number]
            finally:
                self._in_epoch = False
            if self._after_pass:
                self._end_pass()
            training_loop.end_epoch()
        training_loop.end_loop(self._write_results)

    def _without_batches(self, epochs: Sequence[T | int]) -> Iterator[T | int]:
        """Have the script repeat epochs that are complete, in which it made objects that the training has."""
        self._repeats = True
        for each in epochs:
            self._passes, self._in_epoch = 0, True
            with self.training_loop.generators.aside():
                yield each
            self._in_epoch = False
            self._repeated += 1
        self._repeats = False

    @property
    def _made_path(self) -> Path | None:
        """File that tells joiners to repeat epochs: the script has made objects while it trained."""
        return self.training_loop.folder / "made-later" if self.training_loop.folder else None

    def _note_made(self) -> None:
        if self.has_joined and self.training_loop.rank == 0 and self._made_path is not None:
            self._made_path.touch()

    def report(self, values: Mapping[str, float]) -> None:
        if not self._repeats:
            self.training_loop.report(values)

    def _end_loop(self) -> None:
        """The script begins another loop over epochs, maybe after a `break` out of this one."""
        if self._after_pass:
            self._end_pass()
            self.training_loop.end_epoch()
        position = self.training_loop.position
        position.earlier_loops = [*position.earlier_loops, position.epoch]

    # --- the end ---

    def finish(self) -> None:
        """Finish with the other ranks, after the script ended without an error.

        Raises RuntimeError if this process has made fewer passes than the training.
        """
        others = self.training_loop.position.epoch if self.has_joined else _epoch_of_others(self.training_loop)
        if not self._has_epochs and 0 < self._passes < others:
            raise Refusal(
                f"the script has ended after {self._passes} passes over the data, and the training is in its pass "
                f"{others + 1}: a script that continues from a snapshot of its own iterates over its epochs by `for "
                "epoch in tidepool.torch.epochs(range(start, epochs))`"
            )
        if not self.has_joined:
            return
        if self._after_pass and not self._has_epochs:
            self.training_loop.total_epochs = self.training_loop.position.epoch + 1
            self._end_pass()
        self.training_loop.finish(self._write_results)

    def _write_results(self, folder: Path) -> None:
        """Write the weights, at the end of a loop and again if the script has changed the state since."""
        structure, tensors = self.training_loop.transitions.state.pack()
        written = str(structure), [tensor._version for tensor in tensors]
        if written != self._written:
            self.training_loop.save_weights("model_epoch_final")
            self._written = written


class Loader:
    """Iterates over this rank's share of each batch, on the model's device. In evaluation it is a plain DataLoader."""

    def __init__(self, prepared: PreparedTraining, loader: DataLoader[Any]) -> None:
        self._prepared, self._loader = prepared, loader
        self.dataset = loader.dataset
        training_loop, reading = prepared.training_loop, reading_of(loader)
        #: One for all passes: persistent workers outlive them.
        self._feed = Feed(loader.dataset, loader.collate_fn, training_loop.seed, reading, training_loop.generators)
        self._pass: _Pass | None = None
        prepared.orders.add(loader.sampler, is_early=not prepared.has_joined)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        """Return the batches of a pass; during one, those that this process gets, including repeated and missed
        ones."""
        if self._pass is not None:
            return self._pass.length()
        samples, size = len(self._loader.sampler), self._prepared.training_loop.position.effective_batch_size  # type: ignore[arg-type]
        return samples // size if self._loader.drop_last else -(-samples // size)

    def __iter__(self) -> Iterator[Any]:
        if not self._prepared.trains:
            yield from (to_device(batch, self._prepared.training_loop.device) for batch in self._loader)
            return
        if self._prepared.pass_is_under_way:
            raise Refusal(
                "a prepared loader is being iterated already, and one pass at a time can be divided: for a second one "
                "at once, give tidepool.torch.prepare a further DataLoader of the same dataset, which each process "
                "reads as a whole"
            )
        if not self._prepared.begin_pass():
            return
        self._prepared.pass_is_under_way = True
        self._pass = _Pass(self._prepared, self._loader, self._feed)
        try:
            yield from self._pass.batches()
        finally:
            self._pass, self._prepared.pass_is_under_way = None, False


class _Pass:
    """A pass over the data in which the model is trained."""

    def __init__(self, prepared: PreparedTraining, loader: DataLoader[Any], feed: Feed) -> None:
        self._prepared, self._loader, self._feed = prepared, loader, feed
        self._samples = self._yielded = 0

    def length(self) -> int:
        position = self._prepared.training_loop.position
        left = self._samples - position.cursor - self._prepared.script_loop.samples_under_way
        return self._yielded + -(-left // position.effective_batch_size)

    def batches(self) -> Iterator[Any]:
        training_loop, script_loop = self._prepared.training_loop, self._prepared.script_loop
        training_loop.layout.check(optimizers_grow=True)
        order = self._prepared.orders.begin(self._loader)
        self._samples = len(order)
        try:
            with closing(script_loop.batches(self._feed, order, self._draw, self._further, self._samples)) as batches:
                for batch in batches:
                    self._yielded += 1
                    yield batch
            script_loop.close_pass()
        except GeneratorExit:
            script_loop.leave(self._samples)
            raise
        finally:
            self._feed.pause()
            training_loop.transitions.settle()
            self._prepared.pass_is_over()

    def _draw(self, indices: list[int]) -> Any:
        training_loop = self._prepared.training_loop
        return to_device(self._feed.read(training_loop.position.step, indices), training_loop.device)

    def _further(self, order: list[int]) -> list[int] | None:
        return order if self._prepared.training_loop.position.cursor < self._samples else None


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
    registered = {f"{type(item).__name__}-{number}": item for number, item in enumerate(others)}
    orders, further_loaders = Orders(), FurtherLoaders()
    options = Options(
        effective_batch_size=loader.batch_size or 1,
        rank_batch_size=rank_batch_size,
        seed=seed,
        registered={**registered, "orders": orders, "further loaders": further_loaders},
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        checkpoints_kept=checkpoints_kept,
        scaler=scalers[0] if scalers else None,
        exactness=exactness,
        virtual_ranks=virtual_ranks,
    )
    bare = [bare_model(model) for model in models]
    model = bare[0] if len(bare) == 1 else torch.nn.ModuleDict({str(place): one for place, one in enumerate(bare)})
    named = named_optimizers(optimizers[0] if len(optimizers) == 1 else optimizers)
    training_loop = TrainingLoop(model, named, options)
    training_loop.total_epochs = None
    ours = PreparedTraining(training_loop, registered, orders, further_loaders, bare)
    adopt(ours.script_loop, named, scalers, others)
    _prepared = ours
    rank_process.at_success(ours.finish)
    watch_backward(ours.script_loop)
    watch(ours.later)
    return _with_loaders(ours, objects)


def _with_loaders(prepared: PreparedTraining, objects: Sequence[Any]) -> Any:
    """Return the objects, the first DataLoader among them as a prepared one. All others are what was prepared."""
    loader = _training_loader(objects)
    if prepared.batch_size not in (0, loader.batch_size):
        raise Refusal(
            f"this DataLoader has batch_size={loader.batch_size}, and the training's first one "
            f"batch_size={prepared.batch_size}: the batches of a training have one size"
        )
    when = "later" if prepared.batch_size else "first"
    prepared.batch_size = loader.batch_size or 1
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
    if type(loader.batch_sampler) is not BatchSampler:
        raise Refusal("the DataLoader has a batch_sampler of its own: give it a batch_size, and a sampler if need be")
    if type(loader).__iter__ is not DataLoader.__iter__ and not type(loader).__module__.startswith("torchdata."):
        raise Refusal(
            f"the DataLoader is a {type(loader).__name__}, which iterates in a way of its own, so that its batches "
            "cannot be divided: give tidepool.torch.prepare a DataLoader of torch, and do the rest in its collate_fn"
        )
    if isinstance(loader.sampler, torch.utils.data.DistributedSampler):
        raise Refusal("the DataLoader has a DistributedSampler: leave it out, ranks get their shares by themselves")
    return loader


def _epoch_of_others(training_loop: TrainingLoop) -> int:
    """Return the epoch of the attempt's newest record, which may lag behind the other ranks; 0 without records."""
    context = training_loop.context
    if context is None:
        return 0
    record = last_record(Path(context.folder, "metrics.jsonl"))
    return int(record["epoch"]) if record.get("attempt") == context.attempt else 0

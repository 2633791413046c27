"""The session: a training loop whose number of ranks may change between any two steps.

    session = Session(model, optimizer, effective_batch_size=64)
    for epoch in session.epochs(10):
        for step in session.steps(train_set):
            for inputs, labels in step:                  # this rank's share, in pieces that fit
                step.backward(loss_fn(model(inputs), labels))

What the loop does is the same on 1 rank and on 8, before and after any resize, and off the cluster. The session feeds
each step its samples, weighs the losses, sums the gradients, updates the parameters, and between two steps lets ranks
come and go. `sum_over` evaluates a dataset on all ranks together. See runtime/README.md for the whole API.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from tidepool.own_cores import loader_workers
from tidepool.refusal import Refusal
from tidepool.torch.adaptive.adaptation import Adaptive
from tidepool.torch.data import Collate, Feed, Reading, collate, sample_count, to_device
from tidepool.torch.rank.epoch_loops import continued, described
from tidepool.torch.rank.options import Options
from tidepool.torch.rank.step import Step
from tidepool.torch.rank.step_clock import TimePart
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.unsupported import bare_model
from tidepool.torch.rank.validation import HeldOut, measured, write_result
from tidepool.torch.state.randomness import seed_step
from tidepool.torch.state.training_state import Stateful
from tidepool.torch.state.update import IN_BODY, OneOrMore, named_optimizers

__all__ = ["Session"]


class Session:
    """One rank's part in an elastic training.

    model: as the script built it, not wrapped for parallel training; a compiled one may be given.
    optimizer: one, or a list or dict of several; each updates parameters of the model, and all step in every step.
    effective_batch_size: samples per step over all ranks. A job that was submitted with one has the last word.
    rank_batch_size: largest micro-batch that a rank computes at once; None: a rank's whole share.
    seed: of the sample order and of random numbers in steps. On a cluster the job's seed has the last word.
    registered: further objects with `state_dict`/`load_state_dict` that belong to the training (LR schedulers, ...).
    warm_up: a forward and backward pass, called once before this process joins, while the others train on: with it
        the first real step is not slowed by what a process does only once. Buffers and gradients are put back.
    checkpoint_every: a checkpoint after so many epochs, 0 for none at all.
    checkpoint_seconds: most seconds between two checkpoints, at whatever step; 0 for none by time, None: 60.
    checkpoints_kept: how many of them stay. For both a job that was submitted with values has the last word.
    before_update: called when gradients are summed over all ranks and unscaled, before the optimizers step: clipping.
    after_update: called when the optimizers have stepped: averaged weights, a schedule by steps, bounds of weights.
    scaler: for float16 under autocast; the session scales losses, unscales gradients and skips what is not finite.
    exactness, virtual_ranks: off a cluster, where no job says it: "bitwise" computes each step as that many virtual
        ranks would, to the bit, as a job with as many does on any number of ranks.
    adaptive: let the session change the effective batch size, and learning rates with it. None: both stay. A job that
        was submitted with `adaptive: off` has the last word.

    Raises Refusal, with the reason, for what cannot be trained elastically.
    """

    _held_out: HeldOut | None = None

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: OneOrMore,
        *,
        effective_batch_size: int,
        rank_batch_size: int | None = None,
        seed: int = 0,
        registered: Mapping[str, Stateful] | None = None,
        warm_up: Callable[[], None] | None = None,
        checkpoint_every: int | None = None,
        checkpoint_seconds: float | None = None,
        checkpoints_kept: int | None = None,
        before_update: Callable[[], None] | None = None,
        after_update: Callable[[], None] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        exactness: str | None = None,
        virtual_ranks: int | None = None,
        adaptive: Adaptive | None = None,
    ) -> None:
        options = Options(
            effective_batch_size=effective_batch_size,
            rank_batch_size=rank_batch_size,
            seed=seed,
            registered=registered or {},
            warm_up=warm_up,
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=checkpoint_seconds,
            checkpoints_kept=checkpoints_kept,
            before_update=before_update,
            after_update=after_update,
            scaler=scaler,
            exactness=exactness,
            virtual_ranks=virtual_ranks,
            adaptive=adaptive,
        )
        self._training_loop = TrainingLoop(bare_model(model), named_optimizers(optimizer), options)
        self.context = self._training_loop.context
        self.model, self.optimizers = self._training_loop.model, self._training_loop.optimizers
        self.seed, self.position = self._training_loop.seed, self._training_loop.position
        self.virtual_ranks, self.adaptation = self._training_loop.virtual_ranks, self._training_loop.adaptation

    # --- questions of the script ---

    @property
    def rank(self) -> int:
        return self._training_loop.rank

    @property
    def world_size(self) -> int:
        return self._training_loop.world_size

    @property
    def generation(self) -> int:
        return self._training_loop.group.generation

    @property
    def folder(self) -> Path | None:
        """The folder of results; None off the cluster."""
        return self._training_loop.folder

    @property
    def device(self) -> torch.device:
        return self._training_loop.device

    # --- the loop ---

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the number of each epoch that is left to do, from 0; a joining rank starts at the one under way.

        Raises RuntimeError a second time, and in a rank whose `count` is not the training's.
        """
        training_loop = self._training_loop
        if training_loop.is_over:
            raise Refusal("session.epochs() has come to its end: a session has one loop, with all its epochs")
        training_loop.total_epochs = count
        self.position.loop = described(range(count))
        if self.context is not None and self.context.launch.validate:
            self._validate(self.context.launch.validate)
            return
        training_loop.join()
        continued(range(count), self.position.loop)
        while self.position.epoch < count:
            epoch = self.position.epoch
            training_loop.generators.begin_epoch()
            yield epoch
            if self.position.epoch == epoch:
                training_loop.end_epoch()
        training_loop.finish(lambda folder: self.save_weights("model_epoch_final"))

    def steps(
        self, dataset: Dataset[Any], *, num_workers: int | Literal["auto"] = 0, collate_fn: Collate | None = None
    ) -> Iterator[Step]:
        """Yield the steps of this epoch that are left to do.

        When members of the group die, the step in flight is yielded again, with the same samples: what the body did
        in it has had no effect on model or optimizer.

        num_workers: processes that read samples ahead; each epoch starts them anew, with the dataset as it is then.
        "auto": as many as suit the cores of this rank, see `tidepool.loader_workers`.
        collate_fn: makes a batch of a list of samples; None: as torch's DataLoader does.
        """
        samples = sample_count(dataset)
        training_loop = self._training_loop
        training_loop.layout.check()
        epoch = self.position.epoch
        order = training_loop.division.order(samples)
        training_loop.generators.begin_steps()
        reading = Reading(loader_workers() if num_workers == "auto" else num_workers)
        feed = Feed(dataset, collate_fn, self.seed, reading, training_loop.generators, training_loop.device)
        try:
            while training_loop.division.goes_on(epoch, samples):
                if self.position.cursor >= samples:
                    order = training_loop.division.next_order(samples)
                step = training_loop.begin(feed, order)
                if step is not None:
                    with training_loop.generators.aside():
                        seed_step(self.seed, step.number, IN_BODY)
                        yield step
                    if (control := training_loop.reduce(step)) is not None:
                        training_loop.apply(step, control)
                        training_loop.advance(step, control, samples)
        finally:
            feed.close()
            # Between epochs, scripts may change parameters, for example to evaluate an average.
            training_loop.transitions.settle()

    def report(self, **values: float) -> None:
        """Add metrics to the newest step's record, such as the accuracy on held-out data after an epoch."""
        self._training_loop.report(values)

    def validate_on(
        self,
        dataset: Dataset[Any] | Callable[[str], Dataset[Any]],
        loss: Callable[[Any, Any], torch.Tensor],
        *,
        predict: Callable[[Any], tuple[Any, Any]] | None = None,
        collate_fn: Collate | None = None,
    ) -> None:
        """Set the data that a validation measures the trained model on; call it before `epochs`.

        A training only takes note. A run that validates loads the weights, measures, and its `epochs` yields nothing.

        dataset: held-out samples; or a function that returns those of the split "validation" or "testing".
        loss: (outputs, labels) -> the mean loss of a batch. predict: batch -> (outputs, labels); None: batches are
        such pairs of inputs and labels.
        """
        self._held_out = HeldOut(dataset, loss, predict, collate_fn)

    def sum_over(
        self,
        dataset: Dataset[Any],
        measure: Callable[[Any], torch.Tensor],
        *,
        width: int,
        batch_size: int = 256,
        collate_fn: Collate | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[float]:
        """Sum `measure(batch)` (a tensor of `width` numbers) over a whole dataset, each rank doing its share.

        on_batch: called after each batch of this rank, with how many samples it had.
        """

        def rows() -> torch.Tensor:
            """Return a float64 row for each part of the dataset, zeros for others' parts. Buffers do not change."""
            sums = torch.zeros(self.virtual_ranks or self.world_size, width, dtype=torch.float64)
            sharing = self._training_loop.transitions.sharing
            with torch.no_grad(), self._training_loop.generators.aside(), self._training_loop.buffers.kept():
                for part in self._training_loop.division.parts(sample_count(dataset), batch_size, sharing):
                    seed_step(self.seed, -1 - self.position.operation, part.number)
                    for start, end in part.pieces:
                        batch = self.to_device(collate(dataset, list(range(start, end)), collate_fn))
                        sums[part.number] += measure(batch).cpu().double()
                        if on_batch is not None:
                            on_batch(end - start)
            return sums

        with self._training_loop.clock.during(TimePart.VALIDATION):
            return self._training_loop.summed(rows, "session.sum_over()")

    def from_first(self, values: Callable[[], Sequence[float]], *, width: int) -> list[float]:
        """Return, on all ranks, the `width` numbers that rank 0 computes.

        `values` runs on rank 0 alone, and on its successor if it dies before all have them.
        """
        computed: list[float] = []

        def rows() -> torch.Tensor:
            row = torch.zeros(1, width, dtype=torch.float64)
            if self.rank == 0:
                computed[:] = computed or values()
                row[0] = torch.tensor(computed, dtype=torch.float64)
            return row

        return self._training_loop.summed(rows, "session.from_first()")

    def share_among(self, ranks: int | None) -> None:
        """Let only so many ranks compute from the next step on; None: all. The others add zeros. All ranks call it."""
        self._training_loop.transitions.most_sharing = ranks

    def to_device(self, value: Any) -> Any:
        return to_device(value, self.device)

    def save_weights(self, name: str) -> None:
        """Write `<name>.pth` and `<name>_optimizer_state.pth` to the results. One rank calls it, between epochs."""
        self._training_loop.save_weights(name)

    def _validate(self, split: str) -> None:
        if self._held_out is None:
            raise Refusal(
                "This script does not say what to measure it on: call session.validate_on(dataset, loss) before"
                " session.epochs (see /help/runtime/#validate), and train it again."
            )
        self._training_loop.join()
        result = measured(self.model, self._held_out, split, self._training_loop.metrics, self.sum_over)
        self._training_loop.finish(lambda folder: write_result(folder, result))

"""A training under `prepare`: where this process is in the script's passes over the data, and in its epochs.

A joiner runs the script from the top. Epochs that the others have completed are left out, if the script iterates over
them by `epochs`, and their passes over the data yield nothing that counts otherwise.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from tidepool.journal import last_record
from tidepool.refusal import Refusal
from tidepool.torch.rank.batched_order import batches_in
from tidepool.torch.rank.dry_run import DryRun
from tidepool.torch.rank.epoch_loops import continued, described
from tidepool.torch.rank.epoch_variables import EpochVariables
from tidepool.torch.rank.epoch_weights import EpochWeights
from tidepool.torch.rank.further_loaders import FurtherLoaders
from tidepool.torch.rank.later_objects import LaterObjects
from tidepool.torch.rank.object_patches import refuse_validation
from tidepool.torch.rank.orders import Orders
from tidepool.torch.rank.script_loop import ScriptLoop
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.volatile_state import saved
from tidepool.torch.state.training_state import Stateful

__all__ = ["PreparedTraining"]

T = TypeVar("T")

#: Upper bound of the epochs of a loop, all of which are known before it begins.
_MOST_EPOCHS = 1_000_000


class PreparedTraining:
    """The script's training: what was prepared, and where this process is in it."""

    def __init__(
        self,
        training_loop: TrainingLoop,
        registered: dict[str, Stateful],
        orders: Orders,
        further_loaders: FurtherLoaders,
        epoch_variables: EpochVariables,
        epoch_weights: EpochWeights,
        models: Sequence[torch.nn.Module],
        dry_run: DryRun,
    ) -> None:
        self.training_loop, self.orders, self._models = training_loop, orders, models
        self.dry_run = dry_run
        self._epoch_variables, self._epoch_weights = epoch_variables, epoch_weights
        #: `batch_size` of the training's DataLoaders; the batches may be others, if the job says so.
        self.batch_size = 0
        #: Batches of the pass that the script is in.
        self.pass_under_way: Generator[Any] | None = None
        #: Batches of which nothing has come, before the first one that counts; None once there was one.
        self.repeated: int | None = 0
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
        #: The script iterates over its epochs by `epochs`.
        self.has_epochs = self._in_epoch = False
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
        self._epoch_weights.end_of_top()
        if self._repeats or (
            not self.has_joined and not self.has_epochs and number < _epoch_of_others(self.training_loop)
        ):
            self._note_steps()
            return False
        self._join()
        if self._after_pass:
            self._end_pass()
        if number < (position.passes if self.has_epochs else position.epoch):
            return False
        if not self._has_trained:
            self._has_trained = True
            if self._put_back is not None:
                self._put_back()
            self.training_loop.transitions.state.complete()
            self.script_loop.carry_on()
        position.has_begun = True
        if not self.has_epochs:
            self.training_loop.generators.begin_epoch()
        self.training_loop.generators.begin_steps()
        return True

    def missed(self, order: list[int]) -> int:
        """Return the number of batches that this process has to repeat before the present one, to count as the others.

        A script that leaves a pass early counts its batches. In a pass that is resumed nobody is waited for, so that
        every script gets them.
        """
        position = self.training_loop.position
        if self.script_loop.counts_batches:
            return position.batches - (self.repeated or 0)
        counts = position.leaves_early or position.resumed_in == [position.epoch, position.passes]
        return batches_in(order, 0, position.cursor, position.effective_batch_size) if counts else 0

    def pass_is_over(self) -> None:
        self._after_pass = True

    def _end_pass(self) -> None:
        """Only now: whoever joins before does what the script does after the pass, as all do."""
        self._after_pass = False
        self.script_loop.close()
        position = self.training_loop.position
        position.counts = self.script_loop.own_counts.beyond_pass(position.counts)
        self.orders.end()
        if self.has_epochs:
            position.passes, position.cursor = position.passes + 1, 0
        else:
            self.training_loop.end_epoch()

    def _join(self) -> None:
        if self.has_joined:
            return
        refuse_validation(self.training_loop.context)
        self.dry_run.make()  # before anybody waits for this process
        self.training_loop.join()
        self.has_joined = True
        # The script's own `range` has come to its pass when it joins; `epochs` joins before what stands above the pass.
        if not self.has_epochs or self.training_loop.position.has_begun:
            self._put_back = self.saved()
        if self.training_loop.position.step:
            self._note_steps()

    def saved(self) -> Callable[[], None]:
        """Save what the script changes in batches of which nothing comes; return a function that restores it."""
        return saved(self.script_loop.registered, self.training_loop.transitions.state)

    def _note_steps(self) -> None:
        """Mark the optimizers as stepped (they have, in other processes); otherwise torch's schedules warn."""
        for optimizer in self.training_loop.optimizers.values():
            optimizer._opt_called = True  # type: ignore[attr-defined]

    # --- epochs ---

    def epochs(self, numbers: Iterable[T]) -> Iterator[T | int]:
        if self._in_epoch or (self._passes and not self.has_epochs):
            raise Refusal("tidepool.torch.epochs() is iterated once at a time, before the first pass over the data")
        own, position = list(islice(numbers, _MOST_EPOCHS + 1)), self.training_loop.position
        if len(own) > _MOST_EPOCHS:
            raise Refusal(
                f"tidepool.torch.epochs() takes at most {_MOST_EPOCHS} epochs: pass a range, and leave the loop by "
                "break, by a number that is the same in all processes"
            )
        self.has_epochs = True
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
            self._epoch_variables.begin(position.epoch)
            is_under_way = bool(position.cursor or position.passes)
            self._epoch_weights.begin(position.epoch, in_the_middle=is_under_way and not self._has_trained)
            try:
                yield every[number]
            finally:
                self._in_epoch = False
                self._epoch_weights.end_of_top()
            if self._after_pass:
                self._end_pass()
            self._epoch_variables.end(position.epoch)
            self._epoch_weights.end()
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

    @property
    def is_ahead_of_its_pass(self) -> bool:
        """Return whether this process repeats what the others have done, and is in no pass with them."""
        return self._repeats or (self.repeated is not None and not self.training_loop.is_over)

    def totals(self) -> dict[str, float]:
        if self.is_ahead_of_its_pass:
            return self.script_loop.totals.take_in_vain()
        self.script_loop.totals.take_in_vain()
        return self.script_loop.totals.take_all()

    def from_first(self, compute: Callable[[], T]) -> T:
        if self.is_ahead_of_its_pass:
            return compute()
        computed: list[bytes] = []

        def give() -> bytes:
            if self.training_loop.rank == 0 and not computed:
                computed.append(json.dumps(compute()).encode())
            return computed[0] if self.training_loop.rank == 0 else b""

        result: T = json.loads(b"".join(self.training_loop.gathered(give, "tidepool.torch.from_first()")))
        return result

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
        if not self.has_epochs and 0 < self._passes < others:
            raise Refusal(
                f"the script has ended after {self._passes} passes over the data, and the training is in its pass "
                f"{others + 1}: a script that continues from a snapshot of its own iterates over its epochs by `for "
                "epoch in tidepool.torch.epochs(range(start, epochs))`"
            )
        if not self.has_joined:
            return
        if self.pass_under_way is not None:  # its iterator may live on in an object of the script
            self.pass_under_way.close()
        if self._after_pass and not self.has_epochs:
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


def _epoch_of_others(training_loop: TrainingLoop) -> int:
    """Return the epoch of the attempt's newest record, which may lag behind the other ranks; 0 without records."""
    context = training_loop.context
    if context is None:
        return 0
    record = last_record(Path(context.folder, "metrics.jsonl"))
    return int(record["epoch"]) if record.get("attempt") == context.attempt else 0

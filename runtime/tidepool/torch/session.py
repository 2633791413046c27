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

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from tidepool.env import RankContext, rank_context
from tidepool.faults import fault
from tidepool.goodput.model import Size
from tidepool.protocol import MemberMessage
from tidepool.torch.adaptation import ADAPTIVE_CONTROL_SIZE, Adaptive, adaptation_of
from tidepool.torch.buffers import Buffers
from tidepool.torch.checkpoint import write_weights
from tidepool.torch.checkpointer import Checkpointer, CheckpointPolicy
from tidepool.torch.data import Collate, Feed, collate, moved, seed_step, sized
from tidepool.torch.division import Division
from tidepool.torch.metrics import KEPT_RECORDS, MetricsFile
from tidepool.torch.process_group import CommunicationError, Group
from tidepool.torch.profile import Profiler
from tidepool.torch.randomness import Generators
from tidepool.torch.reducer import CONTROL_SIZE
from tidepool.torch.state import Position, Stateful, TrainingState
from tidepool.torch.step import Step, StepParts
from tidepool.torch.transitions import Transitions
from tidepool.torch.tree_reducer import chosen_virtual_ranks, reducer_of
from tidepool.torch.unsupported import Layout, bare_model, check_engine, check_trainable
from tidepool.torch.update import IN_BODY, OneOrMore, Update, named_optimizers
from tidepool.torch.validation import HeldOut, measured, write_result

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

    Raises TypeError or ValueError, with the reason, for what cannot be trained elastically.
    """

    _total_epochs = 0
    _held_out: HeldOut | None = None
    #: The generation in which nobody trains any more, once all have agreed on it; 0: none.
    _halt_generation = 0
    #: Of the parameters, when the step began: how often they had been written to.
    _writes = 0
    _state_was_packed = False
    #: The state was copied for a checkpoint when the step began.
    _copied = False

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
        if effective_batch_size < 1:
            raise ValueError(f"effective_batch_size must be at least 1, not {effective_batch_size}")
        self.context: RankContext | None = rank_context()
        launch = self.context.launch if self.context else None
        check_engine(launch)
        self.model, self.optimizers = bare_model(model), named_optimizers(optimizer)
        check_trainable(self.model, self.optimizers)
        self._layout = Layout(self.model, self.optimizers)
        self._parameters = list(self.model.parameters())
        self.seed = launch.seed if launch else seed
        size = launch.effective_batch_size if launch and launch.effective_batch_size else effective_batch_size
        self.position = Position(effective_batch_size=size)
        #: Parts of each step in exactness "bitwise"; None in "sum", where each rank computes one.
        self.virtual_ranks = chosen_virtual_ranks(launch, exactness, virtual_ranks)
        self._warm_up = warm_up
        self._reported: dict[str, float] = {}
        self._metrics = MetricsFile(self.folder)
        of_whom = self.virtual_ranks, self.optimizers, scaler
        adapts = adaptive if launch is None or launch.adaptive != "off" else None
        limits = launch.micro_batch_limits if launch else {}
        self.adaptation = adaptation_of(adapts, size, rank_batch_size, *of_whom, limits) if adapts else None
        state = self._set_up_steps(scaler, before_update, after_update, dict(registered or {}))
        self._transitions = Transitions(self.context, state)
        how = self.virtual_ranks, rank_batch_size, self.adaptation
        self._division = Division(self.seed, self.position, self._transitions, *how)
        self._profiler.most_micro_batch = self._division.most_micro_batch
        policy = CheckpointPolicy.of(
            launch, seconds=checkpoint_seconds, every_epochs=checkpoint_every, kept=checkpoints_kept
        )
        self._checkpoints = Checkpointer(self._transitions, policy)

    def _set_up_steps(
        self,
        scaler: torch.amp.GradScaler | None,
        before: Callable[[], None] | None,
        after: Callable[[], None] | None,
        registered: dict[str, Stateful],
    ) -> TrainingState:
        self.buffers = Buffers(self.model)
        size = ADAPTIVE_CONTROL_SIZE if self.adaptation else CONTROL_SIZE
        self.reducer = reducer_of(self.model, self.optimizers, self.buffers, self.virtual_ranks, size)
        self.reducer.open = False
        self._generators = Generators(self.device)
        self.update = Update(self.optimizers, scaler, before, after, self._generators, self.seed)
        self._profiler = Profiler(self.device)
        shared = self.reducer, self.buffers, self.update, self._profiler, self.adaptation
        self._step_parts = StepParts(self.seed, self.position, *shared)
        how = scaler, self._generators, self.update.run_after, self.adaptation
        return TrainingState(self.model, self.optimizers, registered, self.position, *how)

    # --- what a script asks ---

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def world_size(self) -> int:
        return self._group.size

    @property
    def generation(self) -> int:
        return self._group.generation

    @property
    def folder(self) -> Path | None:
        """The folder of results; None off the cluster."""
        return self.context.folder if self.context else None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- the loop ---

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the number of each epoch that is left to do, from 0; a joining rank starts at the one under way."""
        self._total_epochs = count
        if self.context is not None and self.context.launch.validate:
            self._validate(self.context.launch.validate)
            return
        self._join()
        while self.position.epoch < count:
            epoch = self.position.epoch
            self._generators.begin_epoch()
            yield epoch
            if self.position.epoch == epoch:
                self._end_epoch()
        self._finish(lambda folder: self.save_weights("model_epoch_final"))

    def steps(
        self, dataset: Dataset[Any], *, num_workers: int = 0, collate_fn: Collate | None = None
    ) -> Iterator[Step]:
        """Yield the steps of this epoch that are left to do.

        When members of the group die, the step in flight is yielded again, with the same samples: what the body did
        in it has had no effect on model or optimizer.

        num_workers: processes that read samples ahead; each epoch starts them anew, with the dataset as it is then.
        collate_fn: makes a batch of a list of samples; None: as torch's DataLoader does.
        """
        samples = sized(dataset)
        self._layout.check()
        epoch = self.position.epoch
        order = self._division.order(samples)
        self._generators.begin_steps()
        feed = Feed(dataset, collate_fn, self.seed, num_workers, self._generators)
        try:
            while self._division.goes_on(epoch, samples):
                if self.position.cursor >= samples:
                    order = self._division.next_order(samples)
                step = self._begin_step(feed, order)
                if step is not None:
                    with self._generators.aside():
                        seed_step(self.seed, step.number, IN_BODY)
                        yield step
                    self._end_step(step, samples)
        finally:
            feed.close()
            self._transitions.settle()  # between epochs scripts may change parameters: to evaluate an average, say

    def report(self, **values: float) -> None:
        """Add metrics to the newest step's record, such as the accuracy on held-out data after an epoch."""
        self._reported.update({name: float(value) for name, value in values.items()})

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
            """A row for each part of the dataset, float64, zeros for others' parts. The buffers stay as they are."""
            sums = torch.zeros(self.virtual_ranks or self.world_size, width, dtype=torch.float64)
            with torch.no_grad(), self._generators.aside(), self.buffers.kept():
                for part in self._division.parts(sized(dataset), batch_size, self._transitions.sharing):
                    seed_step(self.seed, -1 - self.position.operation, part.number)
                    for start, end in part.pieces:
                        batch = self.to_device(collate(dataset, list(range(start, end)), collate_fn))
                        sums[part.number] += measure(batch).cpu().double()
                        if on_batch is not None:
                            on_batch(end - start)
            return sums

        return self._summed(rows)

    def from_first(self, values: Callable[[], Sequence[float]], *, width: int) -> list[float]:
        """The `width` numbers that rank 0 computes, on all ranks.

        `values` runs on rank 0 alone, and on its successor if it dies before all have them.
        """
        computed: list[float] = []

        def rows() -> torch.Tensor:
            row = torch.zeros(1, width, dtype=torch.float64)
            if self.rank == 0:
                computed[:] = computed or values()
                row[0] = torch.tensor(computed, dtype=torch.float64)
            return row

        return self._summed(rows)

    def share_among(self, ranks: int | None) -> None:
        """Let only so many ranks compute from the next step on; None: all. The others add zeros. Alike on all ranks."""
        self._transitions.most_sharing = ranks

    def _summed(self, rows: Callable[[], torch.Tensor]) -> list[float]:
        """The sum of all rows of all ranks; `rows` is asked again after a failure."""
        while True:
            sums = rows()
            try:
                self._group.wait(self._group.all_reduce(sums))
                fault("sum-result", self._transitions.member_id, CommunicationError)
            except CommunicationError as error:
                if self._recover(error):
                    return list(self.position.last_sum)
                continue
            self.position.operation += 1
            self.position.last_sum = sums.sum(0).tolist()
            return list(self.position.last_sum)

    def to_device(self, value: Any) -> Any:
        return moved(value, self.device)

    # --- one step ---

    @property
    def _group(self) -> Group:
        return self._transitions.group

    def _begin_step(self, feed: Feed, order: list[int]) -> Step | None:
        if self._transitions.recovery_is_due:
            self._recover()
            return None  # the position may have moved
        self._write_records()
        if self._halt_if_due():
            return None
        if self.rank == 0:
            self._copied = self._checkpoints.offer()
            adapted = partial(self.adaptation.told, self.world_size) if self.adaptation else None
            self._transitions.tell(partial(self._profiler.message, self.position, time.monotonic(), adapted))
        if self.adaptation is not None:
            size = Size(self._transitions.hosts, self.world_size)
            where = (self.generation, size) if self._transitions.all_share else None
            self.adaptation.choose(self._profiler.times if self.rank == 0 else None, where, time.monotonic())
        feed.ahead = partial(self._division.ahead, order, self._transitions.sharing)
        feed.prepare()
        chunk = self._division.chunk(order, self.position.cursor)
        self.buffers.begin_step(divided=self.world_size > 1 or self.virtual_ranks is not None)
        self._writes = self._count_writes()
        self.reducer.begin(self._group, self._transitions.sharing)
        sharing = self._transitions.sharing
        own = self._division.of_step(len(chunk), self.position.step, sharing)
        if self.adaptation is not None:
            self.adaptation.begin(self.position.step, len(chunk), own, self.reducer, is_alone=len(sharing) == 1)
        return Step(self._step_parts, feed, chunk, own, self.device)

    def _end_step(self, step: Step, samples: int) -> None:
        if self._count_writes() != self._writes:
            self._transitions.exposed = True
        step.complete(self._transitions.flag)
        fault("reduce", self._transitions.member_id)
        try:
            self.reducer.finish()
            control = self.reducer.summed
            step.agree_on_names(control, self._group)
            fault("step-result", self._transitions.member_id, CommunicationError)
        except CommunicationError as error:
            self._recover(error)
            return
        self.buffers.unpack(self.reducer.buffers)
        fault("optimizer", self._transitions.member_id)
        if self.adaptation is not None:
            self.adaptation.measure(control, self.reducer, step.samples)
        self.update.apply(step.number, self.adaptation.factors if self.adaptation else ())
        if self._transitions.on_cluster and not self._state_was_packed:  # the first update has made optimizer state
            self._transitions.state.pack()
            self._state_was_packed = True
        self._advance(step, control, samples)
        if control[0] > 0:
            self._switch(round(control[1] / control[0]))

    def _count_writes(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    def _advance(self, step: Step, control: list[float], samples: int) -> None:
        position = self.position
        position.step += 1
        position.operation += 1
        position.cursor += step.samples
        seconds = time.monotonic() - step.begun_at
        self._transitions.step_made(seconds)
        of = self.generation, self._transitions.hosts, self.world_size
        counts = not self._copied and self._transitions.most_sharing is None
        self._profiler.made(step.made(seconds, *of), step.told, counts=counts)
        done = position.epoch + position.cursor / samples
        if self.adaptation is not None:
            position.effective_batch_size = self.adaptation.advance(control, step.samples)
            done = self.adaptation.done(samples)
        attempt = self.context.attempt if self.context else 1
        record = step.record(control, seconds, self._group, attempt, done / max(1, self._total_epochs))
        position.records = [*position.records, record][-KEPT_RECORDS:]

    def _write_records(self) -> None:
        """Rank 0 writes what is due; the newest record waits until the next step begins, for `report` to add to it."""
        if self._reported and self.position.records:
            self.position.records[-1].update(self._reported)
            self._reported = {}
        if self.rank == 0:
            self._metrics.write(self.position.records)

    # --- ranks come and go ---

    def _join(self) -> None:
        if self._transitions.on_cluster and self._warm_up is not None:
            with self._generators.aside(), self.buffers.kept():  # before anybody waits for this rank, without a trace
                self._warm_up()
        self._transitions.join(self._checkpoints.load)
        self._metrics.forget()

    def _switch(self, generation: int) -> None:
        """The step's record is left to the next rank 0: were the present one to write it too, they would race."""
        if self._transitions.is_halt(generation):
            self._halt_generation = generation  # after what the script has to report about this step
            return
        self._transitions.switch(generation)
        self._metrics.forget()

    def _halt_if_due(self) -> bool:
        """Stop at a step boundary with all ranks: rank 0 saves the state, the others wait until it is published.

        Ends this rank by SystemExit(0). Returns True if one died meanwhile: the survivors train on, and halt again.
        """
        if self._halt_generation <= self.generation:
            return False
        if self.rank == 0:
            self._checkpoints.halt(self._halt_generation)
        if self._transitions.wait_halted():
            raise SystemExit(0)
        self._recover()
        return True

    def _recover(self, error: CommunicationError | None = None) -> bool:
        """Go on with the survivors. True: another had completed the operation in flight, and this rank has it now.

        error: what this rank noticed of it; the log of each rank is where to look when nobody died.
        """
        if error is not None:
            text = (
                f"tidepool: generation {self.generation}: what follows step {self.position.step} is done again: {error}"
            )
            print(text, file=sys.stderr, flush=True)  # noqa: T201
        self.buffers.restore()
        caught_up = self._transitions.recover()
        self._metrics.forget()
        return caught_up

    # --- epochs and the end ---

    def _end_epoch(self) -> None:
        self.position.epoch += 1
        self.position.cursor = self.position.passes = 0
        self._generators.end_epoch()
        self._write_records()
        if self.position.epoch < self._total_epochs and self._halt_if_due():
            return
        if self.rank == 0:
            self._checkpoints.offer(epoch_is_over=True)

    def _validate(self, split: str) -> None:
        if self._held_out is None:
            raise RuntimeError(
                "This script does not say what to measure it on: call session.validate_on(dataset, loss) before"
                " session.epochs, as runtime/README.md shows, and train it again."
            )
        self._join()
        result = measured(self.model, self._held_out, split, self._metrics, self.sum_over)
        self._finish(lambda folder: write_result(folder, result))

    def _finish(self, write: Callable[[Path], None]) -> None:
        """Leave together: rank 0 writes what is left and the results, the others wait until it has."""
        while True:
            self._write_records()
            if self.rank == 0:
                self._checkpoints.finish()
                if self.folder is not None:
                    write(self.folder)
                self._transitions.send(
                    MemberMessage("finished", self.generation, self.position.step, self.position.epoch)
                )
            if self._transitions.wait_for_the_end():
                return
            self._recover()

    def save_weights(self, name: str) -> None:
        """`<name>.pth` and `<name>_optimizer_state.pth` as results; for one rank to call, between epochs."""
        if self.folder is not None:
            write_weights(self.folder, name, self.model, self.optimizers, self._transitions.state.registered)

"""One rank's part in an elastic training, step by step, driven by its caller.

    step = loop.begin(feed, order)                     # None: ranks came or went, begin again
    for batch in step:
        step.backward(loss(batch))
    if (control := loop.reduce(step)) is not None:     # None: a rank died, nothing has come of the step
        loop.apply(step, control)
        loop.advance(step, control, samples)           # a boundary: here ranks come and go

`Session` drives it from its own loop, `prepare` from a loop of the script's own.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from tidepool.env import RankContext, rank_context
from tidepool.faults import fault
from tidepool.goodput.model import Size
from tidepool.protocol import MemberMessage, StepRecord
from tidepool.rank_process import RankReleased, report_by
from tidepool.torch.adaptive.adaptation import ADAPTIVE_CONTROL_SIZE, Adaptation, adaptation_of
from tidepool.torch.adaptive.profiler import Profiler
from tidepool.torch.comm.gather import gather_bytes, meet_in, packed, unpacked
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.reducer import CONTROL_SIZE, is_alike
from tidepool.torch.comm.tree_reducer import reducer_of
from tidepool.torch.data import Feed
from tidepool.torch.rank.agreement import Agreement
from tidepool.torch.rank.checkpointer import Checkpointer
from tidepool.torch.rank.metrics_file import KEPT_RECORDS, MetricsFile
from tidepool.torch.rank.options import ChosenOptions, Options, chosen_options
from tidepool.torch.rank.step import LOSS, Step, StepParts
from tidepool.torch.rank.step_clock import StepClock, TimePart
from tidepool.torch.rank.step_division import StepDivision
from tidepool.torch.rank.transitions import Transitions
from tidepool.torch.rank.unsupported import Layout, check_engine, check_trainable
from tidepool.torch.state.buffers import Buffers, normalizes_batches
from tidepool.torch.state.checkpoint_files import write_weights
from tidepool.torch.state.digest import sums_of
from tidepool.torch.state.randomness import Generators
from tidepool.torch.state.training_state import Position, TrainingState
from tidepool.torch.state.update import Update

__all__ = ["TrainingLoop", "agreed_generation"]

#: Collectives that no function of the script's calls by its name, as errors name them.
_GRADIENTS, _BUFFERS, _COMPARISON = "the sum of a step's gradients", "a step's buffers", "a comparison of models"


class TrainingLoop:
    """The objects of one rank's training, and what happens to them in a step and between two.

    Raises Refusal, with the reason, for what cannot be trained elastically.
    """

    #: Total number of epochs; None: unknown.
    total_epochs: int | None = 0
    #: Generation of the halt that all ranks have agreed on; 0: none.
    _halt_generation = 0
    #: Number of writes to the parameters, and sums of them, when the step began or an optimizer has stepped.
    _writes = 0
    _contents_before: Sequence[list[int]] = ()
    _state_was_packed = False
    #: Whether the state was copied for a checkpoint when the step began.
    _copied = False
    #: Whether the script requested a checkpoint at the next boundary.
    wants_checkpoint = False
    #: Whether this rank's loop is over, with all its epochs.
    is_over = False
    #: Whether a loop is over, and the newest record is in the file.
    _is_written = False
    #: Whether the newest recovery delivered the result of the operation in flight.
    caught_up = False

    def __init__(self, model: torch.nn.Module, optimizers: dict[str, torch.optim.Optimizer], options: Options) -> None:
        self.context: RankContext | None = rank_context()
        launch = self.context.launch if self.context else None
        chosen = chosen_options(launch, options)
        check_engine(launch)
        self.model, self.optimizers = model, optimizers
        check_trainable(self.model, self.optimizers)
        self.layout = Layout(self.model, self.optimizers)
        self._parameters = list(self.model.parameters())
        self.seed, self.virtual_ranks = chosen.seed, chosen.virtual_ranks
        self.position = Position(effective_batch_size=chosen.batch_size)
        self._warm_up = options.warm_up or (lambda: None)
        self._reported: dict[str, float] = {}
        self.metrics = MetricsFile(self.folder)
        self.adaptation, self.clock = self._adaptation(chosen, options), StepClock()
        state = self._set_up_steps(options)
        self.transitions = Transitions(self.context, state, self.clock, options.group)
        least = 2 if normalizes_batches(self.model) else 1
        how = self.virtual_ranks, options.rank_batch_size, self.adaptation, least
        self.division = StepDivision(self.seed, self.position, self.transitions, *how)
        self._profiler.most_micro_batch = self.division.most_micro_batch
        self._checkpoints = Checkpointer(self.transitions, chosen.checkpoints)
        self.update.settle = self.transitions.settle_copy
        self._agreement = Agreement(self.model, self.device)
        #: Called before a recovery: it puts back what has been done since the newest boundary.
        self.before_recovery: Callable[[], None] = lambda: None
        #: Called on all ranks at a boundary before ranks go, and with them what only they have; it may sum.
        self.before_change: Callable[[], None] = lambda: None
        #: Off the cluster: whether this process was told to stop, and what all of them do then, after the same step.
        self.is_stop_requested: Callable[[], bool] = lambda: False
        self.stop: Callable[[], None] = lambda: None
        report_by(self.report)

    def _adaptation(self, chosen: ChosenOptions, options: Options) -> Adaptation | None:
        if chosen.batch_rule is None:
            return None
        limits = self.context.launch.micro_batch_limits if self.context else {}
        of_whom = self.virtual_ranks, self.optimizers, options.scaler
        return adaptation_of(chosen.batch_rule, chosen.batch_size, options.rank_batch_size, *of_whom, limits)

    def _set_up_steps(self, options: Options) -> TrainingState:
        self.buffers = Buffers(self.model)
        size = ADAPTIVE_CONTROL_SIZE if self.adaptation else CONTROL_SIZE
        self.reducer = reducer_of(self.model, self.optimizers, self.buffers, self.virtual_ranks, size)
        self.reducer.open = False
        self.generators = Generators(self.device)
        hooks = options.before_update, options.after_update
        self.update = Update(self.optimizers, options.scaler, *hooks, self.generators, self.seed)
        self._profiler = Profiler(self.device)
        shared = self.reducer, self.buffers, self.update, self._profiler, self.clock, self.adaptation
        self._step_parts = StepParts(self.seed, self.position, *shared)
        how = options.scaler, self.generators, self.update.run_after, self.adaptation
        return TrainingState(self.model, self.optimizers, dict(options.registered), self.position, *how)

    # --- the place of this rank ---

    @property
    def group(self) -> Group:
        return self.transitions.group

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def world_size(self) -> int:
        return self.group.size

    @property
    def folder(self) -> Path | None:
        """The folder of results; None off the cluster."""
        return self.context.folder if self.context else None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- one step ---

    def begin(self, feed: Feed, order: list[int]) -> Step | None:
        """Begin the next step. order: of the samples in the pass under way. None: the position may have moved."""
        if not self.is_due():
            return None
        step = self.open(feed, order)
        self.begin_sum()
        return step

    def begin_sum(self) -> None:
        """Zero the gradients: those of the coming sum are added to them."""
        self.reducer.follow(self.position.thawed)
        self.reducer.begin(self.group, self.transitions.sharing)

    def is_due(self) -> bool:
        """Do the work between two steps. False: no step is due yet, and the position may have moved; call it again."""
        if self.transitions.recovery_is_due:
            self.recover()
            return False
        self.write_records()
        if self._halt_if_due():
            return False
        if self.rank == 0:
            self._copied = self._checkpoints.offer(is_wanted=self.wants_checkpoint)
            self.wants_checkpoint = False
            self._ask_for_agreement(time.monotonic())
            adapted = partial(self.adaptation.reported_batch, self.world_size) if self.adaptation else None
            self.transitions.tell(partial(self._profiler.message, self.position, time.monotonic(), adapted))
        if self.adaptation is not None:
            size = Size(self.transitions.hosts, self.world_size)
            where = (self.group.generation, size) if self.transitions.all_share else None
            self.adaptation.choose(self._profiler.times if self.rank == 0 else None, where, time.monotonic())
        return True

    def _ask_for_agreement(self, now: float) -> None:
        """On rank 0: have the ranks' models compared, and count checkpoints that are copied once they are alike."""
        if self.world_size == 1:
            self._checkpoints.confirm()
        elif self._checkpoints.is_unconfirmed:
            self._agreement.want()
        else:
            self._agreement.want_by_time(now)

    def open(self, feed: Feed, order: list[int], *, at_boundary: bool = True) -> Step:
        """Return this rank's share of the next step. Gradients are as they were; `begin_sum` sets them to zero."""
        if at_boundary:
            self._agreement.at_boundary()
        feed.ahead = partial(self.division.ahead, order, self.transitions.sharing)
        self.clock.open_feed(feed)
        chunk = self.division.chunk(order, self.position.cursor)
        self.buffers.begin_step(divided=self.world_size > 1 or self.virtual_ranks is not None)
        self._note_weights()
        sharing = self.transitions.sharing
        own = self.division.of_step(len(chunk), self.position.step, sharing)
        if self.adaptation is not None:
            self.adaptation.begin(self.position.step, len(chunk), own, self.reducer, is_alone=len(sharing) == 1)
        return Step(self._step_parts, feed, chunk, own, self.device)

    def reduce(self, step: Step) -> list[float] | None:
        """Sum the gradients of all ranks; return the control block.

        None: a rank died, and this one has recovered: the step was either discarded, or its result was received.
        """
        if self.has_own_writes:
            self.transitions.exposed = True
        step.complete(self.transitions.flag or int(self.is_stop_requested()))
        self._agreement.write(self.reducer.agreement)
        fault("reduce", self.transitions.member_id)
        self.group.enter(_GRADIENTS)
        try:
            self.clock.finish_sum(self.reducer, self._profiler.watch, self.position.operation)
            control = self.reducer.summed
            step.agree_on_names(control, self.group)
            if self.reducer.buffers_are_reshaped:
                reshaped = b"".join(gather_bytes(self.group, self.buffers.packed_reshaped(), _BUFFERS))
            fault("step-result", self.transitions.member_id, CommunicationError)
        except CommunicationError as error:
            self.recover(error)
            return None
        self.position.thawed = self.reducer.now_thawed
        if self._agreement.read(self.reducer.summed_agreement, step.number) and self.rank == 0:
            self._checkpoints.confirm()
        self.buffers.unpack(self.reducer.buffers)
        if self.reducer.buffers_are_reshaped:
            self.buffers.unpack_reshaped(reshaped)
        if (factor := step.rescaling(control)) != 1.0:
            self.reducer.scale(factor)
            control[LOSS] *= factor
        return control

    def apply(self, step: Step, control: list[float]) -> None:
        """Update the parameters by the summed gradients."""
        fault("optimizer", self.transitions.member_id)
        if self.adaptation is not None:
            self.adaptation.measure(control, self.reducer, step.samples)
        if self.reducer.hooks.exist:
            self.update.run_on_gradients(self.reducer.hooks.gradients_are_summed, step.number)
            self.update.run_on_gradients(self.reducer.hooks.gradients_are_accumulated, step.number)
        with self.clock.during(TimePart.OPTIMIZER):
            self.update.apply(step.number, self.adaptation.factors if self.adaptation else ())
        self.updated()

    def updated(self) -> None:
        """Note that the optimizers have stepped. After their first step, check that their state can be packed."""
        self._note_weights()
        if self.transitions.on_cluster and not self._state_was_packed:
            self.transitions.announce()
            self._state_was_packed = True

    def advance(self, step: Step, control: list[float], samples: int) -> None:
        """Complete the step; then switch to another generation if all have agreed on one. samples: of an epoch."""
        self.count(step, control, samples)
        self.commit(agreed_generation(control))

    def commit(self, generation: int) -> None:
        """Mark a boundary: nothing before it is repeated. generation: to switch to; 0: none."""
        self.position.operation += 1
        if generation and not self.transitions.on_cluster:
            self.stop()
        elif generation:
            self._switch(generation)

    def count(self, step: Step, control: list[float], samples: int, since: int = 0) -> None:
        """Move the position behind the step. since: steps since the newest boundary, whose records are not written."""
        position, self._is_written = self.position, False
        position.step, position.batches = position.step + 1, position.batches + 1
        position.cursor += step.samples
        position.items_per_sample *= step.change_of_items(control)
        seconds = time.monotonic() - step.begun_at
        self.transitions.step_made(seconds)
        of = self.group.generation, self.transitions.hosts, self.world_size
        counts = not self._copied and self.transitions.most_sharing is None
        self._profiler.made(step.made(seconds, *of), step.reported_times, counts=counts)
        done = position.epoch + position.cursor / samples
        if self.adaptation is not None:
            position.effective_batch_size = self.adaptation.advance(control, step.samples)
            done = self.adaptation.done(samples)
        attempt = self.context.attempt if self.context else 1
        progress = None if self.total_epochs is None else done / max(1, self.total_epochs)
        record = step.record(control, seconds, self.group, attempt, progress)
        position.records = [*position.records, record][-KEPT_RECORDS - since :]

    @property
    def has_own_writes(self) -> bool:
        """Return whether the script has changed weights since the step began or an optimizer has stepped."""
        before = self._contents_before
        return self._count_writes() != self._writes or bool(before and before != self._contents())

    def note_own_writes(self) -> None:
        self.position.writes_weights = self.position.writes_weights or self.has_own_writes

    def _note_weights(self) -> None:
        """Note what shows writes of the script's own; now and then also those to `.data`, which no version counts."""
        step, is_known = self.position.step, self.position.writes_weights or not self.transitions.on_cluster
        self._writes, self._contents_before = self._count_writes(), []
        if not is_known and not step & (step - 1):
            self._contents_before = self._contents()

    def _contents(self) -> list[list[int]]:
        return [sums_of(parameter.detach()) for parameter in self._parameters]

    def _count_writes(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    # --- records ---

    def report(self, values: Mapping[str, float]) -> None:
        """Add metrics to the newest step's record; after the loop, to the file at once."""
        added = {name: float(value) for name, value in values.items()}
        if not self._is_written:
            self._reported.update(added)
        elif self.rank == 0 and self.position.records:
            self._add_to_newest(added)

    def write_records(self) -> None:
        """Write the due records on rank 0. The newest waits for the next step, so that `report` can add to it."""
        if self.rank == 0:
            self.metrics.lead_number = self.transitions.await_lead()
        if self._reported and self.position.records:
            added, self._reported = self._reported, {}
            self.position.records[-1].update(added)
            if self.rank == 0 and self.metrics.has(self.position.records[-1]["step"]):  # after the epochs, or a loss
                self._add_to_newest(added)
        if self.rank == 0:
            self.metrics.write(self.position.records)

    def _add_to_newest(self, added: Mapping[str, float]) -> None:
        newest = self.position.records[-1]
        self.metrics.add({name: newest[name] for name in StepRecord.__struct_fields__ if name in newest} | dict(added))

    # --- ranks come and go ---

    def join(self) -> None:
        if self.transitions.on_cluster:  # before anybody waits for this rank
            self.reducer.empty()  # the first write to new memory is slow
            with self.generators.aside(), self.buffers.kept():
                self._warm_up()
        self.transitions.join(self._checkpoints.load)
        self.metrics.forget()

    def _switch(self, generation: int) -> None:
        """Switch to the generation. Its rank 0 writes the step's record: the present one would race with it."""
        if self.transitions.is_halt(generation):
            self._halt_generation = generation  # after what the script has to report about this step
            return
        self.before_change()
        if generation > self.group.generation:  # else somebody died in it, and what was planned is void
            self.transitions.switch(generation)
        self.metrics.forget()

    def _halt_if_due(self) -> bool:
        """Stop at a step boundary with all ranks: rank 0 saves the state, the others wait until it is published.

        Ends this rank by `RankReleased`. Returns True if one died meanwhile: the survivors train on, and halt again.
        """
        if self._halt_generation <= self.group.generation:
            return False
        self.before_change()
        if self._halt_generation <= self.group.generation:
            return True
        self._compare()
        if self._halt_generation <= self.group.generation:
            return True
        if self.rank == 0:
            self._checkpoints.halt(self._halt_generation)
        if self.transitions.wait_halted():
            raise RankReleased
        self.recover()
        return True

    def _compare(self) -> None:
        """Compare the models of all ranks at once. Raises Refusal if they differ."""
        if self.world_size > 1:
            ranks, *sums = self.summed(lambda: self._agreement.row()[None], _COMPARISON)
            self._agreement.settle(is_alike(ranks, sums), self.position.step)
        self._checkpoints.confirm()

    def recover(self, error: CommunicationError | None = None) -> bool:
        """Continue with the survivors. True: it got the result of the operation in flight from another rank.

        error: the failure as this rank saw it, written to its log in case no rank died.
        """
        if error is not None and not self.transitions.on_cluster:
            raise error
        if error is not None:
            where = f"generation {self.group.generation}: what follows step {self.position.step} is done again"
            print(f"tidepool: {where}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        self.transitions.settle_copy()
        self.buffers.restore()
        self._agreement.forget()
        self.before_recovery()
        self.caught_up = self.transitions.recover()
        self.metrics.forget()
        return self.caught_up

    def summed(self, rows: Callable[[], torch.Tensor], kind: str) -> list[float]:
        """Return the sum of all rows of all ranks; `rows` is called again after a failure. kind: as of `meet_in`."""
        while True:
            sums = rows()
            try:
                meet_in(self.group, kind)
                self.group.wait(self.group.all_reduce(sums))
                fault("sum-result", self.transitions.member_id, CommunicationError)
            except CommunicationError as error:
                if self.recover(error):
                    return list(self.position.last_sum)
                continue
            self.position.operation += 1
            self.position.last_sum = sums.sum(0).tolist()
            return list(self.position.last_sum)

    def gathered(self, give: Callable[[], bytes], kind: str) -> list[bytes]:
        """Return each rank's value in the order of the ranks; `give` is called again after a failure.

        kind: as of `meet_in`.
        """
        while True:
            try:
                pieces = gather_bytes(self.group, give(), kind)
                fault("sum-result", self.transitions.member_id, CommunicationError)
            except CommunicationError as error:
                if self.recover(error):
                    return unpacked(self.position.last_sum)
                continue
            self.position.operation += 1
            self.position.last_sum = packed(pieces)
            return pieces

    # --- epochs and the end ---

    def end_epoch(self) -> None:
        self.position.epoch += 1
        self.position.cursor = self.position.passes = 0
        self.position.has_begun = False
        self.generators.end_epoch()
        self.write_records()
        if (self.total_epochs is None or self.position.epoch < self.total_epochs) and self._halt_if_due():
            return
        if self.rank == 0:
            self._checkpoints.offer(epoch_is_over=True)

    def end_loop(self, write: Callable[[Path], None]) -> None:
        """Write the remaining records and the results on rank 0, and report that the loop is over."""
        self._write_results(write)
        self._report_end("trained")

    def finish(self, write: Callable[[Path], None]) -> None:
        """Finish together: rank 0 writes the remaining records and the results, and the others wait for it."""
        self.is_over = True
        while True:
            self._write_results(write)
            self._report_end("finished")
            if self.transitions.wait_for_the_end():
                return
            self.recover()

    def _write_results(self, write: Callable[[Path], None]) -> None:
        self.write_records()
        self._is_written = True
        if self.rank == 0:
            self._checkpoints.finish()
            self._checkpoints.confirm()
            if self.folder is not None:
                write(self.folder)

    def _report_end(self, kind: Literal["trained", "finished"]) -> None:
        position, place = self.position, (self.group.generation, self.position.step, self.position.epoch)
        # Changes of the script since the last update may be one rank's alone: the best weights, loaded by it.
        is_as_trained = self.transitions.on_cluster and self._count_writes() == self._writes
        digest = self._agreement.final() if is_as_trained else ""
        self.transitions.send(MemberMessage(kind, *place, operation=position.operation, digest=digest))

    def save_weights(self, name: str) -> None:
        """Write `<name>.pth` and `<name>_optimizer_state.pth` to the results. One rank calls it, between epochs."""
        if self.folder is not None:
            write_weights(self.folder, name, self.model, self.optimizers, self.transitions.state.registered)


def agreed_generation(control: list[float]) -> int:
    """Return the generation that the ranks have agreed on in that step's sum; 0: none."""
    return round(control[1] / control[0]) if control[0] > 0 else 0

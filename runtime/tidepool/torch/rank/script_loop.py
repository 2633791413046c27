"""A loop of a script's own: each `loss.backward()` is summed over the ranks, an optimizer's step is a boundary.

The script iterates over batches, of which each rank gets its share, and does what it likes. What lies between two
boundaries is a group: one batch, or several if the script accumulates gradients, with one sum or more for each batch.
Ranks come and go only at a boundary, when the next batch is asked for, so that what a body does after the optimizer's
step belongs to the group.

The body cannot be unwound when a rank dies. It continues to its optimizer's step, which does nothing; then the state
(position, buffers, schedules, and weights that a step of the group has changed already) is restored from the boundary,
and the group's batches are handed out again. A script that counts batches to accumulate is thereby in step again.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tidepool.procfs import end_at_once
from tidepool.refusal import Refusal
from tidepool.torch.comm.reducer import CONTROL_SIZE
from tidepool.torch.data import Feed
from tidepool.torch.rank.batches_ahead import BatchesAhead
from tidepool.torch.rank.boundary import Boundary
from tidepool.torch.rank.error_hints import BY_HAND, ErrorHints, Shares, refuse_unsummed
from tidepool.torch.rank.further_loaders import FurtherLoaders
from tidepool.torch.rank.loss_counts import Weight, weighted_gradient
from tidepool.torch.rank.loss_leaves import ForeignLeaves, depends_on
from tidepool.torch.rank.own_counts import OwnCounts
from tidepool.torch.rank.step import LOSS, Step
from tidepool.torch.rank.step_clock import TimePart
from tidepool.torch.rank.totals import Totals
from tidepool.torch.rank.training_loop import TrainingLoop, agreed_generation
from tidepool.torch.rank.unprepared_models import UnpreparedModels
from tidepool.torch.rank.volatile_state import place_digest
from tidepool.torch.state.training_state import Stateful

__all__ = ["ScriptLoop"]

#: Places of the control block, behind the metrics and before the times of steps: ranks that say where they are, and
#: the sum of what they say.
_WHERE = CONTROL_SIZE - 4
#: Upper bound of a rank's own numbers: sums over 4,096 ranks are exact.
_WHERES = 4096
#: A failed group ends with the script's next optimizer step; this is the largest number of further batches until then.
_MOST_IN_VAIN = 10_000


class ScriptLoop:
    """The group under way. Only the training thread calls it."""

    def __init__(
        self, training_loop: TrainingLoop, registered: dict[str, Stateful], words: ErrorHints | None = None
    ) -> None:
        self.training_loop = training_loop
        self.registered = registered
        self._words = words or ErrorHints()
        #: Factors on learning rates in an optimizer's step, by parameter group.
        self.factors: Callable[[], Sequence[float]] = self._factors
        #: Digest of the order in which this rank's pass takes the samples.
        self.order_digest: Callable[[], int] = lambda: 0
        self.further_loaders = FurtherLoaders()
        self._batches_ahead = BatchesAhead(training_loop.model)
        self.own_counts = OwnCounts()
        self.shares = Shares()
        self.totals = Totals(training_loop)
        training_loop.before_change = self.totals.gather_before_change
        training_loop.before_recovery = self._roll_back
        training_loop.reducer.lets_be = False
        training_loop.reducer.remedy = self._words.outside
        self._boundary = Boundary()
        #: The batch that the script is processing.
        self._step: Step | None = None
        self._stand_in = False
        #: Sums of the batch so far, and the control block of the newest; the losses of all of them are in it.
        self._sums = 0
        self._control: list[float] = []
        #: True if the script has called for an optimizer's step in this piece of the batch.
        self._step_called = False
        #: Gradients of the parameters when the sum under way began.
        self._accumulated: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        #: Whether the script has said what the next loss is a mean over.
        self._count: Weight | None = None
        #: True while a backward of the script is computed; and if the batch is computed in several pieces.
        self.is_back_propagating = self.has_pieces = False
        #: State of the group: complete batches, whether an optimizer has stepped, the generation to switch to.
        self._complete = 0
        self._stepped = self._has_stepped = False
        self._switch_to = 0
        #: A rank died: nothing of the group counts until it is handed out again. `_step_called_in_vain`: the script's
        #: own count of batches has come to the group's end.
        self._void = self._step_called_in_vain = False
        self._parameters = {id(parameter) for parameter in training_loop.model.parameters()}
        self.foreign = ForeignLeaves(self._parameters)
        self._unprepared = UnpreparedModels(training_loop.model, self._parameters, self.registered.values())
        #: True while the script gets batches of which nothing comes: it repeats what others have done, see `in_vain`.
        self.pretends = False
        #: The script counts batches without regard to passes, and whether it has got some twice in the present pass:
        #: its own counts are then beyond those of the training.
        self.counts_batches = self._repeats_in_pass = False
        #: Steps change weights before a group's last sum: keep what is needed to undo them.
        self._undoes = len(training_loop.optimizers) > 1
        #: The script has had the batch, or a piece of it, before: it adds nothing to the prepared objects again.
        self.repeats_body = False
        #: Optimizers that have stepped in the group.
        self._steppers: set[str] = set()

    # --- batches ---

    @property
    def is_at_boundary(self) -> bool:
        return not self._complete and not self._void

    @property
    def stands_in(self) -> bool:
        """Return whether other ranks compute the present batch, so that this rank's results are discarded."""
        return self._step is not None and self._stand_in

    @property
    def is_clean(self) -> bool:
        """Return whether nothing has happened since the newest boundary."""
        return self.is_at_boundary and not self._sums and not self._stepped

    @property
    def counts(self) -> bool:
        """Return whether the present work counts: it neither follows a failure nor covers a part of a batch only."""
        return not self._void and not self.pretends and self.is_whole

    @property
    def samples_under_way(self) -> int:
        """Return the number of samples of the present batch, over all ranks."""
        return self._step.samples if self._step is not None and not self._void else 0

    @property
    def is_whole(self) -> bool:
        """Return whether no further part of the present batch follows, and the batch counts for schedules."""
        return not self.pretends and (self._step is None or self._step.is_last or self._stand_in)

    @property
    def has_summed(self) -> bool:
        """Return whether gradients were summed since the newest boundary."""
        return bool(self._sums or self._complete)

    @property
    def in_batch(self) -> bool:
        return self._step is not None or self._void or self.pretends

    def batches(
        self,
        feed: Feed,
        order: list[int],
        draw: Callable[[list[int]], Any],
        further: Callable[[list[int]], list[int] | None],
        samples: int,
    ) -> Generator[Any]:
        """Hand out this rank's batches of a pass.

        draw: the batch of these samples. further: the order in which the pass goes on; None: it is over.
        samples: of an epoch.
        """
        training_loop, vain, self._repeats_in_pass = self.training_loop, 0, False
        while True:
            if not self._void:
                training_loop.position.counts = self.own_counts.now()
            self.close()
            if self._void:
                vain += 1
                if vain > _MOST_IN_VAIN:
                    raise RuntimeError("a rank died, and the script has called no optimizer's step since")
                position = training_loop.position  # other batches in turn: the script may make no step in one
                place = (position.cursor + (vain - 1) * position.effective_batch_size) % samples
                with training_loop.generators.aside():
                    yield draw(self._own_or_first(order, place))
                continue
            if self._complete and not self._has_stepped and training_loop.has_own_writes:
                raise Refusal(BY_HAND)
            if (going_on := further(order)) is None:
                return
            order = going_on
            if self.is_at_boundary:
                self.further_loaders.mark()
                if not training_loop.is_due():
                    continue
                self._begin_group()
            step = training_loop.open(feed, order, at_boundary=self.is_at_boundary)
            if self.is_at_boundary:
                self._boundary.buffers = training_loop.buffers.saved()
            yield from self._pieces(step, order, draw)
            self._end_batch(samples)

    def in_vain(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Hand out batches of which nothing comes: no sum, no step, and buffers and random numbers as they were."""
        training_loop = self.training_loop
        self.pretends = True
        try:
            with training_loop.generators.aside(), training_loop.buffers.kept():
                for batch in batches:
                    with self.shares.body():
                        yield batch
        finally:
            self.pretends = False
            self.carry_on()

    def _pieces(self, step: Step, order: list[int], draw: Callable[[list[int]], Any]) -> Generator[Any]:
        self._step, self._sums, self._control, self._count = step, 0, [], None
        self._stand_in, self.has_pieces, self.training_loop.update.made = not step.pieces, step.pieces > 1, 0
        self.training_loop.reducer.give_up()
        with self.training_loop.generators.aside():
            if self._stand_in:
                self._step_called = False
                yield self._batches_ahead.hand_out(draw(self._own_or_first(order, self.training_loop.position.cursor)))
                return
            for number, batch in enumerate(step):
                self._step_called = False
                if number:
                    self.repeats_body = True
                    self.own_counts.put_back(self.training_loop.position.counts)
                with self.shares.body(step.samples, step.samples_at_once):
                    yield self._batches_ahead.hand_out(batch)
                if self._void:
                    return
                if self.has_pieces and not self._step_called:
                    raise Refusal(
                        "this process computes each batch in several pieces, and the script did not call the "
                        f"optimizer's step after one: do not accumulate gradients yourself then. {self._words.pieces}"
                    )

    def _own_or_first(self, order: list[int], cursor: int) -> list[int]:
        """Return samples for a body whose gradients do not count: as many as a rank has of the batch at the cursor."""
        training_loop = self.training_loop
        chunk = training_loop.division.chunk(order, cursor)
        place = training_loop.position.step, training_loop.transitions.sharing
        first, last = training_loop.division.first_span(len(chunk), *place)
        return chunk[first:last]

    def _end_batch(self, samples: int) -> None:
        step, self._step = self._step, None
        if self._void or step is None:
            return
        if not self._sums:  # the script skipped it, as on all ranks
            self.training_loop.position.cursor += step.samples
            self.training_loop.position.batches += 1
            self._batches_ahead.leave()
            return
        self.training_loop.count(step, self._control, samples, self._complete)
        self._complete += 1

    # --- groups ---

    def _begin_group(self) -> None:
        training_loop = self.training_loop
        if not training_loop.transitions.on_cluster:
            return
        self._unprepared.look()
        self._boundary = Boundary.of(training_loop, self.registered)
        self._boundary.pending = self.totals.saved()

    def close(self) -> None:
        """End the group, if an optimizer has stepped or it must be repeated, as the script requests a batch."""
        if not self._void:
            if self._stepped:
                self.training_loop.note_own_writes()
                self._commit()
            return
        self._boundary.restore_weights(self.training_loop)
        if self.training_loop.caught_up:
            self._void = self.training_loop.caught_up = False
            self.carry_on()
            self._reset()
        elif self._step_called_in_vain:
            self._boundary.volatile.restore(self.registered, self.training_loop.optimizers)
            self.further_loaders.repeat()
            self.own_counts.put_back(self.training_loop.position.counts)
            self.repeats_body = True
            if self.training_loop.transitions.state.carried:
                self.carry_on()
            self._void = self._step_called_in_vain = False
            self._reset()

    def leave(self, samples: int) -> None:
        """End a pass of this many samples that the script leaves early."""
        if self._repeats_in_pass and not self.training_loop.is_over:
            end_at_once("a rank died in a pass that the script leaves by its count: start again from the checkpoint")
        self.training_loop.position.leaves_early = True
        if self._void and not self.training_loop.caught_up:
            text = "tidepool: the loop ended with a batch that a dead rank has spoiled: it is left out on all ranks"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            self._void = self._step_called_in_vain = False
            self._reset()
        self._end_batch(samples)
        self.close_pass()

    def close_pass(self) -> None:
        """End the pass. Gradients that no step has used remain for the next one, as in plain PyTorch."""
        self.close()
        self._batches_ahead.forget()
        if self._complete and not self._void:
            parameters = self.training_loop.model.named_parameters()
            self.training_loop.transitions.state.carried = {
                name: parameter.grad.clone() for name, parameter in parameters if parameter.grad is not None
            }
            self._commit(keep=True)

    def carry_on(self) -> None:
        """Give parameters the gradients that the state carries, or none."""
        carried = self.training_loop.transitions.state.carried
        for name, parameter in self.training_loop.model.named_parameters():
            gradient = carried.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device).clone()

    def _commit(self, *, keep: bool = False) -> None:
        generation, summed = self._switch_to, self._complete > 0
        if not keep:
            self.training_loop.transitions.state.carried = {}
        self._reset()
        self.repeats_body = False
        if summed:  # else the step has used what the pass had left over: that was a boundary already
            self.further_loaders.mark()
            self.training_loop.commit(generation)

    def _reset(self) -> None:
        self._complete, self._sums, self._stepped, self._switch_to = 0, 0, False, 0
        self._boundary = Boundary()

    # --- gradients ---

    def backward(
        self, roots: Sequence[torch.Tensor], gradients: Sequence[Any], run: Callable[[list[Any]], None]
    ) -> None:
        """Back-propagate the losses of the batch under way, and sum gradients over all ranks.

        run: the backward itself, given the roots' gradients. Which of these are None are scalars' own.
        """
        step, reducer = self._step, self.training_loop.reducer
        if not depends_on(roots, self._parameters):  # the loss of a copy of the model, as in meta-learning
            run(list(gradients))
            return
        if self._void or self.pretends or step is None:
            self._run(run, gradients)
            return
        self._batches_ahead.forget()
        if not step.number & (step.number - 1):
            self.foreign.note(roots)
        if (self._step_called and not self.is_whole) or (self._sums and self.training_loop.virtual_ranks):
            raise Refusal(
                "the script back-propagates again in the same batch, after its sum or after an optimizer's step: this "
                "needs whole batches (no rank_batch_size, and exactness sum)"
            )
        self._undoes = self._undoes or self._stepped
        if not reducer.is_under_way:
            self._begin_sum()
        if step.ends_last_part:
            reducer.expect_last_backward()
        factor = self._factor_of(step, roots)
        pairs = list(zip(roots, gradients, strict=True))
        losses = [self._unscaled(root.detach()) for root, given in pairs if given is None and root.numel() == 1]
        if not self._stand_in and isinstance(factor, float) and not factor:
            reducer.note_used(roots[0])
        else:
            self._run(run, [weighted_gradient(root, given, factor) for root, given in pairs])
        step.add(losses, factor)
        if self._stand_in:
            reducer.empty()
            self._sum(step)
        elif step.is_last:
            self._sum(step)
        else:
            self._set_aside()

    def add_up(self, values: Mapping[str, float]) -> None:
        """Add numbers of this rank's share of the batch under way to the totals."""
        if not self._stand_in or self.pretends or self._void:
            self.totals.add(values, in_vain=self.pretends or self._void)

    def weigh(self, count: Weight) -> None:
        """Note the number of items that the next loss of the batch under way is a mean over."""
        self._count = count

    def _factor_of(self, step: Step, roots: Sequence[torch.Tensor]) -> Weight:
        count, self._count = self._count, None
        if self._stand_in:
            return 0.0
        return step.weigh(roots[0] if len(roots) == 1 and roots[0].numel() == 1 else None, count)

    def _run(self, run: Callable[[list[Any]], None], gradients: Sequence[Any]) -> None:
        self.training_loop.reducer.open = self.is_back_propagating = True
        try:
            run(list(gradients))
        finally:
            self.training_loop.reducer.open = self.is_back_propagating = False

    def _unscaled(self, loss: torch.Tensor) -> torch.Tensor:
        scale = getattr(self.training_loop.update.scaler, "_scale", None)  # get_scale() would wait for the GPU
        return loss if scale is None else loss / scale.to(loss.device)

    def _begin_sum(self) -> None:
        """Empty the buckets, and keep what the script has accumulated so far."""
        self._accumulated = [
            (one, one.grad.clone()) for one in self.training_loop.model.parameters() if one.grad is not None
        ]
        self.training_loop.begin_sum()

    def _set_aside(self) -> None:
        """Leave the gradients of a piece in the buckets, where the script's clipping does not find them."""
        for parameter in self.training_loop.model.parameters():
            parameter.grad = None

    def _sum(self, step: Step) -> None:
        training_loop = self.training_loop
        data = self._sums, self.order_digest(), self.further_loaders.places()
        where = place_digest(training_loop.position, training_loop.optimizers, data) % _WHERES
        block, operation = training_loop.reducer.control, training_loop.position.operation
        block[_WHERE], block[_WHERE + 1] = 1.0, float(where)
        self.totals.give(step)
        control = training_loop.reduce(step)
        if control is None:
            self._fail(operation)
            return
        self.totals.take(step, control)
        ranks, total = control[_WHERE : _WHERE + 2]
        if total != ranks * where:
            raise Refusal(self._words.elsewhere)
        control[_WHERE : _WHERE + 2] = [0.0, 0.0]
        if training_loop.adaptation is not None:
            training_loop.adaptation.measure(control, training_loop.reducer, step.samples)
        hooks, run = training_loop.reducer.hooks, training_loop.update.run_on_gradients
        if hooks.exist:
            run(hooks.gradients_are_summed, step.number)
        for parameter, gradient in self._accumulated:
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self._accumulated = []
        if hooks.exist:
            run(hooks.gradients_are_accumulated, step.number)
        if self._sums:
            control[LOSS] += self._control[LOSS]
        step.begin_again()
        self._sums, self._control = self._sums + 1, control
        self._switch_to = self._switch_to or agreed_generation(control)

    # --- failures ---

    def _fail(self, operation: int) -> None:
        """Handle a rank's death, once the survivors have agreed. operation: boundaries that this rank had passed."""
        self._void = True
        self._step_called_in_vain = False
        self.totals.note_loss()
        self.training_loop.caught_up = self.training_loop.position.operation != operation
        if self.counts_batches and not self.training_loop.caught_up:
            end_at_once("a rank died, and the script counts its iterations: start again from the checkpoint")
        self._repeats_in_pass = self._repeats_in_pass or not self.training_loop.caught_up
        if self.training_loop.caught_up:  # what the body still does to the weights has been done to these
            self._boundary.keep_weights(self.training_loop)

    def _roll_back(self) -> None:
        """Restore weights, buffers and position of the newest boundary, before a recovery."""
        boundary, training_loop = self._boundary, self.training_loop
        if self.is_at_boundary and not self._sums:
            return
        if self._stepped and set(boundary.undo) != self._steppers:
            end_at_once("a rank died after a step of the first batch with several: start again from the checkpoint")
        boundary.restore(training_loop)
        self.totals.restore(boundary.pending)
        self._reset()
        self._boundary = boundary

    # --- updates ---

    def add_optimizer(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Add an optimizer that the script has made later to the training."""
        self.training_loop.transitions.state.add_optimizer(name, optimizer)
        self.training_loop.update.guard(optimizer)
        self._undoes = self._undoes or len(self.training_loop.optimizers) > 1

    def name_of(self, optimizer: torch.optim.Optimizer) -> str:
        """Return the name of the optimizer. Raises KeyError for one that is no part of the training."""
        every = self.training_loop.optimizers | self.training_loop.transitions.state.retired
        return {id(one): name for name, one in every.items()}[id(optimizer)]

    def step(self, name: str, real: Callable[[], Any]) -> Any:
        """Handle the script's call of an optimizer's or scaler's step; call `real` if it is due."""
        self._step_called = True
        self._step_called_in_vain = self._void
        if not self.counts:
            return None
        optimizer = self.training_loop.transitions.state.active(name)
        if self._step is not None and self.is_clean and not self.training_loop.transitions.state.carried:
            refuse_unsummed(self.training_loop.reducer, optimizer)
        if self._undoes:
            self._boundary.keep(name, optimizer)
        self.training_loop.note_own_writes()
        update = self.training_loop.update.by_script(self.training_loop.position.step, self.factors())
        with self.training_loop.clock.during(TimePart.OPTIMIZER), update:
            result = real()
        self._steppers = {*(self._steppers if self._stepped else ()), name}
        self._stepped = self._has_stepped = True
        self.training_loop.updated()
        return result

    def _factors(self) -> Sequence[float]:
        return self.training_loop.adaptation.factors if self.training_loop.adaptation else ()

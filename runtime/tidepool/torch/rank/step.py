"""One optimizer step as a rank sees it: its share of the samples, and what it adds to the sums."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from tidepool.protocol import StepRecord, to_json
from tidepool.refusal import Refusal
from tidepool.torch.adaptive.adaptation import Adaptation
from tidepool.torch.adaptive.profiler import TIMES, CompletedStep, Profiler, Shape
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.reducer import CONTROL_SIZE, Reducer
from tidepool.torch.data import Feed, MicroBatch, NoSamplesError, Part, to_device
from tidepool.torch.rank.loss_counts import LossCount, Weight, count_of
from tidepool.torch.rank.step_clock import StepClock, TimePart
from tidepool.torch.state.buffers import Buffers
from tidepool.torch.state.randomness import seed_step
from tidepool.torch.state.training_state import Position
from tidepool.torch.state.update import Update, learning_rates

__all__ = ["LOSS", "RECORDED", "TOTAL", "Step", "StepParts"]

#: Number of places of the control block before the metrics: flag, flag x generation, ranks with a new name, excess of
#: counted items over samples, loss.
_FIXED = 5
_EXCESS, LOSS = 3, 4
_METRICS = CONTROL_SIZE - _FIXED
#: Places of the times of the step before.
_TIMES = slice(CONTROL_SIZE - TIMES, CONTROL_SIZE)
#: Largest number of metrics that leaves places for the times.
_TIMED_METRICS = _METRICS - TIMES
_NAME_BYTES = 64
#: Prefix of the names of totals, which are summed like metrics and are none.
TOTAL = "total/"
#: Names in each step's record, which no metric of a script can have.
RECORDED = frozenset({*StepRecord.__struct_fields__, "loss", "samples_per_second"})


@dataclass(frozen=True)
class StepParts:
    """The objects of a session that all of its steps work on."""

    seed: int
    position: Position
    reducer: Reducer
    buffers: Buffers
    update: Update
    profiler: Profiler
    clock: StepClock
    adaptation: Adaptation | None = None
    #: Facts that earlier losses have shown about their counts, see `loss_counts.py`.
    seen_losses: dict[str, bool] = field(default_factory=dict)


class Step:
    """A step: iterate over it for this rank's micro-batches, and call `backward` once for each."""

    def __init__(
        self, shared: StepParts, feed: Feed, samples: list[int], parts: list[Part], device: torch.device
    ) -> None:
        self._shared = shared
        self._device = device
        self._feed = feed
        self._indices = samples
        self._parts = parts
        #: The last part that has samples; parts without any may follow it.
        self._last_filled = max((place for place, part in enumerate(parts) if part.pieces), default=-1)
        #: Whether the micro-batch under way is this rank's last one of the step.
        self.is_last = False
        #: Whether, besides, no empty part follows it: its gradients may be sent as they come.
        self.ends_last_part = False
        #: Number of parts that have ended: all but the last one when the step is complete.
        self._ended = 0
        #: Samples of the whole step, over all ranks.
        self.samples = len(samples)
        #: Number of this step, from 0.
        self.number = shared.position.step
        self.epoch = shared.position.epoch
        self.begun_at = self._piece_begun_at = time.monotonic()
        self._has_begun = False
        shared.profiler.watch.start()
        #: Weight of the current micro-batch in the step; 0 once it has been back-propagated.
        self._weight = 0.0
        #: Weight of its metrics, which may be logged before or after that.
        self._share = 0.0
        #: Whether the current micro-batch stands in for one that has no samples after all.
        self._is_empty = False
        self._planned = 0
        #: Sum of the part's losses, each with its factor, in float32 at least; 0.0 before the first one.
        self._loss: torch.Tensor | float = 0.0
        #: Sum, over this part's losses, of the items that they are means over, less their samples. The items are in
        #: units of `Position.items_per_sample`.
        self._excess: Weight = 0.0
        #: Whether a loss is a mean over something other than samples.
        self._is_counted = False
        #: Metrics of the current micro-batch.
        self._named: set[str] = set()
        #: Sums of this part's metrics that have a place in the control block.
        self._logged: dict[str, torch.Tensor | float] = {}
        #: Sums, over all of this rank's parts, of metrics that are logged for the first time.
        self._new: dict[str, torch.Tensor | float] = {}
        #: Times of the step before, from this one's sums: seconds for a micro-batch, added up over so many ranks.
        self.reported_times = (0.0, 0.0)

    @property
    def samples_at_once(self) -> int:
        """Return the number of samples of the current micro-batch."""
        return round(self._share * self.samples)

    def __iter__(self) -> Iterator[Any]:
        for place, part in enumerate(self._parts):
            seed_step(self._shared.seed, self.number, part.number)
            for first, last in part.pieces:
                self._weight = self._share = (last - first) / self.samples
                self._is_empty = False
                self._named.clear()
                self.is_last = place == self._last_filled and last == part.pieces[-1][1]
                self.ends_last_part = self.is_last and place + 1 == len(self._parts)
                if self.ends_last_part:
                    self._shared.reducer.expect_last_backward()
                self._time_piece()
                with self._shared.clock.during(TimePart.DATA):
                    piece = self._taken(MicroBatch(self.number, first, self._indices[first:last]))
                    batch = to_device(piece, self._device)
                self._shared.clock.enter(TimePart.COMPUTE)
                yield batch
            if place == self._ended and place + 1 < len(self._parts):  # a script's own sum has ended all of them
                self._end_part()

    def _time_piece(self) -> None:
        """Begin to measure a micro-batch; the first one began with the step."""
        if self._has_begun:
            self._piece_begun_at = time.monotonic()
            self._shared.profiler.watch.start_next()
        self._has_begun = True

    def _taken(self, piece: MicroBatch) -> Any:
        """Return the micro-batch; where its collate function leaves out all samples, the whole step's, which counts
        nothing then."""
        try:
            return self._feed.take(piece)
        except NoSamplesError:
            if len(piece.indices) == self.samples:
                raise
            batch = self._feed.read(self.number, self._indices)
            self._is_empty, self._share, self._planned = True, 0.0, len(piece.indices)
            return batch

    def backward(self, loss: torch.Tensor, *, weight: Weight | None = None) -> None:
        """Back-propagate the loss of the current micro-batch, weighed by its part of the whole step.

        Once for each: the sums over all processes may be under way already when it returns.
        weight: number of items (such as labels) that the loss is a mean over; None: as its graph shows, or samples.
        """
        if not self._weight:
            raise Refusal("step.backward() takes one loss for each micro-batch: add several up before it")
        factor = self.weigh(loss, weight)
        self._weight = 0.0
        self._add_loss(loss.detach(), factor)
        if isinstance(factor, float) and not factor:
            self._shared.reducer.note_used(loss)
        else:
            self._shared.reducer.open = True
            self._shared.update.scaled(loss * factor).backward()  # type: ignore[no-untyped-call]
            self._shared.reducer.open = False
        self._back_propagated(factor)

    def run(self, compute: Callable[[], torch.Tensor | float]) -> None:
        """Do `backward` for code that zeroes gradients, back-propagates a mean loss itself, and returns it."""
        if not self._weight:
            raise Refusal("step.run() is called once for each micro-batch, in place of step.backward()")
        self._weight = 0.0
        factors: list[Weight] = []

        def factor() -> Weight:
            return factors[0] if len(factors) == 1 else self._share

        with self._shared.reducer.apart(factor), _seen_backward(lambda loss: factors.append(self.weigh(loss))):
            loss = torch.as_tensor(compute()).detach()
        self._add_loss(loss, factor())
        self._back_propagated(factor())

    def weigh(self, loss: torch.Tensor | None, given: Weight | None = None) -> Weight:
        """Return the factor of a loss of the current micro-batch, and count what it is a mean over.

        given: that count; None: as the loss's graph shows. loss: None if there is no single one.
        Raises ValueError for a count that is none.
        """
        if isinstance(given, float | int) and not 0 <= given < math.inf:
            raise Refusal(f"the weight of a loss counts what it is a mean over, and is not {given}")
        if self._share == 1.0:  # all of the step: a mean of its own
            return 1.0
        if self._is_empty:
            self._excess = self._excess - self._planned
            self._is_counted = True
            return 0.0
        samples = self._share * self.samples
        batch_size, seen = self._shared.position.effective_batch_size, self._shared.seen_losses
        found = LossCount() if loss is None else count_of(loss, round(samples), batch_size, seen)
        count = found.count if given is None else given
        if given is None and found.is_mixed:
            _say_mixed()
        if given is None and found.is_sum:
            self._is_counted = True
            return 1.0
        if count is None:
            return self._share
        items = count / self._shared.position.items_per_sample
        if isinstance(items, float) and items == round(samples):
            return self._share
        self._excess = self._excess + (items - samples)
        self._is_counted = True
        return items / self.samples

    def _add_loss(self, loss: torch.Tensor, factor: Weight) -> None:
        weighted = loss.reshape(()) * factor
        if isinstance(factor, torch.Tensor):
            weighted = torch.where(factor > 0, weighted, 0.0)
        if not isinstance(factor, float) or factor:  # a mean over nothing is not a number
            so_far = self._loss.to(loss.device) if isinstance(self._loss, torch.Tensor) else self._loss
            self._loss = so_far + weighted.to(torch.promote_types(weighted.dtype, torch.float32))

    def _back_propagated(self, factor: Weight) -> None:
        self._shared.clock.enter(TimePart.SCRIPT)
        if not self.is_last:  # the script's work until the next micro-batch is none of its gradients
            self._shared.profiler.watch.stop()
        if self._shared.adaptation is not None:
            self._shared.adaptation.back_propagated(
                self._shared.reducer, self._share, factor if self._is_counted else None
            )

    @property
    def pieces(self) -> int:
        """Micro-batches of this rank."""
        return sum(len(part.pieces) for part in self._parts)

    @property
    def weight(self) -> float:
        """Weight of the current micro-batch in the step."""
        return self._share

    def add(self, losses: list[torch.Tensor], factor: Weight) -> None:
        """Add losses that the script has back-propagated itself, with this factor."""
        for loss in losses:
            self._add_loss(loss, factor)
        self._back_propagated(factor)

    def begin_again(self) -> None:
        """Prepare for another sum of the same step."""
        self._loss, self._excess = 0.0, 0.0

    def log(self, **means: torch.Tensor | float) -> None:
        """Add metrics of the current micro-batch (means over its samples) to this step's record.

        Raises ValueError for a name that is too long, that the record has anyway, or that was logged for the same
        micro-batch: no name stands for two values.
        """
        for name, value in means.items():
            if name in RECORDED:
                raise Refusal(f"each step's record has {name!r} already: log the value under another name")
            if name in self._named:
                raise Refusal(f"{name!r} is logged twice for one micro-batch: give the two values different names")
            self._named.add(name)
            if len(name.encode()) > _NAME_BYTES:
                raise Refusal(f"the name of a metric takes at most {_NAME_BYTES} bytes; {name!r} is longer")
            number = value.detach() if isinstance(value, torch.Tensor) else value
            sums = self._logged if name in self._shared.position.metric_names else self._new
            sums[name] = sums.get(name, 0.0) + number * self._share

    def add_totals(self, sums: Mapping[str, float]) -> None:
        """Add numbers to the sum over all ranks, which `totals` returns."""
        for name, value in sums.items():
            known = f"{TOTAL}{name}" in self._shared.position.metric_names
            (self._logged if known else self._new)[f"{TOTAL}{name}"] = value

    def totals(self, control: list[float]) -> dict[str, float]:
        """Return the sums over all ranks of what they have added. control: summed over all ranks."""
        places = enumerate(self._shared.position.metric_names)
        return {name.removeprefix(TOTAL): control[_FIXED + place] for place, name in places if name.startswith(TOTAL)}

    def complete(self, generation: int) -> None:
        """Complete this rank's part in the step's sums, once the script is done with it.

        generation: the generation that this rank has been instructed to switch to after this step, or 0.
        """
        while self._ended + 1 < len(self._parts):  # the script did not go through all of it
            self._end_part()
        self._shared.profiler.watch.stop()
        self._write_part()
        self._shared.reducer.while_summing = partial(self._shared.clock.timed, TimePart.DATA, self._feed.look_ahead)
        control = self._shared.reducer.control
        if self._is_timed:
            self._shared.profiler.write(control[_TIMES])
        else:
            self._shared.profiler.refuse(f"the script logs more than {_TIMED_METRICS} metrics in a step")
        if self._shared.adaptation is not None:
            self._shared.adaptation.write(control)
        control[0] = 1.0 if generation else 0.0
        control[1] = float(generation)
        control[2] = 1.0 if self._new else 0.0

    def _end_part(self) -> None:
        """Store the results of this part, and restore the state for the next one."""
        self._write_part()
        self._shared.reducer.end_part()
        self._shared.buffers.restore()
        self._ended += 1
        self._loss, self._excess = 0.0, 0.0
        self._logged = {}

    def _write_part(self) -> None:
        """Loss and metrics of the part into the control block; buffers too, if everybody's are this part's."""
        reducer = self._shared.reducer
        reducer.control[LOSS] = self._loss
        reducer.control[_EXCESS] = self._excess
        for place, name in enumerate(self._shared.position.metric_names):
            reducer.control[_FIXED + place] = self._logged.get(name, 0.0)
        if self._parts and self._parts[self._ended].number == 0:
            self._shared.buffers.pack(reducer.buffers)
            if self._shared.buffers.reshaped:
                reducer.note_reshaped_buffers()

    def rescaling(self, control: list[float]) -> float:
        """Return the factor by which the sums become means over all items. control: summed over all ranks."""
        items = self.samples + control[_EXCESS]
        return self.samples / items if control[_EXCESS] and items > 0 else 1.0

    def change_of_items(self, control: list[float]) -> float:
        """Return the factor by which the items per sample have changed; 1 for a small change, which needs no other."""
        factor = 1.0 + control[_EXCESS] / self.samples
        return factor if factor > 0 and not 0.8 <= factor <= 1.25 else 1.0

    def agree_on_names(self, control: list[float], group: Group) -> None:
        """Give the names that a rank has logged for the first time the same places on all ranks.

        `control`: the summed control block, which gets their sums too. Raises CommunicationError.
        """
        names = self._shared.position.metric_names
        self._take_times(control)
        if not control[2]:
            return
        named = torch.zeros(group.size, _METRICS, 1 + _NAME_BYTES, dtype=torch.float64)
        for row, (name, value) in zip(named[group.rank], self._new.items(), strict=False):
            row[0] = float(value)
            row[1 : 1 + len(name.encode())] = torch.tensor(list(name.encode()), dtype=torch.float64)
        group.wait(group.all_reduce(named))
        sums: dict[str, float] = {}
        for value, *letters in named.flatten(0, 1).tolist():
            name = bytes(int(letter) for letter in letters if letter).decode()
            sums[name] = sums.get(name, 0.0) + value
        names += sorted(name for name in sums if name)
        known = {*names, *self._new}
        if len(known) > _METRICS:
            raise Refusal(f"a step takes at most {_METRICS} metrics: {', '.join(sorted(known))} are more")
        for place, name in enumerate(names):
            control[_FIXED + place] += sums.get(name, 0.0)

    @property
    def _is_timed(self) -> bool:
        return len(self._shared.position.metric_names) <= _TIMED_METRICS

    def _take_times(self, control: list[float]) -> None:
        """Read the times, and free their places for metrics, which may use them in this step."""
        if self._is_timed:
            seconds, ranks = control[_TIMES]
            self.reported_times = seconds, ranks
            control[_TIMES] = [0.0] * TIMES

    def made(self, seconds: float, generation: int, hosts: int, ranks: int) -> CompletedStep:
        pieces = [last - first for part in self._parts for first, last in part.pieces]
        shape = Shape(hosts, ranks, max(pieces, default=0))
        return CompletedStep(shape, len(pieces), seconds, generation, self._piece_begun_at - self.begun_at)

    def record(
        self, control: list[float], seconds: float, group: Group, attempt: int, progress: float | None
    ) -> dict[str, Any]:
        """Return a line of `metrics.jsonl`, once the step is complete. control: summed over all ranks."""
        position, adaptation = self._shared.position, self._shared.adaptation
        made = StepRecord(
            step=position.step,
            epoch=position.epoch,
            cursor=position.cursor,
            samples=self.samples,
            world_size=group.size,
            generation=group.generation,
            attempt=attempt,
            at=time.time(),
            progress=None if progress is None else round(progress, 6),
        )
        return {
            **to_json(made),
            **learning_rates(self._shared.update.optimizers),
            "samples_per_second": round(self.samples / seconds, 3),
            **(adaptation.metrics() if adaptation is not None else {}),
            **self.metrics(control),
        }

    def metrics(self, control: list[float]) -> dict[str, float]:
        """The step's metrics over all ranks, from the summed control block: float32, so seven digits mean something."""
        names = ["loss", *self._shared.position.metric_names]
        pairs = zip(names, control[_FIXED - 1 :], strict=False)
        return {name: float(f"{value:.7g}") for name, value in pairs if not name.startswith(TOTAL)}


@contextmanager
def _seen_backward(see: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Show each loss that is back-propagated in the block."""
    real = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **keywords: Any) -> None:
        if isinstance(tensors, torch.Tensor):
            see(tensors)
        real(tensors, *args, **keywords)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = real


@cache
def _say_mixed() -> None:
    text = (
        "tidepool: the loss adds means over different things (such as labels, some of which are ignored, and samples). "
        "All of it is weighed by the labels: on several ranks the other terms differ from one process's. Call "
        "loss.backward() for each term by itself, in a loop of your own"
    )
    print(text, file=sys.stderr, flush=True)  # noqa: T201

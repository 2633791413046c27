"""Adaptive batch size: rank 0 chooses the number of samples of a step by goodput, and all ranks change in the same
step.

`Session(adaptive=Adaptive(...))` enables it. The control block is then twice as long, and its second half carries
(C is `CONTROL_SIZE`, the index of the first place):

| Places | Content |
|---|---|
| C, C+1 | from rank 0: samples of the next step, and its further micro-batches (exact up to 2^24) |
| C+2, C+3 to C+10 | from rank 0: what the next step is worth, and the factors of learning rates by group |
| C+21 | from rank 0: the batch stays as it was submitted, for good |
| C+11, C+12, C+13 to C+20 | of this step's parts: sum of 1 / samples, their number, squared lengths by group |

Values in a step's sum apply to the next step, bit-identical on every rank.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, Protocol

import torch

from tidepool.goodput.model import Bounds, Size
from tidepool.protocol import AdaptedBatch, StepTimes
from tidepool.rank_process import note_micro_batch
from tidepool.refusal import Refusal
from tidepool.torch.adaptive.gradient_noise import MOST_GROUPS, NoiseAverages, SquaredNorms, estimate
from tidepool.torch.adaptive.profiler import TimesOfSteps, device_kind
from tidepool.torch.adaptive.scaling_rules import RULES, Moment, Rule, chosen_rule, factor
from tidepool.torch.comm.reducer import CONTROL_SIZE, Bucket, Reducer
from tidepool.torch.data import Part
from tidepool.torch.state.training_state import BatchChoice

__all__ = ["ADAPTIVE_CONTROL_SIZE", "Adaptation", "Adaptive", "adaptation_of"]

ADAPTIVE_CONTROL_SIZE = 2 * CONTROL_SIZE
_NEXT, _GAIN, _FACTORS = CONTROL_SIZE, CONTROL_SIZE + 2, CONTROL_SIZE + 3
_INVERSE = _FACTORS + MOST_GROUPS
_PARTS, _SQUARES = _INVERSE + 1, _INVERSE + 2
_PINNED = _SQUARES + MOST_GROUPS
#: Index of the loss in the control block, as in `step.py`.
_LOSS = 4
#: Integers up to here are exact in the control block.
_MOST_SAMPLES = 2**24


@dataclass(frozen=True)
class Adaptive:
    """Let the session change the effective batch size.

    max_batch_size: most samples of a step.
    rank_bounds: least and most samples of a rank's micro-batch. Without it at most `rank_batch_size`, or else the
        effective batch size that was asked for: no micro-batch is larger than one that is known to fit.
    accumulation: a step may have several micro-batches on each rank.
    rule: how learning rates follow: "adascale", "adamscale", "linear", "sqrt", "legw"; "auto": AdaScale, for Adam
        its root. The factor holds during `optimizer.step` alone: schedules see their own rate.
    warm_up_steps: of "legw", at the effective batch size that was asked for.
    every_seconds: least time between two changes, but for those after a change of size.

    Raises ValueError, listing all problems.
    """

    max_batch_size: int
    rank_bounds: tuple[int, int] | None = None
    accumulation: bool = True
    rule: Rule = "auto"
    warm_up_steps: int = 0
    every_seconds: float = 30.0

    def check(self, batch_size: int, virtual_ranks: int | None) -> None:
        low, high = self.rank_bounds or (1, batch_size)
        wrong = {
            f"max_batch_size is {self.max_batch_size}, less than the effective batch size {batch_size}": (
                self.max_batch_size < batch_size
            ),
            f"max_batch_size is {self.max_batch_size}, more than {_MOST_SAMPLES}": self.max_batch_size > _MOST_SAMPLES,
            f"rank_bounds are {low} and {high}: give the least and the most samples of a micro-batch, from 1 on": (
                not 1 <= low <= high
            ),
            f"rule is {self.rule!r}; it is one of {', '.join(RULES)}": self.rule not in RULES,
            "every_seconds and warm_up_steps must not be negative": min(self.every_seconds, self.warm_up_steps) < 0,
            "exactness 'bitwise' promises the same bits on any ranks, and the batch would follow from measured times:"
            " leave adaptive out, or train in 'sum'": virtual_ranks is not None,
        }
        if any(wrong.values()):
            raise Refusal("; ".join(sentence for sentence, is_so in wrong.items() if is_so))

    def bounds(self, batch_size: int, rank_batch_size: int | None, limit: int | None = None) -> Bounds:
        """limit: samples of a micro-batch that fit the memory at most, as has been found out."""
        low, high = self.rank_bounds or (1, rank_batch_size or batch_size)
        high = min(high, limit or high)
        return Bounds(batch_size, self.max_batch_size, min(low, high), high, self.accumulation)


class Chooser(Protocol):
    """Interface of `BatchChooser`, whose module loads scipy."""

    #: Whether the loss rose after the batch had grown, so that the submitted batch is kept.
    is_pinned: bool

    def saw(self, loss: float) -> None: ...

    def choose(
        self,
        present: BatchChoice,
        noise: tuple[float, float] | None,
        times: Callable[[], list[StepTimes]],
        where: tuple[int, Size],
        now: float,
    ) -> BatchChoice: ...


class Adaptation:
    """One rank's part. Its state is the same on all ranks, and goes with the training's."""

    def __init__(
        self,
        wanted: Adaptive,
        bounds: Bounds,
        optimizers: Mapping[str, torch.optim.Optimizer],
        scaler: torch.amp.GradScaler | None,
        chooser: Chooser,
        kind: str,
    ) -> None:
        self._chooser = chooser
        self._kind = kind
        self.bounds = bounds
        self._rule = chosen_rule(wanted.rule, optimizers)
        self._warm_up_steps = wanted.warm_up_steps
        self._lengths = SquaredNorms(optimizers)
        self._scaler = scaler
        #: Batch of the present step.
        self.choice = BatchChoice(bounds.batch_size, 0)
        self.gain = 1.0
        self.factors = [1.0] * self._lengths.count
        #: Progress so far, in steps at the submitted batch.
        self.progress = 0.0
        self.noise = NoiseAverages()
        #: Progress since the newest measurement, estimated from samples.
        self._since = 0.0
        #: Batch that rank 0 announces with this step's sum.
        self._next: BatchChoice | None = None
        self._meter: _Meter | None = None
        self._measured: list[tuple[float, float]] | None = None
        self._made: dict[str, float] = {}

    # --- a step ---

    def largest(self, samples: int, number: int, ranks: int) -> int:
        """Samples of a micro-batch, where so many ranks share a step of so many samples."""
        share = -(-samples // ranks)
        most = self.bounds.max_micro_batch or share
        count = max(self.choice.accumulation + 1, -(-share // most))
        if ranks == 1 and self._lengths.is_cut(number):
            count = max(count, 2)  # a single rank tells noise by its first micro-batch
        return max(1, -(-share // count))

    def begin(self, number: int, samples: int, own: list[Part], reducer: Reducer, *, is_alone: bool) -> None:
        """Begin a step of this many samples. own: this rank's parts of it. is_alone: no other rank computes."""
        ready = self._lengths.is_ready(number)
        pieces = [last - first for part in own for first, last in part.pieces]
        note_micro_batch(self._kind, max(pieces, default=0))
        count = sum(pieces)
        self._meter = _Meter(self._lengths, samples, count, is_alone) if ready else None
        reducer.on_launch = partial(self._launch, reducer) if ready else None

    def choose(self, times: TimesOfSteps | None, where: tuple[int, Size] | None, now: float) -> None:
        """Choose the next step's batch on rank 0. times: as measured; None on other ranks. where: None: no change."""
        self._next = None if times is None else self.choice
        if times is not None and where is not None:
            self._next = self._chooser.choose(self.choice, self.noise.total(), times.medians, where, now)

    def back_propagated(self, reducer: Reducer, weight: float, factor: float | torch.Tensor | None = None) -> None:
        """Record a back-propagated micro-batch, which is this fraction of the whole step.

        factor: of its loss, if that is a mean over something other than samples.
        """
        if self._meter is not None:
            self._meter.back_propagated(reducer.buckets, weight, factor)

    def _launch(self, reducer: Reducer, bucket: Bucket) -> None:
        """Read a complete bucket before its sum begins; the last one carries the control block."""
        if self._meter is not None:
            self._meter.launch(bucket)
            if bucket is reducer.buckets[-1]:
                self._meter.write(reducer.control)

    def write(self, control: torch.Tensor) -> None:
        if self._next is not None:
            worth, factors = self._worth(self._next)
            choice = [float(self._next.batch), float(self._next.accumulation), worth, *factors]
            for place, value in enumerate(choice, _NEXT):
                control[place] = value
            control[_PINNED] = float(self._chooser.is_pinned)

    def measure(self, control: list[float], reducer: Reducer, samples: int) -> None:
        """Measure the gradients after they are summed, before any hook changes them."""
        self._measured = None
        parts = control[_PARTS]
        if self._meter is None or parts < 1:
            return
        lengths = [self._lengths.squares(bucket.parameters, bucket.views) for bucket in reducer.buckets]
        squares = torch.stack([one.to(lengths[0].device) for one in lengths]).sum(0).tolist()
        scale = self._scaler.get_scale() ** 2 if self._scaler is not None else 1.0
        of_parts = control[_SQUARES : _SQUARES + len(squares)]
        inverse = control[_INVERSE] / parts
        found = [
            estimate(part / parts / scale, inverse, whole / scale, samples)
            for part, whole in zip(of_parts, squares, strict=True)
        ]
        if all(found):
            self._measured = [one for one in found if one is not None]

    def advance(self, control: list[float], samples: int) -> int:
        """Record a completed step's progress and measurements; return the number of samples of the next one."""
        self._made = self._figures()
        self._chooser.saw(control[_LOSS])
        self._chooser.is_pinned = self._chooser.is_pinned or control[_PINNED] > 0
        self.progress += self.gain * samples / self.choice.batch
        self._since += samples / self.bounds.batch_size
        if self._measured is not None:
            self.noise.add(self._measured, self._since)
            self._since, self._measured = 0.0, None
        if control[_NEXT] >= 1:
            self.choice = BatchChoice(round(control[_NEXT]), round(control[_NEXT + 1]))
            self.gain = control[_GAIN]
            self.factors = control[_FACTORS : _FACTORS + len(self.factors)]
        return self.choice.batch

    def _worth(self, choice: BatchChoice) -> tuple[float, list[float]]:
        at = Moment(self.bounds.batch_size, choice.batch, self.progress, self._warm_up_steps)
        groups = self.noise.groups() or repeat(None, len(self.factors))
        return factor("adascale", self.noise.total(), at), [factor(self._rule, group, at) for group in groups]

    # --- questions of other modules ---

    def epoch_is_over(self, epoch: int, samples: int) -> bool:
        return self.progress >= samples * (epoch + 1) / self.bounds.batch_size * (1 - 1e-9)

    def done(self, samples: int) -> float:
        """Return the number of completed epochs, including the fraction of the present one."""
        return self.progress * self.bounds.batch_size / samples

    def metrics(self) -> dict[str, float]:
        """Metrics of the last completed step."""
        return self._made

    def reported_batch(self, ranks: int) -> AdaptedBatch:
        """Return rank 0's report to the control plane. ranks: number of ranks that share a step now."""
        bounds, choice, noise = self.bounds, self.choice, self.noise.total()
        least, most = bounds.min_micro_batch, bounds.max_micro_batch or bounds.batch_size
        variance, square = (float(f"{value:.4g}") for value in noise) if noise else (None, None)
        return AdaptedBatch(
            submitted=bounds.batch_size,
            most=bounds.max_batch_size or bounds.batch_size,
            batch=choice.batch,
            least_micro_batch=least,
            most_micro_batch=most,
            micro_batch=-(-choice.batch // (ranks * (choice.accumulation + 1))),
            accumulates=bounds.accumulation,
            accumulation=choice.accumulation,
            pinned=self._chooser.is_pinned,
            gain=float(f"{self.gain:.6g}"),
            progress=float(f"{self.progress:.6g}"),
            variance=variance,
            squared_gradient=square,
            rate_factors=[float(f"{each:.4g}") for each in self.factors],
        )

    def _figures(self) -> dict[str, float]:
        total = self.noise.total()
        scale = total[0] / total[1] if total and total[1] else math.nan
        return {
            "batch_size": float(self.choice.batch),
            "accumulation": float(self.choice.accumulation),
            "gain": float(f"{self.gain:.6g}"),
            **({"noise_scale": float(f"{scale:.6g}")} if math.isfinite(scale) else {}),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "batch_size": self.bounds.batch_size,
            **asdict(self.choice),
            "gain": self.gain,
            "factors": [*self.factors],
            "progress": self.progress,
            "noise": asdict(self.noise),
            "since": self._since,
            "pinned": self._chooser.is_pinned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.choice = BatchChoice(state["batch"], state["accumulation"])
        self.gain, self.progress, self._since = state["gain"], state["progress"], state["since"]
        self._chooser.is_pinned = state["pinned"]
        self.factors, self.noise = [*state["factors"]], NoiseAverages(**state["noise"])


class _Meter:
    """Measures the gradient norms of this rank's part in one step."""

    def __init__(self, lengths: SquaredNorms, samples: int, own: int, is_alone: bool) -> None:
        self._lengths, self._is_alone = lengths, is_alone
        self._samples = samples
        #: Samples of the measured part; 0: none is measured.
        self._read = 0 if is_alone else own
        self._sums: list[torch.Tensor] = []
        #: Factor of the part's losses, where it is not its share of the samples.
        self._factor: float | torch.Tensor | None = None

    def back_propagated(self, buckets: list[Bucket], weight: float, factor: float | torch.Tensor | None) -> None:
        """A single rank's first micro-batch is the part, unless it is all of the step."""
        part = round(weight * self._samples)
        if factor is not None and not (self._is_alone and self._sums):
            self._factor = factor if self._factor is None else self._factor + factor
        if self._is_alone and not self._sums and part < self._samples:
            self._read = part
            self._sums = [self._lengths.squares(bucket.parameters, bucket.views) for bucket in buckets]

    def launch(self, bucket: Bucket) -> None:
        if not self._is_alone and self._read:
            self._sums.append(self._lengths.squares(bucket.parameters, bucket.views))

    def write(self, control: torch.Tensor) -> None:
        if not self._sums or not self._read:
            return
        control[_INVERSE], control[_PARTS] = 1 / self._read, 1.0
        squares = torch.stack([one.to(control.device) for one in self._sums]).sum(0)
        inverse = self._samples / self._read if self._factor is None else 1 / self._factor
        control[_SQUARES : _SQUARES + len(squares)] = squares * inverse**2


def adaptation_of(
    wanted: Adaptive,
    batch_size: int,
    rank_batch_size: int | None,
    virtual_ranks: int | None,
    optimizers: Mapping[str, torch.optim.Optimizer],
    scaler: torch.amp.GradScaler | None,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Adaptation:
    """limits: as `LaunchSpec.micro_batch_limits`. Raises ValueError for what cannot be adapted so."""
    from tidepool.torch.adaptive.batch_chooser import BatchChooser  # scipy, which no other training needs

    wanted.check(batch_size, virtual_ranks)
    kind = device_kind(next(iter(optimizers.values())).param_groups[0]["params"][0].device)
    bounds = wanted.bounds(batch_size, rank_batch_size, limits.get(kind))
    return Adaptation(wanted, bounds, optimizers, scaler, BatchChooser(bounds, wanted.every_seconds), kind)

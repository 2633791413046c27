"""Rank 0's choice of the batch: the one with the highest goodput on the present ranks.

It is called before each step and returns at once. Parameters are fitted and batches compared only when a choice is due:
in the first step that all ranks of a new generation share, and at a fixed interval otherwise.
"""

import sys
from collections.abc import Callable

from tidepool.goodput.curve import best
from tidepool.goodput.fit import fit
from tidepool.goodput.model import Bounds, NoiseScale, Point, Size, ThroughputParameters, gain
from tidepool.protocol import StepTimes
from tidepool.torch.state.training_state import BatchChoice

__all__ = ["BatchChooser", "LossWatch"]

#: Relative gain in goodput from which the batch is changed.
WORTH_A_CHANGE = 1.05
#: Number of steps for which the loss is watched after the batch has grown, and its highest tolerated factor.
WATCHED_STEPS, _RISEN = 200, 1.1
_SMOOTHING = 0.95


class LossWatch:
    """Detects a loss that rises after the batch has grown."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._before = 0.0
        self._steps_left = 0

    def grown(self) -> None:
        if self._mean is not None:
            self._before, self._steps_left = self._mean, WATCHED_STEPS

    def add(self, loss: float) -> bool:
        """Add a step's loss. True: `WATCHED_STEPS` after a growth it is higher than before, or not finite."""
        self._mean = loss if self._mean is None else _SMOOTHING * self._mean + (1 - _SMOOTHING) * loss
        if not self._steps_left:
            return False
        self._steps_left -= 1
        return not self._steps_left and not self._mean <= self._before + (_RISEN - 1) * abs(self._before)


class BatchChooser:
    def __init__(self, bounds: Bounds, every_seconds: float) -> None:
        self._bounds = bounds
        self._every_seconds = every_seconds
        self._generation = 0
        self._looked_at: float | None = None
        self._parameters: ThroughputParameters | None = None
        self._watch = LossWatch()
        #: Whether the loss rose, so that the submitted batch is kept.
        self.is_pinned = False

    def choose(
        self,
        present: BatchChoice,
        noise: tuple[float, float] | None,
        times: Callable[[], list[StepTimes]],
        where: tuple[int, Size],
        now: float,
    ) -> BatchChoice:
        """Return the batch of the next step. where: generation, and the ranks that share steps. now: monotonic
        seconds."""
        generation, size = where
        if self.is_pinned:
            return self._split(self._bounds.batch_size, size)
        is_new = generation != self._generation
        if not is_new and self._looked_at is not None and now - self._looked_at < self._every_seconds:
            return present
        self._generation, self._looked_at = generation, now
        found = self._best(present, noise, times(), size)
        if found.batch > present.batch:
            self._watch.grown()
        return found

    def saw(self, loss: float) -> None:
        """Add the loss of a completed step."""
        if self._watch.add(loss) and not self.is_pinned:
            self.is_pinned = True
            text = f"the loss has risen since the batch grew: it stays at {self._bounds.batch_size} from now on"
            print(f"tidepool: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def _best(
        self, present: BatchChoice, noise: tuple[float, float] | None, times: list[StepTimes], size: Size
    ) -> BatchChoice:
        stay = self._split(present.batch, size)
        points = [
            Point(one.hosts, one.ranks, one.batch, one.compute_seconds, one.step_seconds, one.steps) for one in times
        ]
        if not points or noise is None:
            return stay
        found = fit(points, self._parameters)
        if not found.is_trusted:
            return stay
        self._parameters = found.parameters
        scale = NoiseScale(*noise)
        most = best(found.parameters, self._bounds, scale, size)
        if most.goodput <= WORTH_A_CHANGE * self._goodput(stay, scale, size):
            return stay
        return BatchChoice(most.batch, most.accumulation)

    def _split(self, batch: int, size: Size) -> BatchChoice:
        """Return the same batch on these ranks, with as few micro-batches as fit."""
        share = -(-batch // size.ranks)
        most = self._bounds.max_micro_batch or share
        needed = -(-share // most) - 1
        is_grown_alone = size.ranks == 1 and batch > self._bounds.batch_size
        return BatchChoice(batch, max(needed, 1) if is_grown_alone and self._bounds.accumulation else needed)

    def _goodput(self, choice: BatchChoice, noise: NoiseScale, size: Size) -> float:
        assert self._parameters is not None
        micro = -(-choice.batch // (size.ranks * (choice.accumulation + 1)))
        total = self._parameters.sum_seconds(size)
        seconds = self._parameters.whole_step_seconds(float(micro), total, choice.accumulation)
        worth = gain(noise, self._bounds.batch_size, choice.batch)
        return float(worth / seconds)

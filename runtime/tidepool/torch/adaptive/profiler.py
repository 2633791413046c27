"""Times of steps by the shape of the step, measured without an extra message and without waiting for a GPU.

Each rank measures how long it computes. A GPU's answer is known only once the step is over, so it rides on the next
step's sum, in the last two of the control block's places for metrics: the sum of the ranks' seconds, and how many ranks
say so. A script with more metrics than that leaves room for is not measured. No gradient is read and no bucket changes
its length, so that weights are the same to the bit.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tidepool.profile_checks import PROFILE_SECONDS
from tidepool.protocol import AdaptedBatch, MemberMessage, StepTimes
from tidepool.shim_slots import VIRTUAL_MODEL
from tidepool.torch.state.training_state import Position

__all__ = ["TIMES", "CompletedStep", "Profiler", "Shape", "Stopwatch", "TimesOfSteps", "device_kind"]

#: Number of places in the control block that the times use.
TIMES = 2
#: Number of steps ignored after a switch: only some ranks compute the first one, and the next ones build caches.
UNSETTLED_STEPS = 3
#: Number of steps kept of a shape, spread over at least this many seconds: on a busy machine, times vary from minute to
#: minute.
_NEWEST, _NEWEST_SECONDS = 200, 600.0
#: Shapes that are kept, those that were used last. Each size of the job has one, and the short step of each epoch.
_MOST_SHAPES = 64
#: Number of steps of a shape before it is reported, and up to which additional steps are worth another report.
_FEWEST_STEPS, _ENOUGH_STEPS = 5, 50
_MOVED = 0.02


class Shape(NamedTuple):
    hosts: int
    ranks: int
    #: Samples of the largest micro-batch.
    batch: int


def device_kind(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else VIRTUAL_MODEL


class _Newest:
    """Seconds of a shape's newest steps. Where these are quick, only each second, fourth, eighth ... one counts."""

    def __init__(self) -> None:
        self.count = 0
        self._each = 1
        #: (computing a micro-batch, a step with one).
        self._kept: deque[tuple[float, float]] = deque(maxlen=_NEWEST)

    def add(self, compute_seconds: float, step_seconds: float) -> None:
        self.count += 1
        if self.count % self._each:
            return
        if len(self._kept) == _NEWEST and _NEWEST * self._each * step_seconds < _NEWEST_SECONDS:
            self._kept = deque([*self._kept][1::2], maxlen=_NEWEST)
            self._each *= 2
        self._kept.append((compute_seconds, step_seconds))

    def medians(self) -> tuple[float, float]:
        compute, step = (statistics.median(column) for column in zip(*self._kept, strict=True))
        return compute, step


class TimesOfSteps:
    """Seconds of the newest steps of each shape, and which of their medians have changed since the last report."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        #: Least recently used shapes first.
        self._newest: dict[Shape, _Newest] = {}
        self._reported: dict[Shape, StepTimes] = {}
        self._looked_at: float | None = None

    def add(self, shape: Shape, compute_seconds: float, step_seconds: float) -> None:
        newest = self._newest.pop(shape, None) or _Newest()
        newest.add(compute_seconds, step_seconds)
        self._newest[shape] = newest
        if len(self._newest) > _MOST_SHAPES:
            oldest = next(iter(self._newest))
            del self._newest[oldest]
            self._reported.pop(oldest, None)

    def medians(self) -> list[StepTimes]:
        """Return the medians of each shape with enough steps; the shape used last comes last."""
        return [self._median(shape) for shape, newest in self._newest.items() if newest.count >= _FEWEST_STEPS]

    def take_changes(self, now: float) -> list[StepTimes] | None:
        """Return the changes since the last report. None: too early for any. now: monotonic seconds."""
        if self._looked_at is not None and now - self._looked_at < PROFILE_SECONDS:
            return None
        medians = self.medians()
        if not medians:
            return None
        self._looked_at = now
        moved = [times for times in medians if self._has_moved(times)]
        self._reported |= {_shape_of(times): times for times in moved}
        return moved

    def _median(self, shape: Shape) -> StepTimes:
        compute, step = (float(f"{seconds:.4g}") for seconds in self._newest[shape].medians())
        return StepTimes(self._kind, *shape, compute, step, self._newest[shape].count)

    def _has_moved(self, times: StepTimes) -> bool:
        reported = self._reported.get(_shape_of(times))
        if reported is None or (reported.steps < _ENOUGH_STEPS and times.steps >= 2 * reported.steps):
            return True
        pairs = (reported.compute_seconds, times.compute_seconds), (reported.step_seconds, times.step_seconds)
        return any(_moved(older, newer) for older, newer in pairs)


def _shape_of(times: StepTimes) -> Shape:
    return Shape(times.hosts, times.ranks, times.batch)


def _moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > _MOVED * before


def _has_changed(reported: AdaptedBatch | None, batch: AdaptedBatch | None) -> bool:
    if reported is None or batch is None:
        return batch is not None
    drifting = ("gain", "variance", "squared_gradient")
    if any(_moved(getattr(reported, name), getattr(batch, name)) for name in drifting):
        return True
    choice = ("batch", "micro_batch", "accumulation", "pinned", "most_micro_batch")
    return any(getattr(reported, name) != getattr(batch, name) for name in choice)


class Stopwatch:
    """Measures what this rank computes in a step: by the device's own clock where it is a GPU.

    A step of several micro-batches is measured from the beginning of each to its gradients: the script's own work after
    them, such as logging, is none of it.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_gpu = device.type == "cuda"
        #: Beginning and end of each micro-batch on the GPU.
        self._events: list[tuple[Any, Any]] = []
        #: Number of the micro-batch under way, and seconds of those before it.
        self._piece, self._earlier = 0, 0.0
        self._began = self._ended = 0.0

    def start(self) -> None:
        """Begin the step's first micro-batch."""
        self._piece, self._earlier = 0, 0.0
        self._begin()

    def start_next(self) -> None:
        """Begin another micro-batch of the step."""
        if self._ended < self._began:  # a micro-batch without gradients
            self.stop()
        self._earlier += self._ended - self._began
        self._piece += 1
        self._begin()

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._ended = 0.0
        if not self.is_gpu:
            return
        if len(self._events) == self._piece:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            self._events.append((first, last))
        self._events[self._piece][0].record()

    def stop(self) -> None:
        """End the micro-batch under way, here or at a later call."""
        self._ended = time.monotonic()
        if self.is_gpu:
            self._events[self._piece][1].record()

    def seconds(self) -> float:
        """Return the seconds of all micro-batches. Asked once the step's sums are there: nobody waits for a GPU."""
        if self.is_gpu and self._events[self._piece][1].query():
            pairs = self._events[: self._piece + 1]
            return float(sum(first.elapsed_time(last) for first, last in pairs)) / 1000.0
        return self._earlier + self._ended - self._began


@dataclass(frozen=True)
class CompletedStep:
    """A completed step, as measured by one rank."""

    shape: Shape
    #: Micro-batches of this rank.
    pieces: int
    #: Seconds from the beginning of the step to the end of its update.
    seconds: float
    generation: int
    #: Seconds from the beginning of the step to that of its last micro-batch.
    before_last_seconds: float = 0.0


class Profiler:
    """One rank's measurements, step by step. Only the training thread calls it."""

    def __init__(self, device: torch.device) -> None:
        self.times = TimesOfSteps(device_kind(device))
        self.watch = Stopwatch(device)
        #: Samples of a rank's micro-batch at most; 0: all that it has of a step is one.
        self.most_micro_batch = 0
        self._generation = 0
        self._unsettled = UNSETTLED_STEPS
        #: The step before, if it counts, and this rank's seconds for a micro-batch of it.
        self._before: CompletedStep | None = None
        self._own_seconds: float | None = None
        #: The last reported adapted batch.
        self._adapted: AdaptedBatch | None = None
        #: The reason why nothing is measured, until it is reported.
        self._refusal = ""
        self._refused = False

    def refuse(self, why: str) -> None:
        if not self._refused:
            self._refusal, self._refused = why, True

    def write(self, places: torch.Tensor) -> None:
        """Write this rank's times of the previous step into `TIMES` places of the control block."""
        if self._own_seconds is not None:
            places[0], places[1] = self._own_seconds, 1.0

    def made(self, step: CompletedStep, reported: tuple[float, float], *, counts: bool = True) -> None:
        """Record a completed step. reported: the times of the previous step from its sum. counts: whether the step was
        regular."""
        seconds, ranks = reported
        if self._before is not None and ranks >= 1:
            compute = seconds / ranks
            # A GPU may still compute the earlier micro-batches when the script comes to the last one.
            earlier = max(self._before.before_last_seconds, (self._before.pieces - 1) * compute)
            once = self._before.seconds - earlier
            self.times.add(self._before.shape, compute, max(once, compute))
        if step.generation != self._generation:
            self._generation, self._unsettled = step.generation, UNSETTLED_STEPS
        is_counted = counts and step.pieces > 0 and not self._unsettled
        self._unsettled = max(0, self._unsettled - 1)
        self._before = step if is_counted else None
        self._own_seconds = self.watch.seconds() / step.pieces if is_counted else None

    def message(
        self, position: Position, now: float, adapted: Callable[[], AdaptedBatch] | None = None
    ) -> MemberMessage | None:
        """Build rank 0's message, or None without changes. now: monotonic seconds."""
        if self._refusal:
            why, self._refusal = self._refusal, ""
            return MemberMessage("profile", step=position.step, error=why)
        times = self.times.take_changes(now)
        if times is None:
            return None
        batch = adapted() if adapted is not None else None
        if not times and not _has_changed(self._adapted, batch):
            return None
        self._adapted = batch
        return MemberMessage(
            "profile",
            step=position.step,
            batch_size=position.effective_batch_size,
            most_micro_batch=self.most_micro_batch,
            times=times,
            adapted=batch,
        )

"""Progress of a replayed training on the GPUs that it holds."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from scheduling.replay.profiles import Batch, Placement, StepTime

__all__ = ["Physics", "Trained", "fixed_batch"]

#: Function that chooses a training's batch for its present GPUs.
Tuner = Callable[["Physics"], Batch]
#: Part of its end's progress by which an epoch may end early: a sum of times is not exact.
_SLACK = 1e-9


class Trained(Protocol):
    """Behaviour of a training: an `Application` of the tables, or a `Recording`. The former explains its parts."""

    @property
    def name(self) -> str: ...
    @property
    def smallest_batch(self) -> int: ...
    @property
    def largest_batch(self) -> int: ...
    @property
    def micro_bounds(self) -> tuple[int, int]: ...
    @property
    def epoch_ends(self) -> Sequence[float]: ...
    def times_on(self, kind: str) -> Callable[[Placement, int], StepTime]:
        """Return the times of steps on a kind of GPU."""
        ...

    def noise(self, batch: float, epoch: int) -> tuple[float, float]: ...
    def gain(self, batch: float, epoch: int) -> float: ...


@dataclass(slots=True)
class Physics:
    """State of a training. Times are seconds, progress steps at the application's smallest batch."""

    application: Trained
    tune: Tuner
    placement: Placement = ()
    #: Kind of GPU: the slowest of those that the training has.
    kind: str = ""
    batch: Batch = field(default_factory=lambda: Batch(1))
    #: Epochs that are over, and progress.
    epoch: int = 0
    progress: float = 0.0
    #: Current factor of step durations, relative to the measured ones.
    pace: float = 1.0
    #: Seconds that its GPUs still idle.
    pause: float = 0.0
    gpu_seconds: float = 0.0
    #: GPU-seconds of those that went by in pauses.
    lost: float = 0.0
    resizes: int = 0
    #: Seconds of the last `advance` that remained after the training's end; None: it has not ended.
    over: float | None = None

    @property
    def ranks(self) -> int:
        return sum(self.placement)

    def rate(self) -> float:
        """Progress per second."""
        application, batch = self.application, self.batch
        seconds = application.times_on(self.kind)(self.placement, batch.micro).of(batch)
        return application.gain(batch.samples(self.ranks), self.epoch) / (seconds * self.pace)

    def _seconds_on(self, kind: str) -> float:
        """Return how long a step of one micro-batch takes there on as many GPUs."""
        return self.application.times_on(kind)(self.placement, self.application.micro_bounds[0]).step

    def seconds_to_end(self) -> float:
        """Train to the end on the present GPUs; return the seconds that took."""
        seconds = 0.0
        while self.over is None:
            needed = self.pause + max(0.0, self.application.epoch_ends[self.epoch] - self.progress) / self.rate()
            self.advance(needed)
            seconds += needed
        return seconds

    def place(self, placement: Placement, pause: float, kinds: Collection[str] = ("",)) -> None:
        """Assign these GPUs, after a pause in seconds and the rest of the previous pause; without GPUs it waits. With
        several kinds, each step takes as long as on the slowest."""
        self.resizes += bool(self.placement and placement)
        self.placement, self.pause = placement, max(self.pause, pause) if placement else 0.0
        if placement:
            self.kind = max(sorted(kinds), key=self._seconds_on) if len(kinds) > 1 else next(iter(kinds))
            self.batch = self.tune(self)

    def advance(self, seconds: float, *, whole_seconds: bool = False) -> None:
        """`whole_seconds`: epochs end at whole ones."""
        if not self.placement:
            return
        paused = min(self.pause, seconds)
        self.pause -= paused
        self.lost += self.ranks * paused
        left = seconds - paused
        while left > 0 and self.over is None:
            left = self._train(left, whole_seconds)
        self.gpu_seconds += self.ranks * (seconds - (self.over or 0.0))

    def _train(self, left: float, whole_seconds: bool) -> float:
        """Train to the epoch's end, if it gets there. Returns the seconds that are left then."""
        rate, end = self.rate(), self.application.epoch_ends[self.epoch]
        slack = 0.0 if whole_seconds else _SLACK * end
        if self.progress + rate * left < end - slack:
            self.progress += rate * left
            return 0.0
        needed = (end - self.progress) / rate
        left = max(0.0, left - (round(needed) if whole_seconds else needed))
        self.epoch += 1
        self.progress = end
        if self.epoch == len(self.application.epoch_ends):
            self.over = left
        else:
            self.batch = self.tune(self)
        return left


def fixed_batch(application: Trained, samples: int, ranks: int, most: int | None = None) -> Batch:
    """The split of a batch over so many ranks with fewest pieces. One rank measures its noise on at least two.
    `most`: largest micro-batch; None: that of the application."""
    each = ceil(samples / ranks)
    pieces = ceil(each / (application.micro_bounds[1] if most is None else most))
    if ranks == 1 and samples > application.smallest_batch:
        pieces = max(2, pieces)
    micro = min(ceil(each / pieces), application.largest_batch // (ranks * pieces))
    return Batch(micro, pieces)

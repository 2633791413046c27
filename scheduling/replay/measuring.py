"""Measurements that a replayed training makes of itself, and the model fitted to them.

The same as on a real cluster: seconds of a step at each shape that it has trained at, and the noise of its gradients in
the present epoch. Both are as they were measured for the trace, unless the training has `Errors`: then each new look at
a shape replaces the one before, and is off anew.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median
from typing import Protocol

from tidepool.goodput.curve import best
from tidepool.goodput.model import Bounds, NoiseScale, Point, Size, ThroughputParameters

from scheduling.replay.physics import Physics, fixed_batch
from scheduling.replay.profiles import Application, Batch
from scheduling.snapshot import ProfileView

__all__ = ["Errors", "Measured", "bounds_of"]

#: Number of steps of a point, as many as count in full.
_STEPS = 50
#: Relative difference up to which micro-batches count as equal.
NEAR = 0.1
#: Numbers of looks at a shape, one a minute, and of shapes that count, where measures have errors.
LOOKS, MOST_POINTS = 10, 64


class Errors(Protocol):
    """Errors of one training: its distance from the tables."""

    def pace(self) -> float:
        """Return the factor of durations of steps until the next call."""

    def measured(self, value: float) -> float:
        """Return the measured value for this true value."""


def bounds_of(application: Application) -> Bounds:
    """Return the bounds within which batches were measured."""
    least, most = application.micro_bounds
    return Bounds(application.smallest_batch, application.largest_batch, least, most)


@dataclass(slots=True)
class Measured:
    """Grows with each shape at which the training computes."""

    bounds: Bounds
    errors: Errors | None = None
    #: Kind of GPU -> largest micro-batch that fits its memory; kinds without an entry have that of `bounds`.
    micro_batches: Mapping[str, int] = field(default_factory=dict)
    #: Kind of GPU that the points are of; the profile may have points of other kinds.
    kind: str = ""
    points: tuple[Point, ...] = ()
    parameters: ThroughputParameters | None = None
    others: dict[str, tuple[tuple[Point, ...], ThroughputParameters | None]] = field(default_factory=dict)
    noise: NoiseScale | None = None
    #: Whether its script measures its steps.
    tells: bool = True
    #: Work that the training declares, over its true work. None: it declares none.
    declared: float | None = 1.0
    #: Shape -> seconds of computing and of a step at each of the newest looks.
    looks: dict[tuple[Size, int], deque[tuple[float, float]]] = field(default_factory=dict)

    def observe(self, physics: Physics) -> None:
        """Record measures at the present batch."""
        if not self.tells:
            return
        self.turn_to(physics.kind)
        application, placement, batch = physics.application, physics.placement, physics.batch
        size = Size(len(placement), physics.ranks)
        if self.errors is None and any(
            point.size == size and _is_near(point.micro_batch, batch.micro) for point in self.points
        ):
            return
        times = application.times_on(physics.kind)(placement, batch.micro)
        compute = self._observed(max(times.step - times.sync, 1e-6) * physics.pace)
        point = self._point(size, batch.micro, compute, max(compute, self._observed(times.step * physics.pace)))
        others = (one for one in self.points if (one.size, one.micro_batch) != (size, batch.micro))
        self.points = (*others, point)[-MOST_POINTS:]
        self.parameters = _fitted(self.points, self.parameters)

    def turn_to(self, kind: str) -> None:
        """Train on this kind of GPU: what was measured on another says nothing of it."""
        if kind != self.kind:
            self.others[self.kind] = self.points, self.parameters
            self.points, self.parameters = self.others.pop(kind, ((), None))
            self.kind = kind

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of GPU that it was measured on."""
        by_kind = {kind: known for kind, (_, known) in self.others.items()} | {self.kind: self.parameters}
        return {kind for kind, known in by_kind.items() if known is not None}

    @property
    def _bounds_here(self) -> Bounds:
        most = self.micro_batches.get(self.kind)
        return self.bounds if most is None else replace(self.bounds, max_micro_batch=most)

    def _point(self, size: Size, micro: int, compute: float, step: float) -> Point:
        """Return the mean over the remembered looks at a shape; without errors all are equal."""
        looks = self.looks.setdefault((size, micro), deque(maxlen=LOOKS))
        looks.append((compute, step))
        compute, step = (median(column) for column in zip(*looks, strict=True))
        return Point(*size, micro, compute, step, _STEPS)

    def _observed(self, value: float) -> float:
        return value if self.errors is None else self.errors.measured(value)

    def choose(self, physics: Physics) -> Batch:
        """Choose the best batch by what is known, as rank 0 does; before that, the one that it was submitted with."""
        self.turn_to(physics.kind)
        if self.parameters is None or not self.bounds.is_adaptive:
            return self._unknown(physics)
        noise = physics.application.noise(physics.batch.samples(physics.ranks), physics.epoch)
        self.noise = NoiseScale(*map(self._observed, noise))
        size = Size(len(physics.placement), physics.ranks)
        found = best(self.parameters, self._bounds_here, self.noise, size)
        if not found.goodput:
            return self._unknown(physics)
        pieces = found.accumulation + 1
        most = (self.bounds.max_batch_size or self.bounds.batch_size) // (physics.ranks * pieces)
        return Batch(max(1, min(found.micro_batch, most)), pieces)

    def _unknown(self, physics: Physics) -> Batch:
        """Return its own batch; one that may be changed is large enough for so many ranks."""
        least = physics.ranks * self.bounds.min_micro_batch if self.bounds.is_adaptive else 0
        most = self.micro_batches.get(self.kind)
        return fixed_batch(physics.application, max(self.bounds.batch_size, least), physics.ranks, most)

    def view(self, physics: Physics, *, pause_seconds: float, start_seconds: float) -> ProfileView | None:
        by_kind = {**self.others, self.kind: (self.points, self.parameters)}
        parameters = {kind: known for kind, (_, known) in by_kind.items() if known is not None}
        if not parameters:
            return None
        work = None if self.declared is None else self.declared * physics.application.epoch_ends[-1]
        return ProfileView(
            bounds=self.bounds,
            parameters=parameters,
            noise=self.noise,
            micro_batches={kind: most for kind, most in self.micro_batches.items() if kind in parameters},
            largest_ranks=max((point.ranks for points, _ in by_kind.values() for point in points), default=1),
            remaining_steps=None if work is None else max(0.0, work - physics.progress),
            done_steps=physics.progress,
            restart_seconds=pause_seconds,
            pause_seconds=pause_seconds,
            start_seconds=start_seconds,
            points=sum(len(points) for points, _ in by_kind.values()),
        )


def _is_near(known: int, micro: int) -> bool:
    """Return whether the sizes are so close that the point adds no information to a fit."""
    return abs(micro - known) <= NEAR * known


@lru_cache(maxsize=4096)
def _fitted(points: tuple[Point, ...], start: ThroughputParameters | None) -> ThroughputParameters:
    from tidepool.goodput.fit import fit  # scipy: for who replays, not for who imports a page

    return fit(points, start).parameters

"""Replay of a cluster's recorded history, under the same or other rules.

The work of a recorded training is the sum of its sizes over time, weighted by its speed at each. A replay with the
recorded sizes therefore takes as long as recorded; with other sizes it uses measured speeds, or speeds fitted to them.
A training without measurements is replayed twice: with linear scaling, and with no gain from additional GPUs.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from tidepool.goodput.model import Bounds, NoiseScale, Point, Size, ThroughputParameters
from tidepool.goodput.model import gain as gain_of

from scheduling.policies.kind_ratios import MeasuredRatio, Ratios, medians
from scheduling.policies.speedups import kind_of_most
from scheduling.replay.measuring import Measured
from scheduling.replay.physics import Physics
from scheduling.replay.profiles import Placement, StepTime
from scheduling.replay.world import Change, Costs, Held, JobChange, Pool, Replayed, Rules, World
from scheduling.schedule import CycleResult
from scheduling.snapshot import GroupView, JobView, Share, SlotRef, SlotView

__all__ = [
    "Alternative",
    "History",
    "KnownMeasures",
    "Outcome",
    "PlayResult",
    "RecordedJob",
    "Recording",
    "Scaling",
    "Segment",
    "play",
]

#: Assumptions about the speed of a training without measurements: linear in the number of GPUs, or constant.
Scaling = Literal["linear", "none"]
Outcome = Literal["over", "withdrawn", "unfinished"]

#: Upper bound of progress.
_ENDLESS = 1e18
_LEAST_WORK = 1e-6
#: Upper bound of batch sizes.
_LARGEST = 2**40
#: Limits of a replay beyond the window's end: in multiples of the window, plus seconds.
_LONGER, _AT_LEAST = 4.0, 3600.0


@dataclass(frozen=True)
class Segment:
    """A period of constant size: its length in seconds, ranks per host, and the seconds of it spent paused."""

    seconds: float
    placement: Placement
    pause: float = 0.0
    #: Kind of GPU that most of its ranks had.
    kind: str = ""


@dataclass(frozen=True)
class KnownMeasures:
    """Measures of a training, or of an earlier one of its model."""

    bounds: Bounds
    #: Measurements on the kind of GPU that has most of them; also used for kinds without any.
    parameters: ThroughputParameters
    points: tuple[Point, ...] = ()
    noise: NoiseScale | None = None
    #: Noise from a progress on, in steps at the batch that it was submitted with, in order: as it was measured there,
    #: whatever the batch and the hour were. The first one holds from the beginning; where there is none, `noise` does.
    phases: tuple[tuple[float, NoiseScale], ...] = ()
    kind: str = ""
    #: Points and parameters of other kinds.
    others: Mapping[str, tuple[tuple[Point, ...], ThroughputParameters]] = field(default_factory=dict)
    #: Kind of GPU -> largest micro-batch of a rank there, in samples; kinds without an entry have that of `bounds`.
    micro_batches: Mapping[str, int] = field(default_factory=dict)

    def on(self, kind: str) -> tuple[tuple[Point, ...], ThroughputParameters]:
        return self.others.get(kind, (self.points, self.parameters))

    @property
    def kinds(self) -> set[str]:
        return {self.kind, *self.others}


@dataclass(frozen=True)
class RecordedJob:
    """A training of the window. Moments are Unix seconds."""

    #: The training as it was when it was submitted or the window began, whichever is later.
    view: JobView
    outcome: Outcome
    #: All segments of the training, including those before the window.
    segments: tuple[Segment, ...]
    #: Number of segments that had ended when the window began.
    before: int = 0
    #: Slots that the job held when the window began.
    slots: tuple[SlotRef, ...] = ()
    is_held_back: bool = False
    ended_at: float | None = None
    #: Part of its work that the segments are, 0..1. None: unknown, for a training that did not end by itself.
    progress: float | None = None
    known: KnownMeasures | None = None
    costs: Costs | None = None
    #: (Unix seconds, number of GPUs held from then on).
    held: tuple[tuple[float, int], ...] = ()

    @property
    def is_counted(self) -> bool:
        """Return whether it ended by itself within the window."""
        return self.outcome == "over"


@dataclass(frozen=True)
class History:
    start: float
    end: float
    #: As it was at the start; what changed since, in order of time.
    groups: tuple[GroupView, ...]
    slots: tuple[SlotView, ...]
    changes: tuple[Change, ...]
    jobs: tuple[RecordedJob, ...]
    #: Costs of trainings that report none of their own.
    costs: Costs
    #: Ratios of kinds of GPU that trainings had measured when the window began.
    remembered: tuple[MeasuredRatio, ...] = ()
    #: Cores and memory that a slot of each host stands for; {}: no training asks for more than that.
    shares: Mapping[str, Share] = field(default_factory=dict)

    @property
    def pools(self) -> list[tuple[SlotView, ...]]:
        """All pools of the window, in order of time."""
        return [self.slots, *(change.slots for _, change in self.changes if isinstance(change, Pool))]

    @property
    def largest_pool(self) -> tuple[SlotView, ...]:
        return max(self.pools, key=len)

    @property
    def gpus(self) -> int:
        """Return the largest number of GPUs that the pool had."""
        return len(self.largest_pool)


@dataclass(frozen=True)
class Alternative:
    """Changes to the recorded past; without any, the replay uses the same rules."""

    #: Group -> fields of its `GroupView`, for the whole window.
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Number of GPUs of the pool at its largest.
    gpus: int | None = None
    #: Seconds for which each resize stops all GPUs of a training, as in systems that restart trainings to resize them.
    restart_seconds: float | None = None


@dataclass(frozen=True)
class PlayResult:
    jobs: tuple[Replayed, ...]
    held: tuple[Held, ...]
    cycles: int
    #: Job -> seconds from submission to end if it had received all requested GPUs immediately.
    alone: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Recording:
    """Input of `Physics` about a recorded training. Progress is steps at its own batch; unmeasured, seconds of
    one GPU."""

    name: str
    known: KnownMeasures | None
    scaling: Scaling
    work: float = _ENDLESS
    #: Kind of GPU without measurements -> speed of one, relative to the kind that has most of them. Kinds that are
    #: missing are as fast.
    speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def smallest_batch(self) -> int:
        return self.known.bounds.batch_size if self.known else 1

    @property
    def largest_batch(self) -> int:
        return _LARGEST

    @property
    def micro_bounds(self) -> tuple[int, int]:
        bounds = self.known.bounds if self.known else Bounds(1)
        return bounds.min_micro_batch, bounds.max_micro_batch or bounds.max_batch_size or bounds.batch_size

    @cached_property
    def _phases(self) -> list[tuple[float, NoiseScale | None]]:
        """Progress at which each phase begins, and its noise; the first begins with the training."""
        if self.known is None or not self.known.phases:
            return [(0.0, self.known.noise if self.known else None)]
        (_, first), *later = self.known.phases
        return [(0.0, first), *(phase for phase in later if phase[0] < self.work)]

    @cached_property
    def epoch_ends(self) -> tuple[float, ...]:
        """Return the ends of the phases, which serve as epochs: the noise is constant within one."""
        return (*(begins for begins, _ in self._phases[1:]), self.work)

    def epoch_at(self, progress: float) -> int:
        """Return the number of the phase, from 0."""
        return min(bisect_right(self.epoch_ends, progress), len(self.epoch_ends) - 1)

    @cached_property
    def _computed(self) -> dict[tuple[str, Size, int], StepTime]:
        return {}

    def times_on(self, kind: str) -> Callable[[Placement, int], StepTime]:
        def found(placement: Placement, micro: int) -> StepTime:
            key = kind, Size(len(placement), sum(placement)), micro
            if key not in self._computed:
                self._computed[key] = self._step_time(*key)
            return self._computed[key]

        return found

    def _step_time(self, kind: str, size: Size, micro: int) -> StepTime:
        if self.known is None:
            return StepTime(1.0 if self.scaling == "none" else 1.0 / size.ranks, 0.0)
        points, parameters = self.known.on(kind)
        compute, step = _fitted(parameters, size, micro)
        here = [point for point in points if point.size == size]
        if here:
            nearest = min(here, key=lambda point: abs(point.micro_batch - micro))
            measured = _fitted(parameters, size, nearest.micro_batch)
            beside = float(parameters.beside_seconds(float(nearest.micro_batch)))
            compute *= (nearest.compute_seconds + beside) / measured[0]
            step *= nearest.step_seconds / measured[1]
        if kind not in self.known.kinds:
            faster = self.speeds.get(kind, 1.0)
            compute, step = compute / faster, step / faster
        return StepTime(max(compute, step), max(0.0, step - compute))

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        _, noise = self._phases[epoch]
        return (0.0, 0.0) if noise is None else (noise.variance, noise.squared_gradient)

    def gain(self, batch: float, epoch: int) -> float:
        if self.known is None or not self.known.bounds.is_adaptive:
            return 1.0
        return float(gain_of(self._phases[epoch][1], self.known.bounds.batch_size, batch))


def _fitted(parameters: ThroughputParameters, size: Size, micro: int) -> tuple[float, float]:
    """Return the fitted seconds of a micro-batch without a gradient sum, and of a step with it."""
    alone = parameters.compute_seconds(float(micro)) + parameters.beside_seconds(float(micro))
    return float(alone), float(parameters.whole_step_seconds(float(micro), parameters.sum_seconds(size)))


def play(
    history: History,
    alternative: Alternative,
    scaling: Scaling,
    *,
    clock: Callable[[], float],
    tick: Callable[[float], None],
    on_plan: Callable[[float, CycleResult | None], None] = lambda at, result: None,
) -> PlayResult:
    """Replay the window, and trainings beyond its end. `clock`, `tick` and `on_plan` are those of `World`."""
    pool_of = _pools(history, alternative.gpus)
    slots = pool_of(history.slots)
    there = {slot.ref for slot in slots}
    ratios = Ratios(medians(history.remembered, {job.view.code for job in history.jobs}))
    jobs = [_replayed(job, history, alternative, scaling, there, ratios) for job in history.jobs]
    world = World(
        groups=_rules(history.groups, alternative),
        costs=history.costs,
        slots=slots,
        clock=clock,
        now=history.start,
        changes=[(at, _change(change, alternative, pool_of)) for at, change in history.changes],
        remembered=history.remembered,
        shares=history.shares,
        until=history.end + _LONGER * (history.end - history.start) + _AT_LEAST,
        tick=tick,
        on_plan=on_plan,
    )
    world.play(jobs)
    hosts, kind = _hosts(history.largest_pool), kind_of_most(slot.device for slot in history.largest_pool)
    alone = {
        job.id: _alone_seconds(job, hosts, kind) for job in jobs if job.physics.application.epoch_ends[-1] < _ENDLESS
    }
    return PlayResult(tuple(jobs), tuple(world.held), len(world.cycles), alone)


def _hosts(pool: Iterable[SlotView]) -> list[int]:
    """Slots of each, the largest first."""
    return sorted(Counter(slot.ref.host for slot in pool).values(), reverse=True)


def _alone_seconds(job: Replayed, hosts: Sequence[int], kind: str) -> float:
    left, placement = job.view.max_slots, list[int]()
    for slots in hosts:
        if left > 0:
            placement.append(min(left, slots))
            left -= slots
    recording = job.physics.application
    assert isinstance(recording, Recording)
    measured = Measured(job.measured.bounds, micro_batches=job.measured.micro_batches)
    _tell(measured, recording.known)
    physics = Physics(recording, measured.choose)
    physics.place(tuple(placement), 0.0, {kind})
    assert job.costs is not None
    return job.costs.start + physics.seconds_to_end() + job.costs.end


def _change(
    change: Rules | Pool | JobChange,
    alternative: Alternative,
    pool_of: Callable[[tuple[SlotView, ...]], tuple[SlotView, ...]],
) -> Rules | Pool | JobChange:
    match change:
        case Rules():
            return Rules(_rules(change.groups, alternative))
        case Pool():
            return Pool(pool_of(change.slots))
    return change


def _rules(groups: Sequence[GroupView], alternative: Alternative) -> tuple[GroupView, ...]:
    return tuple(replace(group, **alternative.groups.get(group.name, {})) for group in groups)


def _pools(history: History, gpus: int | None) -> Callable[[tuple[SlotView, ...]], tuple[SlotView, ...]]:
    """Build a pool with this number of GPUs: a smaller one lacks the last slots, a larger one has more hosts like the
    largest."""
    more = 0 if gpus is None else gpus - history.gpus
    if not more:
        return lambda pool: pool
    refs = sorted({slot.ref for pool in history.pools for slot in pool})
    gone = set(refs[more:]) if more < 0 else set()
    added = _like_the_largest(history.largest_pool, more) if more > 0 else ()
    return lambda pool: (*(slot for slot in pool if slot.ref not in gone), *added)


def _like_the_largest(pool: Sequence[SlotView], more: int) -> tuple[SlotView, ...]:
    if not pool:
        return ()
    by_host: dict[str, list[SlotView]] = {}
    for slot in pool:
        by_host.setdefault(slot.ref.host, []).append(slot)
    largest = max(by_host.values(), key=len)
    return tuple(
        replace(
            largest[number % len(largest)],
            # These names sort after all others, so their slots are used last.
            ref=SlotRef(f"~{number // len(largest) + 1}", largest[number % len(largest)].ref.index),
        )
        for number in range(more)
    )


def _speeds_on(job: RecordedJob, history: History, ratios: Ratios) -> dict[str, float]:
    """Return the speeds of the pool's kinds on which the training has no measurements; see `Recording`."""
    if job.known is None:
        return {}
    there = {slot.device for pool in history.pools for slot in pool}
    kinds = (there | {segment.kind for segment in job.segments}) - job.known.kinds
    return {kind: ratios.estimate(job.view.code, kind, job.known.kind).ratio for kind in kinds}


def _replayed(
    job: RecordedJob,
    history: History,
    alternative: Alternative,
    scaling: Scaling,
    there: Set[SlotRef],
    ratios: Ratios,
) -> Replayed:
    speeds = _speeds_on(job, history, ratios)
    total, before = _work(job, scaling, speeds)
    costs = job.costs or history.costs
    if alternative.restart_seconds is not None:
        costs = replace(costs, pause=alternative.restart_seconds, join=0.0, release=alternative.restart_seconds)
    recording = Recording(str(job.view.id), job.known, scaling, total, speeds)
    physics, measured = _begun(job, recording)
    physics.progress, physics.epoch = before, recording.epoch_at(before)
    was_there = job.view.submitted_at < history.start
    return Replayed(
        view=job.view,
        physics=physics,
        measured=measured,
        costs=costs,
        comes_at=history.start if was_there else None,
        changes_before=max(0, job.before - 1),
        is_held_back=job.is_held_back,
        # A training whose GPUs do not exist in the alternative starts on other GPUs.
        slots=job.slots if there >= set(job.slots) else (),
        started_at=job.view.started_at if was_there else None,
    )


def _begun(job: RecordedJob, recording: Recording) -> tuple[Physics, Measured]:
    """Restore its progress and measurements from before the window."""
    known = job.known
    declared = None if job.progress is None else 1.0
    measured = Measured(known.bounds if known else Bounds(1), tells=known is not None, declared=declared)
    if known is not None:
        measured.micro_batches = known.micro_batches
    physics = Physics(recording, measured.choose)
    if job.before:
        _tell(measured, known)
    return physics, measured


def _tell(measured: Measured, known: KnownMeasures | None) -> None:
    """Give the training its final measurements from now on."""
    if known is not None:
        measured.points, measured.parameters = known.points, known.parameters
        measured.kind, measured.others = known.kind, dict(known.others)


def _work(job: RecordedJob, scaling: Scaling, speeds: Mapping[str, float]) -> tuple[float, float]:
    """Return its total work, and the part done when the window began."""
    known = job.known
    physics, measured = _begun(job, Recording(str(job.view.id), known, scaling, speeds=speeds))
    _tell(measured, known)
    before = 0.0
    for number, segment in enumerate(job.segments):
        if number == job.before:
            before = physics.progress
        physics.place(segment.placement, segment.pause, {segment.kind})
        physics.advance(segment.seconds)
    if job.before >= len(job.segments):
        before = physics.progress
    if job.outcome == "over":
        return max(physics.progress, _LEAST_WORK), before
    return (physics.progress / job.progress if job.progress and physics.progress else _ENDLESS), before

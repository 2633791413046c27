"""A cluster in which trainings come, run and end, and the product's own scheduler decides: the clock of events.

Between events everybody trains on. A cycle of the scheduler is due when somebody comes or ends, when GPUs become free
or are ready, and when a training knows itself better; the last at most each `SETTLED_SECONDS`, as in the product.
Plans are carried out as hosts do: only free GPUs are claimed; who gives GPUs back trains on with the rest after a
pause, and then they are free; who grows trains on until its new ranks are ready, and then pauses.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import groupby
from typing import Literal

from scheduling.placement import Placed
from scheduling.policies import SETTLED_SECONDS
from scheduling.replay.measuring import Measured
from scheduling.replay.physics import Physics
from scheduling.replay.profiles import Placement
from scheduling.schedule import decided
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot

__all__ = ["Costs", "Replayed", "World"]

#: Seconds of training at a new shape until it counts as measured.
MEASURED_AFTER = 10.0
#: Where measures have errors: seconds until a training looks anew, and the times of its steps change.
MEASURED_AGAIN = 60.0

Kind = Literal["comes", "epoch", "switch", "free", "measured", "cycle"]


@dataclass(frozen=True)
class Costs:
    """Seconds. `pause`: all GPUs of a training idle at a change; `join`: until new ranks of a running one are ready,
    while the others train on."""

    start: float
    pause: float
    join: float = 0.0


@dataclass(slots=True)
class Replayed:
    """A training of the world."""

    id: int
    submitted_at: float
    min_slots: int
    max_slots: int
    elastic: bool
    physics: Physics
    measured: Measured
    #: Held and not given back, in order; of these `joining` are not trained on yet.
    slots: tuple[SlotRef, ...] = ()
    joining: frozenset[SlotRef] = frozenset()
    started_at: float | None = None
    ended_at: float | None = None
    gives_way_to: int | None = None
    above_part: bool = False
    target: int | None = None
    #: Until when it has been played.
    played_to: float = 0.0
    #: Of its present state: events of an earlier one are dropped. So are epochs' ends that are no longer expected.
    version: int = 0
    epoch_ends_at: float = 0.0

    @property
    def completion_seconds(self) -> float:
        assert self.ended_at is not None, "it has not ended"
        return self.ended_at - self.submitted_at

    @property
    def gpu_seconds(self) -> float:
        return self.physics.gpu_seconds


@dataclass
class World:
    group: GroupView
    costs: Costs
    slots: tuple[SlotRef, ...]
    #: CPU seconds, to say what cycles cost.
    clock: Callable[[], float]
    now: float = 0.0
    cycles: list[float] = field(default_factory=list)
    _jobs: dict[int, Replayed] = field(default_factory=dict)
    _active: dict[int, Replayed] = field(default_factory=dict)
    _leaving: dict[SlotRef, int] = field(default_factory=dict)
    _events: list[tuple[float, int, Kind, int, int]] = field(default_factory=list)
    _count: int = 0
    #: When the last division was made, and whether something has happened since on which the next one depends.
    _shared_at: float | None = None
    _next_cycle: float | None = None

    def play(self, jobs: Sequence[Replayed]) -> None:
        """Until all are over."""
        self._jobs = {job.id: job for job in jobs}
        for job in jobs:
            self._at(job.submitted_at, "comes", job)
        while self._events:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, number, version = heappop(self._events)
                self._happen(kind, number, version)
            if self._next_cycle is not None and self._next_cycle <= self.now:
                self._cycle()
        waiting = [job.id for job in jobs if job.ended_at is None]
        if waiting:
            raise RuntimeError(f"Nothing happens any more, and these trainings are not over: {waiting[:10]}.")

    def _at(self, when: float, kind: Kind, job: Replayed | None = None) -> None:
        self._count += 1
        number, version = (job.id, job.version) if job is not None else (-1, 0)
        heappush(self._events, (when, self._count, kind, number, version))

    def _wake(self, when: float) -> None:
        """A cycle is due then."""
        if self._next_cycle is None or when < self._next_cycle:
            self._next_cycle = when
            self._at(when, "cycle")

    def _divide_anew(self) -> None:
        """Somebody came or ended."""
        self._shared_at = None
        self._wake(self.now)

    # --- what happens ----------------------------------------------------------------------------------------------

    def _happen(self, kind: Kind, number: int, version: int) -> None:
        if kind == "cycle":
            return
        if kind == "free":
            self._leaving = {ref: job for ref, job in self._leaving.items() if job != number}
            self._wake(self.now)
            return
        job = self._jobs[number]
        if kind == "comes":
            self._active[number], job.played_to = job, self.now
            self._divide_anew()
        elif kind == "epoch" and self.now < job.epoch_ends_at:
            return
        elif version == job.version and job.ended_at is None:
            self._catch_up(job)
            if job.ended_at is None:
                self._went_on(job, kind)

    def _went_on(self, job: Replayed, kind: Kind) -> None:
        if kind == "switch":
            job.joining = frozenset()
            self._train_on(job, self.costs.pause)
        else:
            self._observe(job)
            if kind == "measured":
                job.physics.batch = job.physics.tune(job.physics)
                self._look_again(job)
            self._expect(job)

    def _look_again(self, job: Replayed) -> None:
        if job.measured.errors is not None:
            job.physics.pace = job.measured.errors.pace()
            self._at(self.now + MEASURED_AGAIN, "measured", job)

    def _observe(self, job: Replayed) -> None:
        job.measured.observe(job.physics)
        if self.group.policy == "goodput":
            self._wake(max(self.now, (self._shared_at or 0.0) + SETTLED_SECONDS))

    def _catch_up(self, job: Replayed) -> None:
        """Play it up to now."""
        seconds, job.played_to = self.now - job.played_to, self.now
        if seconds <= 0 or not job.slots:
            return
        job.physics.advance(seconds)
        idle = seconds * len(job.joining)
        job.physics.gpu_seconds += idle
        job.physics.lost += idle
        if job.physics.over is not None:
            job.ended_at = self.now - job.physics.over
            job.slots, job.joining = (), frozenset()
            self._active.pop(job.id)
            self._leaving = {ref: holder for ref, holder in self._leaving.items() if holder != job.id}
            self._divide_anew()

    def _expect(self, job: Replayed) -> None:
        """Its next epoch's end."""
        physics = job.physics
        end = physics.application.epoch_ends[physics.epoch]
        job.epoch_ends_at = self.now + physics.pause + max(0.0, end - physics.progress) / physics.rate()
        self._at(job.epoch_ends_at, "epoch", job)

    def _train_on(self, job: Replayed, pause: float) -> None:
        """With the GPUs that it has and that are ready."""
        job.version += 1
        job.physics.place(_placement(ref for ref in job.slots if ref not in job.joining), pause)
        if job.physics.placement:
            self._at(self.now + pause + MEASURED_AFTER, "measured", job)
            self._expect(job)

    # --- what is decided -------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        self._next_cycle = None
        for job in list(self._active.values()):
            self._catch_up(job)
        if not self._active:
            return
        snapshot = self._snapshot()
        began = self.clock()
        placed = decided(snapshot).placed
        self.cycles.append(self.clock() - began)
        self._next_cycle = None
        if self._shared_at is None or self.now >= self._shared_at + SETTLED_SECONDS:
            self._shared_at = self.now
        for number in sorted(placed):
            self._carry_out(self._active[number], placed[number])

    def _snapshot(self) -> Snapshot:
        held = {ref: job.id for job in self._active.values() for ref in job.slots} | self._leaving
        return Snapshot(
            at=self.now,
            groups=(replace(self.group, shared_at=self._shared_at),),
            slots=tuple(
                SlotView(ref, (self.group.resource_group,), True, held.get(ref), ref in self._leaving)
                for ref in self.slots
            ),
            jobs=tuple(self._view(job) for job in self._active.values()),
        )

    def _view(self, job: Replayed) -> JobView:
        return JobView(
            id=job.id,
            name="",
            group=self.group.name,
            state="RUNNING" if job.slots else "PENDING",
            priority=5000,
            submitted_at=job.submitted_at,
            min_slots=job.min_slots,
            max_slots=job.max_slots,
            elastic=job.elastic,
            started_at=job.started_at if job.slots else None,
            gives_way_to=job.gives_way_to,
            above_part=job.above_part,
            target=job.target,
            gpu_seconds=job.gpu_seconds,
            profile=job.measured.view(job.physics, pause_seconds=self.costs.pause, start_seconds=self.costs.join),
        )

    def _carry_out(self, job: Replayed, placed: Placed) -> None:
        job.target = placed.target
        if not placed.claim and not placed.vacate:
            return
        starts = not job.slots
        slots = tuple(sorted({*job.slots, *placed.claim}.difference(placed.vacate)))
        trained_on = set(job.slots) - job.joining
        if starts:
            job.started_at, job.gives_way_to, job.above_part = self.now, placed.gives_way_to, placed.above_part
        job.slots = slots
        job.joining = frozenset() if starts else (job.joining | set(placed.claim)).intersection(slots)
        if placed.vacate:
            self._leaving |= dict.fromkeys(placed.vacate, job.id)
            self._at(self.now + self.costs.pause, "free", job)
        if starts:
            self._train_on(job, self.costs.start)
        elif job.joining and self.costs.join and trained_on.intersection(slots):
            self._join(job, trained_on)
        else:
            job.joining = frozenset()
            self._train_on(job, self.costs.pause)

    def _join(self, job: Replayed, trained_on: set[SlotRef]) -> None:
        """It trains on without its new ranks until they are ready."""
        if trained_on.issubset(job.slots):
            job.version += 1
            self._expect(job)
        else:
            self._train_on(job, self.costs.pause)
        self._at(self.now + self.costs.join, "switch", job)


def _placement(refs: Iterable[SlotRef]) -> Placement:
    return tuple(len(list(same)) for _, same in groupby(sorted(refs), key=lambda ref: ref.host))

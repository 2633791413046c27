"""A cluster in which trainings come, run and end, and the product's own scheduler decides: the clock of events.

Between events everybody trains on. A cycle of the scheduler is due when somebody comes or ends, when GPUs become free
or are ready, and when a training knows itself better; the last at most each `TARGET_HOLD_SECONDS`, as in the product.
Plans are carried out as hosts do: only free GPUs are claimed; who gives GPUs back trains on with the rest after a
pause, and then they are free; who grows trains on until its new ranks are ready, and then pauses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, groupby
from math import inf, nextafter
from typing import Any, Literal, NamedTuple

from scheduling.placement.slot_choice import JobSlots
from scheduling.policies.kind_ratios import MeasuredRatio, medians, ratios_of
from scheduling.policies.speedups import goodput_at_one
from scheduling.policies.target_hold import TARGET_HOLD_SECONDS, TargetHold, hold_targets
from scheduling.preview import job_after
from scheduling.replay.measuring import Measured
from scheduling.replay.physics import Physics
from scheduling.replay.profiles import Placement
from scheduling.schedule import CycleResult, run_cycle
from scheduling.snapshot import GroupView, JobView, KindRatio, ProfileView, Share, SlotRef, SlotView, Snapshot

__all__ = ["Change", "Costs", "Held", "JobChange", "Pool", "Replayed", "Rules", "World"]

#: Seconds of training at a new shape after which it counts as measured.
MEASURED_AFTER = 10.0
#: Seconds until a training measures anew and the times of its steps change, where measures have errors.
MEASURED_AGAIN = 60.0

Kind = Literal["comes", "epoch", "switch", "free", "measured", "cycle", "change"]


@dataclass(frozen=True)
class Costs:
    """Seconds. `pause`: all GPUs of a training idle at a change; `join`: until new ranks of a running one are ready,
    while the others train on; `release`: from an order to give a GPU back until it is free, None: as long as `pause`;
    `end`: from its last step until it is over; `free`: from then until its GPUs are free."""

    start: float
    pause: float
    join: float = 0.0
    release: float | None = None
    end: float = 0.0
    free: float = 0.0


@dataclass(frozen=True)
class JobChange:
    """A user's change of a training."""

    job: int
    #: "change": other values of these fields of its `JobView`.
    verb: Literal["change", "hold", "resume", "withdraw"]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """Rules of the groups from now on."""

    groups: tuple[GroupView, ...]


@dataclass(frozen=True)
class Pool:
    """A change of the available slots."""

    slots: tuple[SlotView, ...]


#: (time, change).
Change = tuple[float, Rules | Pool | JobChange]


class Held(NamedTuple):
    """From `at` on a training holds so many GPUs."""

    at: float
    job: int
    slots: int


@dataclass(slots=True)
class Replayed:
    """A training of the world."""

    #: The training as the newest cycle saw it, with what the cycle decided.
    view: JobView
    physics: Physics
    measured: Measured
    #: Costs of this training; None: those of the world.
    costs: Costs | None = None
    #: Time of a training that began before the world: it appears then, with `slots`. None: when it is submitted.
    comes_at: float | None = None
    #: Changes of its size before the world.
    changes_before: int = 0
    #: Whether a user has held or ended it.
    is_held_back: bool = False
    #: Held and not given back, in order; of these `joining` are not trained on yet.
    slots: tuple[SlotRef, ...] = ()
    joining: frozenset[SlotRef] = frozenset()
    started_at: float | None = None
    ended_at: float | None = None
    #: Time up to which it has been simulated.
    played_to: float = 0.0
    #: Version of the present state: events of an earlier one are dropped, and so are epochs' ends no longer expected.
    version: int = 0
    epoch_ends_at: float = 0.0

    @property
    def id(self) -> int:
        return self.view.id

    @property
    def submitted_at(self) -> float:
        return self.view.submitted_at

    @property
    def completion_seconds(self) -> float:
        assert self.ended_at is not None, "it has not ended"
        return self.ended_at - self.submitted_at


@dataclass
class World:
    groups: tuple[GroupView, ...]
    costs: Costs
    slots: tuple[SlotView, ...]
    #: Clock of CPU seconds, which measures the cost of cycles.
    clock: Callable[[], float]
    now: float = 0.0
    #: Changes in order of time.
    changes: Sequence[Change] = ()
    #: End of the simulation.
    until: float = inf
    #: Called with the moment of each event: may raise to end the play.
    tick: Callable[[float], None] = lambda now: None
    #: Called with the decision of each cycle; None: no training was present.
    on_plan: Callable[[float, CycleResult | None], None] = lambda at, result: None
    #: Ratios of kinds of GPU that trainings have measured, those before the simulation included.
    remembered: Sequence[MeasuredRatio] = ()
    #: Cores and memory that a slot of each host stands for, where trainings ask for more than that.
    shares: Mapping[str, Share] = field(default_factory=dict)
    #: Wherever it changed, in order of time.
    held: list[Held] = field(default_factory=list)
    cycles: list[float] = field(default_factory=list)
    _jobs: dict[int, Replayed] = field(default_factory=dict)
    _active: dict[int, Replayed] = field(default_factory=dict)
    _leaving: dict[SlotRef, int] = field(default_factory=dict)
    _devices: dict[SlotRef, str] = field(default_factory=dict)
    _events: list[tuple[float, int, Kind, int, int]] = field(default_factory=list)
    _count: int = 0
    #: See `hold_targets`.
    _hold: TargetHold | None = None
    _next_cycle: float | None = None
    #: Training -> its ratios by now.
    _measured_ratios: dict[int, tuple[MeasuredRatio, ...]] = field(default_factory=dict)

    def play(self, jobs: Sequence[Replayed]) -> None:
        """Simulate until all trainings have ended. Raise RuntimeError if some never end, unless `until` limits the
        time."""
        self._jobs = {job.id: job for job in jobs}
        self._devices = _devices(self.slots)
        for job in jobs:
            self._at(job.submitted_at if job.comes_at is None else job.comes_at, "comes", job)
        for number, (at, _) in enumerate(self.changes):
            self._push(at, "change", number)
        while self._events and self._events[0][0] <= self.until:
            self.now = self._events[0][0]
            self.tick(self.now)
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, number, version = heappop(self._events)
                self._happen(kind, number, version)
            if self._next_cycle is not None and self._next_cycle <= self.now:
                self._cycle()
        waiting = [job.id for job in jobs if job.ended_at is None]
        if waiting and self.until == inf:
            raise RuntimeError(f"No event is left, but these trainings are not over: {waiting[:10]}.")

    def _at(self, when: float, kind: Kind, job: Replayed | None = None) -> None:
        number, version = (job.id, job.version) if job is not None else (-1, 0)
        self._push(when, kind, number, version)

    def _push(self, when: float, kind: Kind, number: int, version: int = 0) -> None:
        self._count += 1
        heappush(self._events, (when, self._count, kind, number, version))

    def _wake(self, when: float) -> None:
        """Schedule a cycle."""
        if self._next_cycle is None or when < self._next_cycle:
            self._next_cycle = when
            self._at(when, "cycle")

    # --- events ----------------------------------------------------------------------------------------------------

    def _happen(self, kind: Kind, number: int, version: int) -> None:
        if kind == "cycle":
            return
        if kind == "change":
            self._change(self.changes[number][1])
            return
        job = self._jobs[number]
        if kind == "free":
            self._free(job)
        elif kind == "comes":
            self._come(job)
        elif kind == "epoch" and self.now < job.epoch_ends_at:
            return
        elif version == job.version and job.ended_at is None:
            self._catch_up(job)
            if job.ended_at is None:
                self._went_on(job, kind)

    def _come(self, job: Replayed) -> None:
        job.played_to = self.now
        if job.is_held_back:
            return
        self._active[job.id] = job
        self._wake(self.now)
        if job.slots:
            self._note(job)
            self._train_on(job, 0.0)

    def _free(self, job: Replayed) -> None:
        self._leaving = {ref: holder for ref, holder in self._leaving.items() if holder != job.id}
        self._note(job)
        self._wake(self.now)

    def _note(self, job: Replayed) -> None:
        leaving = sum(holder == job.id for holder in self._leaving.values())
        self.held.append(Held(self.now, job.id, len(job.slots) + leaving))

    def _costs(self, job: Replayed) -> Costs:
        return job.costs or self.costs

    def _change(self, change: Rules | Pool | JobChange) -> None:
        match change:
            case Rules():
                self.groups = change.groups
            case Pool():
                self.slots = change.slots
                self._devices = _devices(self.slots)
                self._leave_lost_slots()
            case JobChange():
                self._ask(self._jobs[change.job], change)
        self._wake(self.now)

    def _ask(self, job: Replayed, change: JobChange) -> None:
        """Apply a user's change; ignored if the training has already ended in this simulation."""
        if job.ended_at is not None:
            return
        match change.verb:
            case "change":
                job.view = replace(job.view, **change.fields)
            case "resume":
                job.is_held_back = False
                self._come(job)
            case "hold" | "withdraw":
                if job.id in self._active:
                    self._catch_up(job)
                job.is_held_back = True
                if job.ended_at is None:
                    self._give_back(job, job.slots)
                    job.ended_at = self.now if change.verb == "withdraw" else None
                self._active.pop(job.id, None)

    def _give_back(self, job: Replayed, slots: Iterable[SlotRef]) -> None:
        """Let the training go on with the remaining slots, after a pause; the slots given back are free later."""
        given = set(slots)
        job.slots = tuple(ref for ref in job.slots if ref not in given)
        job.joining = job.joining - given
        self._train_on(job, self._costs(job).pause)
        if given:
            self._leaving |= dict.fromkeys(given, job.id)
            self._at(self.now + self._release_seconds(job), "free", job)

    def _release_seconds(self, job: Replayed) -> float:
        costs = self._costs(job)
        return costs.pause if costs.release is None else costs.release

    def _leave_lost_slots(self) -> None:
        """Drop ranks on removed slots; a training left with too few waits."""
        there = {slot.ref for slot in self.slots}
        self._leaving = {ref: holder for ref, holder in self._leaving.items() if ref in there}
        for job in list(self._active.values()):
            kept = tuple(ref for ref in job.slots if ref in there)
            if len(kept) == len(job.slots):
                continue
            self._catch_up(job)
            if job.ended_at is None:
                job.slots, job.joining = kept, job.joining.intersection(kept)
                if len(kept) < (job.view.min_slots if job.view.elastic else job.view.max_slots):
                    self._give_back(job, kept)
                else:
                    self._train_on(job, self._costs(job).pause)
                self._note(job)

    def _went_on(self, job: Replayed, kind: Kind) -> None:
        if kind == "switch":
            job.joining = frozenset()
            self._train_on(job, self._costs(job).pause)
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
        self._remember(job)
        if self._group(job).policy == "goodput":
            self._wake(self.now if self._hold is None else max(self.now, self._hold.at + TARGET_HOLD_SECONDS))

    def _remember(self, job: Replayed) -> None:
        """Keep the training's ratios of kinds, also beyond its end."""
        if job.view.code and len(job.measured.kinds) > 1:
            speeds = goodput_at_one(self._profile(job))
            self._measured_ratios[job.id] = tuple(ratios_of(job.id, job.view.code, speeds))

    def _ratios(self) -> tuple[KindRatio, ...]:
        own = self._measured_ratios
        before = (one for one in self.remembered if one.job not in own)
        return medians(chain(before, *own.values()), {job.view.code for job in self._active.values()})

    def _profile(self, job: Replayed) -> ProfileView | None:
        costs = self._costs(job)
        return job.measured.view(job.physics, pause_seconds=costs.pause, start_seconds=costs.join)

    def _catch_up(self, job: Replayed) -> None:
        """Simulate the training up to the present time."""
        seconds, job.played_to = self.now - job.played_to, self.now
        if seconds <= 0 or not job.slots:
            return
        job.physics.advance(seconds)
        idle = seconds * len(job.joining)
        job.physics.gpu_seconds += idle
        job.physics.lost += idle
        if job.physics.over is not None:
            self._end(job, self.now - job.physics.over)

    def _end(self, job: Replayed, at: float) -> None:
        """End it after its last step, at `at`."""
        job.ended_at = at + self._costs(job).end
        left = max(0.0, job.ended_at + self._costs(job).free - self.now)
        slots, job.slots, job.joining = job.slots, (), frozenset()
        self._active.pop(job.id)
        self._leaving = {ref: holder for ref, holder in self._leaving.items() if holder != job.id}
        if left:
            self._leaving |= dict.fromkeys(slots, job.id)
            self._at(self.now + left, "free", job)
        self._note(job)
        self._wake(self.now)

    def _group(self, job: Replayed) -> GroupView:
        return next((group for group in self.groups if group.name == job.view.group), self.groups[0])

    def _expect(self, job: Replayed) -> None:
        """Plan the end of its next epoch."""
        physics = job.physics
        end = physics.application.epoch_ends[physics.epoch]
        seconds = physics.pause + max(0.0, end - physics.progress) / physics.rate()
        # Adding a tiny delay to Unix seconds may yield the same float, and the simulation would never advance.
        job.epoch_ends_at = max(self.now + seconds, nextafter(self.now, inf))
        self._at(job.epoch_ends_at, "epoch", job)

    def _train_on(self, job: Replayed, pause: float) -> None:
        """Train on with the GPUs that it has and that are ready."""
        job.version += 1
        refs = [ref for ref in job.slots if ref not in job.joining]
        job.physics.place(_placement(refs), pause, {self._devices.get(ref, "") for ref in refs})
        if job.physics.placement:
            self._at(self.now + job.physics.pause + MEASURED_AFTER, "measured", job)
            self._expect(job)

    # --- decisions -------------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        self._next_cycle = None
        for job in list(self._active.values()):
            self._catch_up(job)
        if not self._active:
            self.on_plan(self.now, None)
            return
        snapshot, self._hold = hold_targets(self._snapshot(), self._hold)
        began = self.clock()
        result = run_cycle(snapshot)
        placed = result.placed
        self.cycles.append(self.clock() - began)
        self.on_plan(self.now, result)
        self._next_cycle = None
        for number in sorted(placed):
            self._carry_out(self._active[number], placed[number])

    def _snapshot(self) -> Snapshot:
        held = {ref: job.id for job in self._active.values() for ref in job.slots} | self._leaving
        ending = set(self._leaving.values())
        return Snapshot(
            at=self.now,
            groups=self.groups,
            slots=tuple(
                SlotView(
                    slot.ref,
                    slot.resource_groups,
                    slot.claimable,
                    held.get(slot.ref),
                    slot.ref in self._leaving,
                    slot.device,
                )
                for slot in self.slots
            ),
            # One whose ranks still end elsewhere cannot start yet.
            jobs=tuple(self._view(job) for job in self._active.values() if job.slots or job.id not in ending),
            ratios=self._ratios(),
            shares=self.shares,
            ending={job: wish for job in ending if (wish := self._jobs[job].view.wish) is not None},
        )

    def _view(self, job: Replayed) -> JobView:
        limit, began = job.view.lasts, job.started_at if job.slots else None
        job.view = replace(
            job.view,
            state="PENDING" if not job.slots else "STARTING" if job.physics.pause > 0 else "RUNNING",
            started_at=began,
            ends_at=began + limit if limit and began is not None else None,
            gpu_seconds=job.physics.gpu_seconds,
            changes=job.changes_before + job.physics.resizes,
            profile=self._profile(job),
        )
        group = self._group(job).name
        return job.view if group == job.view.group else replace(job.view, group=group)

    def _carry_out(self, job: Replayed, placed: JobSlots) -> None:
        job.view = job_after(job.view, placed, self.now)
        if not placed.claim and not placed.vacate:
            return
        costs, starts = self._costs(job), not job.slots
        slots = tuple(sorted(placed.kept + placed.claim))
        trained_on = set(job.slots) - job.joining
        if starts:
            job.started_at = self.now
        job.slots = slots
        job.joining = frozenset() if starts else (job.joining | set(placed.claim)).intersection(slots)
        if placed.vacate:
            self._leaving |= dict.fromkeys(placed.vacate, job.id)
            self._at(self.now + self._release_seconds(job), "free", job)
        self._note(job)
        if starts:
            self._train_on(job, costs.start)
        elif job.joining and costs.join and trained_on.intersection(slots):
            self._join(job, trained_on)
        else:
            job.joining = frozenset()
            self._train_on(job, costs.pause)

    def _join(self, job: Replayed, trained_on: set[SlotRef]) -> None:
        """Let the training go on without its new ranks until they are ready."""
        if trained_on.issubset(job.slots):
            job.version += 1
            self._expect(job)
        else:
            self._train_on(job, self._costs(job).pause)
        self._at(self.now + self._costs(job).join, "switch", job)


def _devices(slots: Iterable[SlotView]) -> dict[SlotRef, str]:
    return {slot.ref: slot.device for slot in slots}


def _placement(refs: Iterable[SlotRef]) -> Placement:
    return tuple(len(list(same)) for _, same in groupby(sorted(refs), key=lambda ref: ref.host))

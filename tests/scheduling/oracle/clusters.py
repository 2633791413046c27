"""Random clusters: hosts, instance groups and jobs of every kind that the scheduler knows, and what happens to them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidepool.goodput.model import Bounds, NoiseScale, ThroughputParameters

from scheduling.plan import Plan
from scheduling.policies.target_hold import TargetHold, hold_targets
from scheduling.preview import after_cycle, without_jobs
from scheduling.schedule import schedule
from scheduling.snapshot import GroupView, JobView, ProfileView, SlotRef, SlotView, Snapshot
from tests.scheduling.cluster import lines

__all__ = ["PlayedCluster", "random_cluster"]

_KINDS = (("",), ("",), ("",), ("Ampere", "Hopper"), ("Ampere", "Hopper", "Turing"))
_OFFERS = (
    (("r",),), (("r",),), (("r",),), (("r", "s"), ("r",), ("s",)),
    (("r", "s", "t"), ("r", "s", "t"), ("s", "t"), ("r", "s"), ("r",)),
)  # fmt: skip
_WEIGHTS = ((), (), (("Ampere", 1.0), ("Hopper", 3.0)), (("Turing", 0.25),))
_PRIORITIES = (1, 2500, 5000, 5000, 5000, 7000, 10000)


@dataclass
class PlayedCluster:
    """A cluster under the scheduler's plans. A vacated slot is free again after some cycles."""

    snapshot: Snapshot
    dice: random.Random
    kinds: tuple[str, ...]
    offers: tuple[tuple[str, ...], ...]
    #: Largest number of jobs at a time.
    most_jobs: int = 12
    hold: TargetHold | None = None
    #: Cycles after which each vacated slot is free.
    leaving: dict[SlotRef, int] = field(default_factory=dict)
    number: int = 0
    #: Source of the studies that jobs belong to; None: every job counts alone.
    studies: random.Random | None = None

    def cycle(self, seconds: float) -> tuple[Snapshot, Plan]:
        """Return the snapshot that a cycle saw, and its plan, which is carried out."""
        seen, self.hold = hold_targets(self.snapshot, self.hold)
        plan = schedule(seen)
        by_job = lines(plan)
        after = after_cycle(self.snapshot, by_job)
        was_vacating = {slot.ref: slot for slot in self.snapshot.slots if slot.vacating}
        slots = []
        for slot in after.slots:
            left = self.leaving.pop(slot.ref, 0) - 1
            if slot.ref in was_vacating and left > 0:
                slot, self.leaving[slot.ref] = was_vacating[slot.ref], left
            elif slot.vacating:
                self.leaving[slot.ref] = self.dice.choice((1, 1, 2, 4))
            slots.append(slot)
        self.snapshot = replace(after, slots=tuple(slots))
        self._pass(seconds)
        return seen, plan

    def still_cycle(self, seconds: float) -> tuple[Snapshot, Plan]:
        """The same where nothing changes but the clock: all times of jobs move with it."""
        found = self.cycle(seconds)
        jobs = tuple(_moved(job, seconds) for job in self.snapshot.jobs)
        self.snapshot = replace(self.snapshot, jobs=jobs)
        return found

    def happens(self) -> None:
        """Let one thing happen."""
        events = (self._submit, self._submit, self._end, self._end, self._drain, self._change_group, self._change_job)
        self.dice.choice(events)()
        ending = [job for job in self.snapshot.jobs if job.ends_at is not None and job.ends_at <= self.snapshot.at]
        for job in ending:
            self.end(job.id)

    def end(self, number: int) -> None:
        self.snapshot = without_jobs(self.snapshot, {number})

    def _pass(self, seconds: float) -> None:
        self.snapshot = replace(self.snapshot, at=self.snapshot.at + seconds)

    def _submit(self) -> None:
        if len(self.snapshot.jobs) < self.most_jobs:
            self.number += 1
            new = _job(self.dice, self.number, self.dice.choice(self.snapshot.groups), self.snapshot.at, self.kinds)
            if self.studies is not None:
                new = _in_study(self.studies, new, self.snapshot)
            self.snapshot = replace(self.snapshot, jobs=(*self.snapshot.jobs, new))

    def _end(self) -> None:
        if self.snapshot.jobs:
            self.end(self.dice.choice(self.snapshot.jobs).id)

    def _drain(self) -> None:
        host = self.dice.choice(self.snapshot.slots).ref.host
        drained = tuple(
            replace(slot, claimable=not slot.claimable) if slot.ref.host == host else slot
            for slot in self.snapshot.slots
        )
        self.snapshot = replace(self.snapshot, slots=drained)

    def _change_group(self) -> None:
        place = self.dice.randrange(len(self.snapshot.groups))
        groups = list(self.snapshot.groups)
        other = _group(self.dice, groups[place].name, self.offers)
        terms = self.dice.choice(
            (("quota",), ("weight",), ("borrows", "lends"), ("policy", "preemption"), ("started",))
        )
        groups[place] = replace(groups[place], **{term: getattr(other, term) for term in terms})
        self.snapshot = replace(self.snapshot, groups=tuple(groups))

    def _change_job(self) -> None:
        if not self.snapshot.jobs:
            return
        job = self.dice.choice(self.snapshot.jobs)
        changes: dict[str, Any] = {"priority": self.dice.choice(_PRIORITIES)}
        if job.elastic and self.dice.random() < 0.5:
            changes = {"max_slots": self.dice.randint(job.min_slots, 12)}
        jobs = tuple(replace(one, **changes) if one is job else one for one in self.snapshot.jobs)
        self.snapshot = replace(self.snapshot, jobs=jobs)


def random_cluster(seed: int) -> PlayedCluster:
    dice = random.Random(seed)
    kinds, offers = dice.choice(_KINDS), dice.choice(_OFFERS)
    groups = tuple(_group(dice, name, offers) for name in "abcdef"[: dice.choice((1, 2, 2, 3, 3, 4, 5, 6))])
    # Apart from the other dice, so that clusters of a seed stay what they were without weights.
    weights = random.Random(f"weights {seed}")
    groups = tuple(replace(one, gpu_weights=weights.choice(_WEIGHTS)) for one in groups)
    slots = []
    is_large = dice.random() < 0.2
    for host in range(dice.randint(6, 9) if is_large else dice.randint(1, 5)):
        offer, kind = dice.choice(offers), dice.choice(kinds)
        for index in range(dice.choice((1, 2, 3, 4, 4, 8))):
            # A resource group may offer only the first slots of a host.
            offer = offer if dice.random() < 0.95 else dice.choice(offers)
            slots.append(SlotView(SlotRef(f"h{host}", index), offer, claimable=True, device=kind))
    # Apart from the other dice, so that clusters of a seed stay what they were without studies.
    studies = random.Random(f"studies {seed}")
    return PlayedCluster(
        Snapshot(10_000.0, groups, tuple(slots)),
        dice,
        kinds,
        offers,
        40 if is_large else 12,
        studies=studies if studies.random() < 0.7 else None,
    )


def _in_study(dice: random.Random, new: JobView, seen: Snapshot) -> JobView:
    """Let the job belong to a study, often as one more trial like those that are there."""
    if dice.random() < 0.4:
        return new
    bundle, rank = dice.choice((1, 1, 2)), dice.choice((0, 0, 0, 1, 2))
    trials = [job for job in seen.jobs if job.group == new.group and job.bundle == bundle]
    if trials and dice.random() < 0.7:
        like, sizes = trials[0], ("min_slots", "max_slots", "elastic", "one_host", "priority", "lasts", "continues")
        new = replace(new, **{name: getattr(like, name) for name in sizes})
    elif dice.random() < 0.6:
        new = replace(new, elastic=True, min_slots=1, max_slots=dice.choice((1, 2, 4, 12)), one_host=False)
    return replace(new, bundle=bundle, bundle_rank=rank)


def _group(dice: random.Random, name: str, offers: Sequence[tuple[str, ...]]) -> GroupView:
    return GroupView(
        name=name,
        resource_group=dice.choice(dice.choice(offers)),
        policy=dice.choice(("fairshare", "fairshare", "priority", "fifo", "goodput", "goodput")),
        preemption=dice.random() < 0.7,
        quota=dice.choice((None, None, 0, 1, 2, 3, 4, 6, 16)),
        weight=dice.choice((0, 1, 1, 1, 2, 3, 10)),
        borrows=dice.random() < 0.8,
        lends=dice.random() < 0.85,
        minimum_run_seconds=dice.choice((0, 0, 0, 60)),
        started=dice.random() < 0.95,
        aim=dice.choice(("soon", "even", "used")),
    )


def _job(dice: random.Random, number: int, group: GroupView, at: float, kinds: Sequence[str]) -> JobView:
    elastic = dice.random() < 0.65
    least = dice.choice((1, 1, 1, 2, 2, 3, 4, 6, 8))
    most = dice.choice((least, least + 1, least + 2, 2 * least, 12, 40)) if elastic else least
    lasts = dice.choice((None, None, None, 30.0, 100.0, 1000.0))
    return JobView(
        id=number,
        name=f"T{number}",
        group=group.name,
        state="PENDING",
        priority=dice.choice(_PRIORITIES),
        submitted_at=at - dice.choice((0.0, 0.0, 200.0, 400.0)),
        min_slots=least,
        max_slots=most,
        elastic=elastic,
        owner=dice.choice((1, 1, 2)),
        lasts=lasts,
        continues=elastic or dice.random() < 0.5,
        profile=_profile(dice, kinds) if dice.random() < 0.6 else None,
        one_host=not elastic and dice.random() < 0.2,
    )


def _profile(dice: random.Random, kinds: Sequence[str]) -> ProfileView:
    """A profile of a job that gains from each GPU, from the first few, from none, or only from many."""
    parameters = {}
    for kind in dice.sample(kinds, dice.randint(1, len(kinds))):
        sums, speed = dice.choice((0.0, 0.02, 0.2, 1.0)), dice.choice((1.0, 0.4, 3.0))
        parameters[kind] = ThroughputParameters(
            0.01 * speed, 0.002 * speed, sums, sums / 10, 2 * sums, sums / 10, dice.choice((1.0, 1.5, 3.0))
        )
    return ProfileView(
        bounds=Bounds(64, dice.choice((None, 512))),
        parameters=parameters,
        noise=dice.choice((None, NoiseScale(100.0, 1.0))),
        largest_ranks=dice.choice((1, 2, 8)),
        remaining_steps=dice.choice((None, 100.0, 1e5)),
    )


def _moved(job: JobView, seconds: float) -> JobView:
    times = ("submitted_at", "started_at", "ends_at", "unsaved_since")
    return replace(job, **{name: at + seconds for name in times if (at := getattr(job, name)) is not None})

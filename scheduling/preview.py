"""Effect of a change: the next plan with it, compared to the next plan without it.

The change may be a new job, other values of a job, other rules of a group, or slots that are taken out of service or
out of a group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from scheduling.placement.slot_choice import JobSlots
from scheduling.plan import Explanation, JobPlan
from scheduling.policies.kind_ratios import Ratios
from scheduling.policies.speedups import Shape, batch_of
from scheduling.schedule import run_cycle
from scheduling.sharing.decision import Decision
from scheduling.sharing.pool import shapes_of
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot

__all__ = [
    "Comparison",
    "Move",
    "Preview",
    "Speed",
    "TargetChange",
    "after_cycle",
    "compare",
    "job_after",
    "lost_slots",
    "moves",
    "preview",
    "speeds",
    "with_changes",
    "with_group",
    "with_job",
    "with_priority",
    "without_host",
    "without_jobs",
]


@dataclass(frozen=True)
class TargetChange:
    """A target of another job that changes."""

    job: int
    before: int
    after: int
    #: Whether the job runs now and is stopped, to continue later.
    stops: bool
    #: The kinds of GPU that it has, where there are several.
    kind_before: str | None = None
    kind_after: str | None = None


@dataclass(frozen=True)
class Preview:
    #: The job's line of the next plan.
    line: JobPlan
    #: The reason for its target once the slots that it waits for are released. None: the line already gives it.
    then: Explanation | None
    #: Its target without the change; 0 for a new job.
    before: int
    #: In order of job id; only jobs that get more or fewer.
    others: tuple[TargetChange, ...]
    #: What the next plan decides for the job's group.
    decision: Decision


def with_job(snapshot: Snapshot, job: JobView) -> Snapshot:
    return replace(snapshot, jobs=(*snapshot.jobs, job))


def with_changes(snapshot: Snapshot, job: int, **fields: Any) -> Snapshot:
    return replace(snapshot, jobs=tuple(replace(view, **fields) if view.id == job else view for view in snapshot.jobs))


def with_priority(snapshot: Snapshot, jobs: Set[int], priority: int) -> Snapshot:
    """Return the snapshot as if each of these jobs had the priority."""
    return replace(
        snapshot, jobs=tuple(replace(view, priority=priority) if view.id in jobs else view for view in snapshot.jobs)
    )


def without_jobs(snapshot: Snapshot, jobs: Set[int]) -> Snapshot:
    """Return the snapshot without these jobs."""
    return replace(
        snapshot,
        jobs=tuple(view for view in snapshot.jobs if view.id not in jobs),
        slots=tuple(
            replace(slot, held_by=None, vacating=False) if slot.held_by in jobs else slot for slot in snapshot.slots
        ),
    )


def preview(without: Snapshot, with_it: Snapshot, job: int) -> Preview:
    """Compare the next plans of two snapshots: `with_it` is `without` plus the job or its change. Only this job is
    explained."""
    before, result = run_cycle(without).placed, run_cycle(with_it)
    line, after = result.line(job), result.placed
    then = None
    if line.target and not line.slots:
        then = run_cycle(after_cycle(after_cycle(with_it, after), {})).line(job).reason
    others = tuple(change for change in _target_changes(before, after) if change.job != job)
    return Preview(line, then, before[job].target if job in before else 0, others, result.decision(job))


def _target_changes(before: Mapping[int, JobSlots], after: Mapping[int, JobSlots]) -> Iterator[TargetChange]:
    for job in sorted(before.keys() & after.keys()):
        if before[job].target != after[job].target:
            yield TargetChange(
                job, before[job].target, after[job].target, after[job].preempt, before[job].kind, after[job].kind
            )


def after_cycle(snapshot: Snapshot, placed: Mapping[int, JobSlots | JobPlan]) -> Snapshot:
    """Return the snapshot one cycle later: the plan's claims hold, its vacated slots are vacating, earlier vacating
    slots are free."""
    known = {view.id for view in snapshot.jobs}
    claims = {ref: job for job, slots in placed.items() for ref in slots.claim}
    vacated = {ref for slots in placed.values() for ref in slots.vacate}
    return replace(
        snapshot,
        slots=tuple(_slot_after(slot, known, claims, vacated) for slot in snapshot.slots),
        jobs=tuple(
            job_after(view, placed[view.id], snapshot.at) if view.id in placed else view for view in snapshot.jobs
        ),
    )


def _slot_after(slot: SlotView, known: set[int], claims: dict[SlotRef, int], vacated: set[SlotRef]) -> SlotView:
    if slot.held_by is not None and (slot.vacating or slot.held_by not in known):
        return replace(slot, held_by=None, vacating=False)
    if slot.ref in claims:
        return replace(slot, held_by=claims[slot.ref])
    return replace(slot, vacating=True) if slot.ref in vacated else slot


def job_after(view: JobView, placed: JobSlots | JobPlan, now: float) -> JobView:
    """Return the job as the next cycle sees it, once its part of a plan is carried out at `now`."""
    if (view.target, view.target_kind) != (placed.target, placed.kind):
        view = replace(view, target=placed.target, target_kind=placed.kind)
    if placed.preempt:
        return replace(
            view, state="PENDING", started_at=None, ends_at=None, backfilled_for=None, over_quota=False,
            unsaved_since=None,
        )  # fmt: skip
    if view.state != "PENDING" or not placed.claim:
        return view
    return replace(
        view, state="RUNNING", started_at=now, ends_at=None if view.lasts is None else now + view.lasts,
        backfilled_for=placed.backfilled_for, over_quota=placed.over_quota,
    )  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    #: In order of job id.
    changes: tuple[TargetChange, ...]

    @property
    def moves(self) -> int:
        """Slots that another job gets than without the change, or that only one of the two ways leaves free."""
        more = sum(max(0, change.after - change.before) for change in self.changes)
        fewer = sum(max(0, change.before - change.after) for change in self.changes)
        return max(more, fewer)


def with_group(snapshot: Snapshot, group: GroupView) -> Snapshot:
    """Return the snapshot with these rules for the group of that name."""
    return replace(snapshot, groups=tuple(group if view.name == group.name else view for view in snapshot.groups))


def compare(without: Snapshot, with_it: Snapshot) -> Comparison:
    """Compare the jobs that both plans have."""
    return Comparison(tuple(_target_changes(run_cycle(without).placed, run_cycle(with_it).placed)))


@dataclass(frozen=True)
class Speed:
    """Speed of a job, in steps at its own batch size per second, on the slots of a plan: by its profile."""

    before: float
    after: float
    #: On one GPU.
    alone: float
    #: Whether the speed after the change is an estimate, because the job was not measured on that kind of GPU.
    is_estimated: bool = False


def speeds(without: Snapshot, with_it: Snapshot, changes: Iterable[TargetChange]) -> dict[int, Speed]:
    """Return the speeds of the jobs that were measured."""
    views = {view.id: view for view in without.jobs if view.profile is not None}
    shapes = [
        {group.name: shapes_of(snapshot, group.resource_group) for group in snapshot.groups}
        for snapshot in (without, with_it)
    ]
    ratios, found = Ratios(without.ratios), {}
    for change in changes:
        if (view := views.get(change.job)) is None:
            continue
        kinds = change.kind_before, change.kind_after
        before, after = (_of_kind(there[view.group], kind) for there, kind in zip(shapes, kinds, strict=True))
        counts = ((before, change.before), (after, change.after), (before, 1))
        plans = [batch_of(view, shape, count, ratios) for shape, count in counts]
        if plans[-1] is not None and plans[-1].goodput:
            assert view.profile is not None
            at, then, alone = (plan.goodput if plan is not None else 0.0 for plan in plans)
            found[change.job] = Speed(at, then, alone, after.kind not in view.profile.parameters)
    return found


def _of_kind(shapes: Sequence[Shape], kind: str | None) -> Shape:
    return next((shape for shape in shapes if shape.kind == kind), shapes[0])


@dataclass(frozen=True)
class Move:
    """The effect on a job that holds some of these slots."""

    job: int
    #: Number of them that it holds now, and that it keeps until it ends: fixed-size jobs finish where they are.
    held: int
    kept: int
    elastic: bool
    #: New target of the training, over all slots; 0: it is stopped, and continues later.
    target: int


def without_host(snapshot: Snapshot, host: str) -> Snapshot:
    """Return the snapshot as if the host were draining."""
    return replace(
        snapshot,
        slots=tuple(replace(slot, claimable=False) if slot.ref.host == host else slot for slot in snapshot.slots),
    )


def lost_slots(before: Snapshot, after: Snapshot, resource_group: str) -> set[SlotRef]:
    """Return the slots that the resource group offers in the first snapshot but not in the second."""
    left = {slot.ref for slot in after.slots if resource_group in slot.resource_groups}
    return {slot.ref for slot in before.slots if resource_group in slot.resource_groups} - left


def moves(after: Snapshot, taken: Set[SlotRef]) -> list[Move]:
    """Return the moves of jobs that hold slots of `taken` and may use none there. after: the snapshot without these."""
    views = {job.id: job for job in after.jobs}
    groups = {group.name: group.resource_group for group in after.groups}
    held: dict[int, set[SlotRef]] = {}
    for slot in after.slots:
        job = views.get(slot.held_by) if slot.held_by is not None else None
        if job is None or slot.vacating or slot.ref not in taken:
            continue
        if not slot.claimable or groups[job.group] not in slot.resource_groups:
            held.setdefault(job.id, set()).add(slot.ref)
    placed = run_cycle(after).placed if held else {}
    found = []
    for number, slots in sorted(held.items()):
        then = placed[number]
        kept = slots & (set(then.kept) - set(then.leaving))
        found.append(Move(number, len(slots), len(kept), views[number].elastic, then.target))
    return found

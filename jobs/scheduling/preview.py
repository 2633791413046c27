"""What a new job, or a change of one, would do: the next plan with it, compared to the next plan without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from jobs.scheduling.plan import Explanation, JobPlan, Plan
from jobs.scheduling.schedule import schedule
from jobs.scheduling.snapshot import JobView, SlotRef, SlotView, Snapshot

__all__ = ["Effect", "Preview", "preview", "turned", "with_changes", "with_job"]


@dataclass(frozen=True)
class Effect:
    """What becomes of another job's target."""

    job: int
    before: int
    after: int


@dataclass(frozen=True)
class Preview:
    #: The job's line of the next plan.
    line: JobPlan
    #: Why it then has its target, once what it waits for has been given back. None: the line says so already.
    then: Explanation | None
    #: Its target without the change; 0 for a new job.
    before: int
    #: In order of job id; only jobs that get more or fewer.
    others: tuple[Effect, ...]


def with_job(snapshot: Snapshot, job: JobView) -> Snapshot:
    return replace(snapshot, jobs=(*snapshot.jobs, job))


def with_changes(snapshot: Snapshot, job: int, **fields: Any) -> Snapshot:
    return replace(snapshot, jobs=tuple(replace(view, **fields) if view.id == job else view for view in snapshot.jobs))


def preview(without: Snapshot, with_it: Snapshot, job: int) -> Preview:
    """`with_it` is `without` plus the job or its change."""
    former = {line.job: line.target for line in schedule(without).jobs}
    plan = schedule(with_it)
    [line] = [line for line in plan.jobs if line.job == job]
    return Preview(line, _then(with_it, plan, line), former.get(job, 0), tuple(_effects(former, plan, job)))


def _effects(former: dict[int, int], plan: Plan, job: int) -> Iterator[Effect]:
    for line in plan.jobs:
        if line.job != job and line.target != former[line.job]:
            yield Effect(line.job, former[line.job], line.target)


def _then(snapshot: Snapshot, plan: Plan, line: JobPlan) -> Explanation | None:
    if not line.target or line.slots:
        return None
    later = turned(turned(snapshot, plan), Plan(()))
    [then] = [after for after in schedule(later).jobs if after.job == line.job]
    return then.reason


def turned(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """One cycle later: what the plan claims and vacates is claimed and vacating, what was being given back is free."""
    known = {view.id for view in snapshot.jobs}
    claims = {ref: line.job for line in plan.jobs for ref in line.claim}
    vacated = {ref for line in plan.jobs for ref in line.vacate}
    lines = {line.job: line for line in plan.jobs}
    return replace(
        snapshot,
        slots=tuple(_slot_after(slot, known, claims, vacated) for slot in snapshot.slots),
        jobs=tuple(_job_after(view, lines.get(view.id)) for view in snapshot.jobs),
    )


def _slot_after(slot: SlotView, known: set[int], claims: dict[SlotRef, int], vacated: set[SlotRef]) -> SlotView:
    if slot.held_by is not None and (slot.vacating or slot.held_by not in known):
        return replace(slot, held_by=None, vacating=False)
    if slot.ref in claims:
        return replace(slot, held_by=claims[slot.ref])
    return replace(slot, vacating=True) if slot.ref in vacated else slot


def _job_after(view: JobView, line: JobPlan | None) -> JobView:
    if line is None or not (line.preempt or line.claim):
        return view
    return replace(view, state="PENDING" if line.preempt else "RUNNING")

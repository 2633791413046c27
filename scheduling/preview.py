"""What a new job, or a change of one, would do: the next plan with it, compared to the next plan without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scheduling.decision import Decision
from scheduling.placement import Placed
from scheduling.plan import Explanation, JobPlan
from scheduling.schedule import decided
from scheduling.snapshot import JobView, SlotRef, SlotView, Snapshot

__all__ = ["Effect", "Preview", "after_cycle", "preview", "with_changes", "with_job"]


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
    #: What the next plan decides for the job's group.
    decision: Decision


def with_job(snapshot: Snapshot, job: JobView) -> Snapshot:
    return replace(snapshot, jobs=(*snapshot.jobs, job))


def with_changes(snapshot: Snapshot, job: int, **fields: Any) -> Snapshot:
    return replace(snapshot, jobs=tuple(replace(view, **fields) if view.id == job else view for view in snapshot.jobs))


def preview(without: Snapshot, with_it: Snapshot, job: int) -> Preview:
    """`with_it` is `without` plus the job or its change. Only this job's sentences are made."""
    former = {other: placed.target for other, placed in decided(without).placed.items()}
    result = decided(with_it)
    line, placed = result.line(job), result.placed
    then = _then(with_it, placed, job) if line.target and not line.slots else None
    return Preview(line, then, former.get(job, 0), tuple(_effects(former, placed, job)), result.decision(job))


def _effects(former: Mapping[int, int], placed: Mapping[int, Placed], job: int) -> Iterator[Effect]:
    for other in sorted(placed):
        if other != job and placed[other].target != former[other]:
            yield Effect(other, former[other], placed[other].target)


def _then(snapshot: Snapshot, placed: Mapping[int, Placed], job: int) -> Explanation:
    return decided(after_cycle(after_cycle(snapshot, placed), {})).line(job).reason


def after_cycle(snapshot: Snapshot, placed: Mapping[int, Placed | JobPlan]) -> Snapshot:
    """One cycle later: what was claimed and vacated is claimed and vacating, what was being given back is free."""
    known = {view.id for view in snapshot.jobs}
    claims = {ref: job for job, slots in placed.items() for ref in slots.claim}
    vacated = {ref for slots in placed.values() for ref in slots.vacate}
    return replace(
        snapshot,
        slots=tuple(_slot_after(slot, known, claims, vacated) for slot in snapshot.slots),
        jobs=tuple(_job_after(view, placed.get(view.id)) for view in snapshot.jobs),
    )


def _slot_after(slot: SlotView, known: set[int], claims: dict[SlotRef, int], vacated: set[SlotRef]) -> SlotView:
    if slot.held_by is not None and (slot.vacating or slot.held_by not in known):
        return replace(slot, held_by=None, vacating=False)
    if slot.ref in claims:
        return replace(slot, held_by=claims[slot.ref])
    return replace(slot, vacating=True) if slot.ref in vacated else slot


def _job_after(view: JobView, placed: Placed | JobPlan | None) -> JobView:
    if placed is None or not (placed.preempt or placed.claim):
        return view
    return replace(view, state="PENDING" if placed.preempt else "RUNNING")

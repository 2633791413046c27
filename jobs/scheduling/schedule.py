"""One turn of the scheduler: from what there is to what shall be.

Groups are decided in order of name, each over the slots of its resource group that no other group holds or counts on.
Within a group:

1. its policy says how many slots each job gets (decision.py, policies/);
2. shrinking jobs choose what to keep, growing and starting jobs claim what is free now (placement.py);
3. every job gets a sentence that says why (explain.py).

A plan claims only what is free. Slots that are being given back count in the targets, and are claimed by a later turn,
once they are free. A job that waits is started only when at least its minimum can be claimed at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.scheduling.decision import Decision, decide
from jobs.scheduling.explain import explain, explain_one
from jobs.scheduling.placement import Placed, given_back, place
from jobs.scheduling.plan import Explanation, JobPlan, Plan
from jobs.scheduling.pool import Pool, pool_of
from jobs.scheduling.snapshot import SlotRef, Snapshot

__all__ = ["Turn", "decided", "schedule"]


@dataclass(frozen=True)
class Turn:
    """All that a plan decides, before it is put into words: enough for who asks about one job."""

    #: The decision of each group that has jobs and the slots of those, in the order in which they were decided.
    groups: tuple[tuple[Decision, Mapping[int, Placed]], ...]

    @property
    def placed(self) -> dict[int, Placed]:
        """The slots of every job of the snapshot."""
        return {job: slots for _, placed in self.groups for job, slots in placed.items()}

    def decision(self, job: int) -> Decision:
        """Of the job's group."""
        return next(decision for decision, placed in self.groups if job in placed)

    def line(self, job: int) -> JobPlan:
        """The job's line of the plan."""
        decision, placed = next(group for group in self.groups if job in group[1])
        return _line(job, placed[job], explain_one(decision, placed, job))


def schedule(snapshot: Snapshot) -> Plan:
    lines: list[JobPlan] = []
    for decision, placed in decided(snapshot).groups:
        reasons = explain(decision, placed)
        lines += [_line(job, placed[job], reasons[job]) for job in placed]
    return Plan(jobs=tuple(sorted(lines, key=lambda line: line.job)))


def decided(snapshot: Snapshot) -> Turn:
    asking = {job.group for job in snapshot.jobs}
    unknown = asking - {group.name for group in snapshot.groups}
    assert not unknown, f"jobs of groups that the snapshot lacks: {sorted(unknown)}"
    counted_on: set[SlotRef] = set()
    groups: list[tuple[Decision, Mapping[int, Placed]]] = []
    for group in sorted(snapshot.groups, key=lambda group: group.name):
        if group.name not in asking:
            continue
        decision = decide(pool_of(snapshot, group, counted_on))
        placed = place(decision)
        groups.append((decision, placed))
        counted_on |= _counted_on(decision.pool, placed)
    return Turn(tuple(groups))


def _line(job: int, placed: Placed, reason: Explanation) -> JobPlan:
    return JobPlan(
        job=job,
        target=placed.target,
        slots=placed.kept + placed.claim,
        claim=placed.claim,
        vacate=placed.vacate,
        preempt=placed.preempt,
        reason=reason,
    )


def _counted_on(pool: Pool, placed: Mapping[int, Placed]) -> set[SlotRef]:
    """Slots that later groups must leave alone: claimed now, or reserved for targets that are not reached yet.

    What the group's own jobs give back is reserved first, because nobody else could use it in this turn.
    """
    claimed = {ref for job in placed.values() for ref in job.claim}
    missing = sum(job.missing + len(job.leaving) for job in placed.values())
    if not missing:
        return claimed
    own = {job.id for job in pool.jobs}
    vacated = [ref for job in sorted(placed) for ref in given_back(pool, job, placed[job])]
    holders = sorted(pool.coming, key=lambda holder: (holder not in own, holder))
    coming = [ref for holder in holders for ref in pool.coming[holder]]
    unclaimed = [ref for ref in pool.free if ref not in claimed]
    return claimed | set((vacated + coming + unclaimed)[:missing])

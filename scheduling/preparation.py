"""Environments before slots: a job gets slots only on hosts that have its environment.

A cycle decides twice if it has to. The first time, hosts are taken to have all environments: where a job would get
slots without its environment, the host is to prepare it. The second time, such a job only counts with what it gets on
hosts that are prepared: a job that runs grows there alone, one that waits starts there with fewer slots, or waits. So
no slot is taken from anybody for a job that could not use it yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from scheduling.one_kind import on_one_kind
from scheduling.placement.slot_choice import JobSlots
from scheduling.plan import Explanation, JobPlan, Plan, PlanReason
from scheduling.schedule import CycleResult, run_cycle
from scheduling.snapshot import JobView, SlotRef, Snapshot

__all__ = ["PreparedCycle", "run_prepared_cycle"]

_PREPARING = PlanReason.PREPARING


@dataclass(frozen=True)
class PreparedCycle:
    result: CycleResult
    #: Job -> hosts on which it would get slots, and which are to prepare its environment first.
    wanted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: Job -> hosts with slots for it, on which its environment cannot be had.
    unfit: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: Jobs that wait for hosts that are prepared.
    waiting: tuple[JobView, ...] = ()
    #: Job -> hosts whose GPUs are of another model than its results depend on; see `scheduling.one_kind`.
    other_kinds: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def plan(self) -> Plan:
        """Return the decisions, with a reason for each job."""
        plan = self.result.plan()
        lines = [self._told(line) for line in plan.jobs]
        lines += [JobPlan(job.id, 0, (), (), (), False, self._reason(job, 0)) for job in self.waiting]
        return Plan(tuple(sorted(lines, key=lambda line: line.job)), plan.groups)

    def _told(self, line: JobPlan) -> JobPlan:
        """Return the line with the hosts in its reason."""
        if line.job not in self.wanted and line.job not in self.unfit:
            return line
        moves = line.claim or line.vacate
        reason = self._reason(self.result.views[line.job], line.target, line.reason.code if moves else _PREPARING)
        return replace(line, reason=reason)

    def _reason(self, job: JobView, target: int, code: PlanReason = _PREPARING) -> Explanation:
        unfit, others = self.unfit.get(job.id, ()), self.other_kinds.get(job.id, frozenset())
        lacking = {"preparing": [*self.wanted.get(job.id, ())], "unfit": [host for host in unfit if host not in others]}
        figures: dict[str, Any] = {"message": "preparing", "target": target, **lacking}
        if other_kinds := [host for host in unfit if host in others]:
            figures |= {"other_kinds": other_kinds, "began_on": job.began_on}
        return Explanation(code, figures)


def run_prepared_cycle(snapshot: Snapshot) -> PreparedCycle:
    """Return the decisions of a cycle, and the hosts that are to prepare environments."""
    if not any(job.unprepared or job.one_kind for job in snapshot.jobs):
        return PreparedCycle(run_cycle(snapshot))
    snapshot = replace(snapshot, jobs=tuple(_let_in(snapshot, job) for job in snapshot.jobs))
    one_kind = on_one_kind(snapshot)
    snapshot = one_kind.snapshot
    result = run_cycle(snapshot)
    wanted, unfit = dict[int, tuple[str, ...]](), dict[int, tuple[str, ...]]()
    views, waiting = [], []
    for view in snapshot.jobs:
        if not view.unprepared:
            views.append(view)
            continue
        slots = result.placed[view.id]
        limited: JobView | None = view
        if lacking := _hosts_to_be(result, view, slots) & (view.unprepared - view.unfit):
            wanted[view.id] = tuple(sorted(lacking))
        if lacking := _useless(result, view, slots):
            unfit[view.id] = tuple(sorted(lacking))
        if view.id in wanted or view.id in unfit:
            limited = _limited(result, view, slots)
        # From now on it gets slots on prepared hosts alone.
        if limited is None:
            waiting.append(view)
        else:
            views.append(replace(limited, unfit=view.unprepared))
    result = run_cycle(replace(snapshot, jobs=tuple(views)))
    return PreparedCycle(result, wanted, unfit, tuple(waiting), one_kind.other_kinds)


def _let_in(snapshot: Snapshot, job: JobView) -> JobView:
    """Return the job; one that could run nowhere is let in everywhere, to fail with the reason."""
    if job.state != "PENDING" or not job.unfit:
        return job
    resource_group = next(group.resource_group for group in snapshot.groups if group.name == job.group)
    in_service = {slot.ref.host for slot in snapshot.slots if slot.claimable and resource_group in slot.resource_groups}
    return replace(job, unprepared=frozenset(), unfit=frozenset()) if in_service <= job.unfit else job


def _hosts_to_be(result: CycleResult, job: JobView, slots: JobSlots) -> set[str]:
    """Return the hosts of slots that a job is to get: now, or perhaps when others have left them."""
    hosts = {ref.host for ref in slots.claim + slots.kept_for}
    return hosts | {ref.host for ref in _coming(result, job)} if slots.missing > len(slots.kept_for) else hosts


def _useless(result: CycleResult, job: JobView, slots: JobSlots) -> set[str]:
    """Return the hosts with slots, free or coming, that a job lacks and cannot use; none if others will do."""
    if not job.unfit or slots.missing <= len(slots.kept_for):
        return set()
    coming = [*_coming(result, job)]
    if slots.missing <= sum(ref.host not in job.unfit for ref in coming):
        return set()
    free = result.decision(job.id).pool.free
    return ({ref.host for ref in coming} | free.keys()) & job.unfit


def _coming(result: CycleResult, job: JobView) -> Iterator[SlotRef]:
    """Yield the slots that others leave and that the job's group may use."""
    pool = result.decision(job.id).pool
    yield from chain.from_iterable(pool.coming.values())
    for other, slots in result.placed.items():
        if other != job.id:
            yield from (ref for ref in slots.vacate if result.index.is_open_to(pool.group, ref))


def _limited(result: CycleResult, job: JobView, slots: JobSlots) -> JobView | None:
    """Return the job with at most the slots that it gets on prepared hosts, or has; None: it waits for others."""
    now = len(slots.kept) + sum(ref.host not in job.unprepared for ref in slots.claim)
    coming = sum(ref.host not in job.unprepared for ref in _coming(result, job))
    most = now + min(slots.missing, coming) if slots.missing > 0 else now
    if job.state == "PENDING":
        return replace(job, max_slots=most) if most >= (job.min_slots if job.elastic else job.max_slots) else None
    # Slots that it would leave for some that it cannot have yet stay with it.
    most = max(most, min(slots.target, len(slots.kept) + len(slots.vacate)), job.min_slots)
    return replace(job, max_slots=most) if job.elastic else job

"""Environments before slots: a job gets slots only on hosts that have its environment.

A cycle decides twice if it has to. The first time, hosts are taken to have all environments: where a job would get
slots without its environment, the host is to prepare it. The second time, such a job only counts with what it gets on
hosts that are prepared: a job that runs grows there alone, one that waits starts there with fewer slots, or waits. So
no slot is taken from anybody for a job that could not use it yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from scheduling.placement.slot_choice import JobSlots
from scheduling.plan import Explanation, JobPlan, Plan, PlanReason
from scheduling.schedule import CycleResult, run_cycle
from scheduling.snapshot import JobView, SlotRef, Snapshot

__all__ = ["PreparedCycle", "run_prepared_cycle"]


@dataclass(frozen=True)
class PreparedCycle:
    result: CycleResult
    #: Job -> hosts on which it would get slots, and which are to prepare its environment first.
    wanted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: Job -> hosts on which it would get slots, and on which its environment cannot be had.
    unfit: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: Jobs that wait for a host to be prepared.
    waiting: tuple[JobView, ...] = ()

    def plan(self) -> Plan:
        """The decisions, with a reason for each job."""
        plan = self.result.plan()
        if not (self.wanted or self.unfit):
            return plan
        lines = [self._told(line) for line in plan.jobs]
        lines += [JobPlan(job.id, 0, (), (), (), False, self._reason(job, 0)) for job in self.waiting]
        return Plan(tuple(sorted(lines, key=lambda line: line.job)), plan.groups)

    def _told(self, line: JobPlan) -> JobPlan:
        """Return the line without slots on hosts that are not prepared, and with the hosts in its reason."""
        job = self.result.views[line.job]
        if line.job not in self.wanted and not (line.job in self.unfit and job.unfit):
            return line
        refused = {ref for ref in line.claim if ref.host in job.unprepared}
        claim = tuple(ref for ref in line.claim if ref not in refused)
        reason = self._reason(job, line.target, line.reason.code if claim or line.vacate else PlanReason.PREPARING)
        return replace(line, claim=claim, slots=tuple(ref for ref in line.slots if ref not in refused), reason=reason)

    def _reason(self, job: JobView, target: int, code: PlanReason = PlanReason.PREPARING) -> Explanation:
        hosts = {"preparing": [*self.wanted.get(job.id, ())], "unfit": [*self.unfit.get(job.id, ())]}
        return Explanation(code, {"message": "preparing", "target": target, **hosts})


def run_prepared_cycle(snapshot: Snapshot) -> PreparedCycle:
    """Return the decisions of a cycle, and the hosts that are to prepare environments."""
    if not any(job.unprepared for job in snapshot.jobs):
        return PreparedCycle(run_cycle(snapshot))
    result = run_cycle(snapshot)
    wanted, unfit = dict[int, tuple[str, ...]](), dict[int, tuple[str, ...]]()
    for job, slots in result.placed.items():
        view = result.views[job]
        if lacking := _hosts_to_be(result, job, slots) & (view.unprepared - view.unfit):
            wanted[job] = tuple(sorted(lacking))
        if view.unfit and slots.missing and (lacking := result.decision(job).pool.free.keys() & view.unfit):
            unfit[job] = tuple(sorted(lacking))
    views, waiting = [], []
    for view in snapshot.jobs:
        limited: JobView | None = view
        if view.id in wanted:
            limited = _limited(view, result.placed[view.id])
        elif view.id in unfit:
            limited = _beside_unfit(view, result.placed[view.id])
        if limited is None:
            waiting.append(view)
        else:
            views.append(limited)
    again = run_cycle(replace(snapshot, jobs=tuple(views))) if wanted or unfit else result
    return PreparedCycle(again, wanted, unfit, tuple(waiting))


def _hosts_to_be(result: CycleResult, job: int, slots: JobSlots) -> set[str]:
    """Return the hosts of slots that a job is to get: now, or perhaps when others have left them."""
    hosts = {ref.host for ref in slots.claim + slots.kept_for}
    if result.views[job].unprepared and slots.missing > len(slots.kept_for):
        hosts |= {ref.host for ref in _coming(result, job)}
    return hosts


def _coming(result: CycleResult, job: int) -> Iterator[SlotRef]:
    """Yield the slots that others leave and that the job's group may use."""
    pool = result.decision(job).pool
    yield from chain.from_iterable(pool.coming.values())
    for slots in result.placed.values():
        yield from (ref for ref in slots.vacate if result.index.is_open_to(pool.group, ref))


def _limited(job: JobView, slots: JobSlots) -> JobView | None:
    """Return the job with at most the slots that it gets on prepared hosts; None: it waits for others."""
    most = len(slots.kept) + sum(ref.host not in job.unprepared for ref in slots.claim)
    if job.state == "PENDING":
        return replace(job, max_slots=most) if job.elastic and most >= job.min_slots else None
    return replace(job, max_slots=max(most, job.min_slots)) if job.elastic else job


def _beside_unfit(job: JobView, slots: JobSlots) -> JobView | None:
    """Return the job with at most the slots that it gets where its environment can be had.

    One that would start now, were it not for hosts where it cannot, is let in there: it fails, with the reason, instead
    of waiting for other hosts while slots are kept for it.
    """
    if job.state == "PENDING" and not slots.claim:
        return replace(job, unprepared=job.unprepared - job.unfit, unfit=frozenset())
    return _limited(job, slots)

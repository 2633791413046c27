"""One cycle of the scheduler: from a snapshot of the cluster to a plan.

1. instance groups that use the same slots get parts of them by quota and weight (`sharing/`);
2. in each group its policy says how many slots each job gets of the group's part (`policies/`);
3. shrinking jobs choose what to keep, growing and starting jobs claim what is free now (`placement/`), one group after
   the other, those below their part before those that borrow, none of them what another one counts on; then one job
   that is on more hosts than it needs may move its parts together;
4. every job gets a sentence that says why (`explain/`).

A plan claims only what is free. Slots that are being given back count in the targets, and are claimed by a later cycle,
once they are free. A job that waits is started only when at least its minimum can be claimed at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter

from scheduling.explain.absent_hosts import absent_hosts
from scheduling.explain.counted import with_counting
from scheduling.explain.group_summary import OtherGroups
from scheduling.explain.reasons import explain
from scheduling.host_shares import Expansion, expand, within_hosts
from scheduling.one_kind import on_one_kind
from scheduling.placement.joining import joining_of
from scheduling.placement.one_host import HostChoices
from scheduling.placement.reserved_slots import reserved_slots
from scheduling.placement.slot_choice import JobSlots, choose_all_hosts, handed_over, place, without
from scheduling.plan import Explanation, GroupPlan, JobPlan, Plan
from scheduling.policies.speedups import batch_of
from scheduling.sharing.decision import Decision
from scheduling.sharing.division import divide
from scheduling.sharing.pool import Pool, RemainingSlots, SlotIndex, index_slots
from scheduling.snapshot import JobView, SlotRef, SlotView, Snapshot

__all__ = ["CycleResult", "run_cycle", "schedule"]

_BY_JOB = attrgetter("job")


#: Number of times that a plan is made again because jobs have no use for what it gives them.
_MOST_LIMITS = 3

#: The decision of a group, and the slots of each of its jobs.
GroupResult = tuple[Decision, Mapping[int, JobSlots]]


@dataclass(frozen=True)
class CycleResult:
    """All decisions of a plan, without explanations: enough for a caller that needs one job's."""

    index: SlotIndex
    #: Groups that have jobs, in the order in which they were placed.
    groups: tuple[GroupResult, ...]
    #: Group -> job -> slots in service that it vacates.
    handed_over: Mapping[str, Mapping[int, list[SlotRef]]]
    views: Mapping[int, JobView]
    #: Jobs whose GPUs count as several slots, which `index` and `groups` count; None: there are none.
    expansion: Expansion | None = None

    @property
    def placed(self) -> dict[int, JobSlots]:
        """The slots of every job of the snapshot."""
        return {job: self._real(job, slots) for _, placed in self.groups for job, slots in placed.items()}

    def _real(self, job: int, slots: JobSlots) -> JobSlots:
        return slots if self.expansion is None else self.expansion.real_slots(job, slots)

    @property
    def queues(self) -> dict[str, list[int]]:
        """Group -> the jobs that still wait once the plan is carried out, in the order in which they are served."""
        placed = self.placed
        return {
            decision.pool.group.name: queue
            for decision, _ in self.groups
            if (queue := [one.id for one in decision.pool.demands if not (one.running or placed[one.id].claim)])
        }

    def decision(self, job: int) -> Decision:
        """Return the decision about the job's group."""
        return next(decision for decision, placed in self.groups if job in placed)

    def line(self, job: int) -> JobPlan:
        """Return the job's line of the plan."""
        decision, placed = next(group for group in self.groups if job in group[1])
        reason = explain(decision, placed, self.others(decision), [job])[job]
        return self._line(decision, placed, job, self._counted(job, placed[job], reason))

    def reasons(self) -> dict[int, Explanation]:
        """Return the reason for what each job of the snapshot gets."""
        return {
            job: self._counted(job, placed[job], reason)
            for decision, placed in self.groups
            for job, reason in explain(decision, placed, self.others(decision), placed).items()
        }

    def _counted(self, job: int, slots: JobSlots, reason: Explanation) -> Explanation:
        """Return the reason, with what the job's GPUs count as."""
        if self.expansion is None or job not in self.expansion.countings:
            return reason
        return with_counting(reason, self.expansion, self.views[job], self._real(job, slots).target)

    def plan(self) -> Plan:
        """Return the decisions, with a reason for each job."""
        # 4. Explanations.
        reasons = self.reasons()
        lines = [self._line(decision, placed, job, reasons[job]) for decision, placed in self.groups for job in placed]
        return Plan(jobs=tuple(sorted(lines, key=_BY_JOB)), groups=tuple(sorted(_group_plans(self))))

    def _line(self, decision: Decision, found: Mapping[int, JobSlots], job: int, reason: Explanation) -> JobPlan:
        placed, reservation = self._real(job, found[job]), decision.reservation
        line = JobPlan(
            job, placed.target, placed.kept + placed.claim, placed.claim, placed.vacate, placed.preempt, reason,
            placed.backfilled_for, placed.over_quota, kind=placed.kind, began_on=self.views[job].began_on,
        )  # fmt: skip
        if reservation and reservation.job == job and not placed.preempt:
            line.reserved = reserved_slots(decision, found)
        shapes = decision.pool.shapes
        if shapes and placed.target and decision.pool.group.policy == "goodput":
            shape = next((shape for shape in shapes if shape.kind == placed.kind), shapes[0])
            line.batch = batch_of(decision.pool.views[job], shape, placed.target, decision.pool.ratios)
        return line

    def others(self, decision: Decision) -> OtherGroups:
        """Facts about other groups for the group's sentences: what comes from them."""
        classes, group = self.index.classes, decision.pool.group
        foreign: dict[int, int] = {}
        for giver, jobs in self.handed_over.items() if decision.entitlement is not None else ():
            if jobs and giver != group.name:
                for job, refs in jobs.items():
                    count = len(refs) if classes is None else sum(group.resource_group in classes[ref] for ref in refs)
                    foreign |= {job: count} if count else {}
        absent = absent_hosts(self._free_out_of_service, self.index.snapshot.slots if group.part_of else (), group)
        return OtherGroups(self.views, foreign, absent)

    @cached_property
    def _free_out_of_service(self) -> list[SlotView]:
        return [slot for slot in self.index.snapshot.slots if not slot.claimable and slot.held_by is None]


def schedule(snapshot: Snapshot) -> Plan:
    return run_cycle(snapshot).plan()


def _group_plans(result: CycleResult) -> Iterator[GroupPlan]:
    for decision, _ in result.groups:
        if (division := decision.goodput) and decision.pool.group.policy == "goodput":
            yield GroupPlan(decision.pool.group.name, division.gap, division.price, division.prices)


def run_cycle(snapshot: Snapshot) -> CycleResult:
    one_kind = on_one_kind(snapshot)
    snapshot = one_kind.snapshot
    expansion = expand(snapshot)
    if expansion is None:
        return _cycle(snapshot, one_kind.lacking)
    counted, too_large = expansion.snapshot, dict(one_kind.lacking)
    result = _cycle(counted, too_large)
    for _ in range(_MOST_LIMITS):
        # Slots that a job cannot use go to others, which may have no use for them either.
        if (limits := within_hosts(replace(expansion, snapshot=counted), result.groups, result.index)) is None:
            break
        counted, too_large = replace(counted, jobs=limits.jobs), {**limits.too_large, **too_large}
        result = _cycle(counted, too_large)
    return replace(result, expansion=expansion, views={job.id: job for job in snapshot.jobs})


def _cycle(snapshot: Snapshot, too_large: Mapping[int, int] | None = None) -> CycleResult:
    """too_large: jobs that are known to need more than any host, or any model of GPUs, has; see
    `Pool.too_large_for_hosts`."""
    index = index_slots(snapshot)
    if too_large:
        index = index.with_too_large(too_large)
    while True:
        # 1. and 2. How many slots each group gets, and each of its jobs.
        decisions = divide(index)
        in_turn = [decisions[name] for name in sorted(decisions, key=lambda one: (_has_its_part(decisions[one]), one))]
        # 3. Choice of slots.
        host_choices = choose_all_hosts(index, in_turn)
        if not host_choices.too_large:
            break
        # No host has room for a job that has a share: others get it.
        index = index.with_too_large(host_choices.too_large)
    groups = _with_one_joined(tuple(_place_in_turn(index, in_turn, host_choices)))
    vacated = {
        decision.pool.group.name: handed_over(index.held.get(decision.pool.group.name, {}), placed)
        for decision, placed in groups
        if decision.entitlement is not None
    }
    return CycleResult(index, groups, vacated, {job.id: job for job in snapshot.jobs})


def _place_in_turn(index: SlotIndex, in_turn: Sequence[Decision], host_choices: HostChoices) -> Iterator[GroupResult]:
    left: RemainingSlots | None = None
    for decision in in_turn:
        if decision.entitlement is not None:
            left = left or RemainingSlots(index)
            leaving = [ref for job in decision.pool.held for ref in host_choices.moving.get(job, ())]
            decision = replace(decision, pool=left.pool(decision.pool, leaving))
        if host_choices.kept_for:
            free = without(decision.pool.free, host_choices.kept)
            decision = replace(decision, pool=replace(decision.pool, free=free))
        placed = place(decision, host_choices)
        yield decision, placed
        if left is not None and (counted_on := _counted_on(decision.pool, placed)):
            left.take(decision.pool.group, counted_on)


def _with_one_joined(groups: tuple[GroupResult, ...]) -> tuple[GroupResult, ...]:
    """Let one training that is on more hosts than it needs move, if that is worth while and nobody waits for slots."""
    if all(decision.pool.kinds is None for decision, _ in groups):
        return groups
    everybody = [slots for _, placed in groups for slots in placed.values()]
    if any(slots.missing for slots in everybody):
        return groups
    taken = [ref for slots in everybody for ref in (*slots.claim, *slots.kept_for)]
    for number, (decision, placed) in enumerate(groups):
        if (move := joining_of(decision, placed, taken)) is not None:
            joined = {**placed, move.job: placed[move.job].joined(move)}
            return (*groups[:number], (decision, joined), *groups[number + 1 :])
    return groups


def _has_its_part(decision: Decision) -> bool:
    entitlement = decision.entitlement
    return entitlement is not None and entitlement.held >= entitlement.deserved


def _counted_on(pool: Pool, placed: Mapping[int, JobSlots]) -> list[SlotRef]:
    """Return slots that later groups must not use: claimed now, or reserved for targets that are not reached yet.

    What the group's own jobs give back is reserved first, because nobody else could use it in this cycle.
    """
    counted_on = list(chain.from_iterable(job.claim + job.kept_for for job in placed.values()))
    # A job on one host waits for slots there, and for no others.
    wait_there = {job.id for job in pool.jobs if job.one_host}
    missing = sum(slots.missing + len(slots.leaving) for job, slots in placed.items() if job not in wait_there)
    if not missing:
        return counted_on
    claimed = set(counted_on)
    own = {job.id for job in pool.jobs}
    vacated = handed_over(pool.held, placed)
    returning = [ref for job in sorted(vacated) for ref in vacated[job]]
    holders = sorted(pool.coming, key=lambda holder: (holder not in own, holder))
    coming = (ref for holder in holders for ref in pool.coming[holder])
    unclaimed = (ref for refs in pool.free.values() for ref in refs if ref not in claimed)
    return counted_on + list(islice(chain(returning, coming, unclaimed), missing))

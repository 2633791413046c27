"""Checks of what must hold for every plan. Used on random snapshots and on planted mistakes."""

from collections import Counter

from scheduling.plan import JobPlan, Plan, PlanReason
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot


def check_plan(snapshot: Snapshot, plan: Plan) -> None:
    assert [line.job for line in plan.jobs] == sorted(job.id for job in snapshot.jobs)
    check_no_slot_twice(plan)
    staying = pinned(snapshot, plan)
    for line in plan.jobs:
        view = job_of(snapshot, line)
        _check_slots(snapshot, view, line)
        if line.job not in staying:
            _check_limits(snapshot, view, line)
        _check_no_move_without_cause(snapshot, plan, view, line)
        _check_kind(snapshot, view, line)
        assert not line.preempt or _may_stop(snapshot, plan, view, line)
        assert group_of(snapshot, view).started or held(snapshot, view) or not line.target
    _check_capacity(snapshot, plan)
    _check_quotas(snapshot, plan)
    if len(snapshot.groups) == 1:
        _check_nothing_idle(snapshot, plan)


def job_of(snapshot: Snapshot, line: JobPlan) -> JobView:
    return next(job for job in snapshot.jobs if job.id == line.job)


def group_of(snapshot: Snapshot, job: JobView) -> GroupView:
    return next(group for group in snapshot.groups if group.name == job.group)


def siblings(snapshot: Snapshot, job: JobView) -> list[JobView]:
    """Return the jobs of its group that count as one job with it, itself included, in the order of service."""
    if job.bundle is None:
        return [job]
    ones = [one for one in snapshot.jobs if (one.group, one.bundle) == (job.group, job.bundle)]
    return sorted(ones, key=lambda one: (-one.bundle_rank, one.submitted_at, one.id))


def in_order(snapshot: Snapshot, group: GroupView) -> list[JobView]:
    """Return the jobs of a group in the order in which they are served; those of a study side by side."""

    def place(job: JobView) -> tuple[float, float, int]:
        return 0 if group.policy == "fifo" else -job.priority, job.submitted_at, job.id

    jobs = sorted((job for job in snapshot.jobs if job.group == group.name), key=place)
    return list({one.id: one for job in jobs for one in siblings(snapshot, job)}.values())


def is_limited(group: GroupView) -> bool:
    """Return whether the group gets no more than its quota; with weight 0, it gets none without a quota."""
    return group.weight == 0 or (group.quota is not None and not group.borrows)


def offered(slot: SlotView, group: GroupView) -> bool:
    return slot.claimable and group.resource_group in slot.resource_groups


def held(snapshot: Snapshot, job: JobView, *, in_service: bool | None = None) -> set[SlotRef]:
    """Slots that it holds and was not told to give back; only those in service, or only the others."""
    group = group_of(snapshot, job)
    mine = [slot for slot in snapshot.slots if slot.held_by == job.id and not slot.vacating and job.state != "PENDING"]
    return {slot.ref for slot in mine if in_service is None or offered(slot, group) == in_service}


def pinned(snapshot: Snapshot, plan: Plan) -> set[int]:
    """Jobs that the plan says stay where they are; only slots out of service justify that."""
    result = set()
    for line in plan.jobs:
        if line.reason.params["message"] == "pinned":
            mine = held(snapshot, job_of(snapshot, line))
            assert held(snapshot, job_of(snapshot, line), in_service=False)
            assert (set(line.slots), line.target, line.claim, line.vacate) == (mine, len(mine), (), ())
            result.add(line.job)
    return result


def check_no_slot_twice(plan: Plan) -> None:
    counts = Counter(ref for line in plan.jobs for ref in line.slots)
    assert all(count == 1 for count in counts.values())


def _check_slots(snapshot: Snapshot, job: JobView, line: JobPlan) -> None:
    group, mine = group_of(snapshot, job), held(snapshot, job)
    free = {slot.ref for slot in snapshot.slots if slot.held_by is None and offered(slot, group)}
    assert set(line.claim) <= free
    assert set(line.vacate) <= mine
    assert set(line.slots) == (mine - set(line.vacate)) | set(line.claim)
    assert len(line.slots) <= line.target
    if job.state == "PENDING" and line.claim:
        assert len(line.claim) >= job.min_slots
    assert not job.one_host or len({ref.host for ref in line.slots}) <= 1


def _check_kind(snapshot: Snapshot, job: JobView, line: JobPlan) -> None:
    """Check that who shall be on one kind of GPU takes no other, but to start."""
    if line.kind is None:
        return
    assert job.elastic
    assert group_of(snapshot, job).policy == "goodput" or group_of(snapshot, job).weighs_kinds
    kinds = {slot.ref: slot.device for slot in snapshot.slots}
    assert job.state == "PENDING" or all(kinds[ref] == line.kind for ref in line.claim)


def _check_limits(snapshot: Snapshot, job: JobView, line: JobPlan) -> None:
    assert line.target <= job.max_slots
    assert line.target >= job.min_slots or (line.target == 0 and (job.state == "PENDING" or line.preempt))
    if held(snapshot, job) and not job.elastic:
        assert line.preempt or (line.target == len(held(snapshot, job)) and not line.claim)


def _for_one_host(snapshot: Snapshot, plan: Plan) -> bool:
    """Return whether a job has a target and waits for room on one host."""
    return any(line.target and not line.slots and job_of(snapshot, line).one_host for line in plan.jobs)


def _check_no_move_without_cause(snapshot: Snapshot, plan: Plan, job: JobView, line: JobPlan) -> None:
    good, away = held(snapshot, job, in_service=True), held(snapshot, job, in_service=False)
    if line.kind is not None:
        of_others = {slot.ref for slot in snapshot.slots if slot.device != line.kind}
        good, away = good - of_others, away | (good & of_others)
    from_good = set(line.vacate) & good
    if "fewer_hosts" in line.reason.params:
        _check_joining(snapshot, job, line)
        return
    assert len(from_good) >= max(0, len(good) - line.target)
    # Only for a group that can go nowhere else, or for who needs one host, does one leave slots that it could keep.
    if len({group.resource_group for group in snapshot.groups}) == 1 and not _for_one_host(snapshot, plan):
        assert len(from_good) == max(0, len(good) - line.target)
        assert not line.claim or set(line.vacate) <= away
    group = group_of(snapshot, job)
    if from_good and (group.policy == "fifo" or not group.preemption):
        assert line.target == job.max_slots or taken_back(line) or line.reason.code == PlanReason.REBALANCED


def _check_joining(snapshot: Snapshot, job: JobView, line: JobPlan) -> None:
    """Check that it keeps the number and the kind of its slots on fewer hosts."""
    mine, kinds = held(snapshot, job), {slot.ref: slot.device for slot in snapshot.slots}
    assert group_of(snapshot, job).policy == "goodput" or group_of(snapshot, job).weighs_kinds
    assert len(line.claim) == len(line.vacate) > 0
    assert {kinds[ref] for ref in (*mine, *line.slots)} == {line.kind}
    hosts, fewer = len({ref.host for ref in mine}), len({ref.host for ref in line.slots})
    assert (hosts, fewer) == (line.reason.params["hosts"], line.reason.params["fewer_hosts"])
    assert fewer < hosts
    assert line.reason.params["joined_faster"] >= 1


def taken_back(line: JobPlan) -> bool:
    """Return whether the job shrinks because other groups reclaim slots of its group."""
    return line.reason.code == PlanReason.RECLAIMED_BY_OWNER


def protected(snapshot: Snapshot, job: JobView) -> bool:
    since = snapshot.at - group_of(snapshot, job).minimum_run_seconds
    return job.started_at is not None and job.started_at > since


def _may_stop(snapshot: Snapshot, plan: Plan, job: JobView, line: JobPlan) -> bool:
    group = group_of(snapshot, job)
    if protected(snapshot, job):
        return False
    if taken_back(line):
        return len(snapshot.groups) > 1 or is_limited(group)
    gets = {line.job for line in plan.jobs if line.target}
    if line.reason.params["message"] == "study_shrinks":
        return _may_shrink(snapshot, plan, job, group)
    if line.reason.code == PlanReason.GAVE_WAY:
        assert job.elastic
        return job.backfilled_for in gets
    higher = [j for j in snapshot.jobs if j.group == job.group and j.priority > job.priority and j.id in gets]
    return group.policy == "priority" and group.preemption and bool(higher)


def _may_shrink(snapshot: Snapshot, plan: Plan, job: JobView, group: GroupView) -> bool:
    """Return whether a study may stop the job: others of the study go on, and what they have beyond their minimum,
    with those that start, is too little for it."""
    assert group.preemption
    assert group.policy != "fifo"
    assert job.elastic or group.policy == "priority"
    others = [one for one in siblings(snapshot, job) if one.id != job.id]
    targets = {line.job: line.target for line in plan.jobs}
    going_on = [one for one in others if targets[one.id] and one.id not in pinned(snapshot, plan)]
    if all(held(snapshot, one, in_service=False) == set() for one in (job, *others)):
        started = sum(targets[one.id] for one in going_on if not held(snapshot, one))
        beyond = sum(targets[one.id] - one.min_slots for one in going_on if one.elastic and held(snapshot, one))
        assert started + max(0, beyond) < min(job.min_slots, len(held(snapshot, job)))
    # A job of fixed size whose slots other groups take counts until it starts elsewhere.
    moving = {line.job for line in plan.jobs if taken_back(line) and not job_of(snapshot, line).elastic}
    return bool(going_on) or any(one.id in moving for one in others)


def _check_capacity(snapshot: Snapshot, plan: Plan) -> None:
    staying = pinned(snapshot, plan)
    in_service = [slot for slot in snapshot.slots if slot.claimable and (slot.held_by not in staying or slot.vacating)]
    assert sum(line.target for line in plan.jobs if line.job not in staying) <= len(in_service)


def _check_quotas(snapshot: Snapshot, plan: Plan) -> None:
    """Check that a group on its quota alone has no more, also counted with what it keeps on hosts that are draining,
    but for jobs that can be neither stopped nor moved."""
    staying = pinned(snapshot, plan)
    for group in snapshot.groups:
        members = [line for line in plan.jobs if job_of(snapshot, line).group == group.name]
        kept = sum(_cannot_leave(snapshot, line, staying) for line in members)
        if is_limited(group):
            assert sum(line.target for line in members) <= max(group.quota or 0, kept)


def _cannot_leave(snapshot: Snapshot, line: JobPlan, staying: set[int]) -> int:
    """Return how many slots the job keeps whatever its group may have."""
    view = job_of(snapshot, line)
    mine = len(held(snapshot, view))
    if line.job in staying:
        return mine
    return min(mine, view.min_slots) if protected(snapshot, view) else 0


def _check_nothing_idle(snapshot: Snapshot, plan: Plan) -> None:
    [group] = snapshot.groups
    if is_limited(group):
        return
    staying = pinned(snapshot, plan)
    usable = [s for s in snapshot.slots if offered(s, group) and (s.held_by not in staying or s.vacating)]
    served = [line for line in plan.jobs if line.target and line.job not in staying]
    if group.policy == "fairshare" and not group.weighs_kinds:
        behind = set() if group.preemption else _behind_who_waits(snapshot, plan, len(usable))
        for line in served:
            view = job_of(snapshot, line)
            assert line.job not in behind or line.target <= max(len(held(snapshot, view)), view.min_slots)
        behind |= set() if group.preemption else _beside_siblings_that_wait(snapshot, plan)
        asked = sum(line.target if line.job in behind else most(snapshot, job_of(snapshot, line)) for line in served)
        assert sum(line.target for line in served) == min(len(usable), asked)
    claimed = {ref for line in plan.jobs for ref in line.claim}
    idle = [slot for slot in usable if slot.held_by is None and slot.ref not in claimed]
    for line in served if not _for_one_host(snapshot, plan) else ():
        if any(line.kind in (None, slot.device) for slot in idle) and line.slots:
            assert len(line.slots) == line.target


def _behind_who_waits(snapshot: Snapshot, plan: Plan, room: int) -> set[int]:
    """Jobs behind the first that waits and would fit."""
    line = [job for group in snapshot.groups for job in in_order(snapshot, group)]
    # A job that needs one host and cannot have it is passed over.
    gets = {line.job for line in plan.jobs if line.target or line.reason.params["message"] == "one_host"}
    started = {group.name for group in snapshot.groups if group.started}
    able = [
        n
        for n, job in enumerate(line)
        if gets.isdisjoint(one.id for one in siblings(snapshot, job)) and job.min_slots <= room and job.group in started
    ]
    return {job.id for job in line[able[0] :]} if able else set()


def _beside_siblings_that_wait(snapshot: Snapshot, plan: Plan) -> set[int]:
    """Return the jobs of studies of which others wait. They do not grow."""
    waiting = [job_of(snapshot, line) for line in plan.jobs if not line.target]
    return {one.id for job in waiting for one in siblings(snapshot, job)}


def most(snapshot: Snapshot, job: JobView) -> int:
    """Return the most that it asks for. A job of fixed size that runs keeps what it has."""
    return job.max_slots if job.elastic else len(held(snapshot, job)) or job.max_slots

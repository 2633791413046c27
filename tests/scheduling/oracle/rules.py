"""What must hold in every turn of a cluster: each rule is reckoned anew, from the snapshot and the plan alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from scheduling.plan import JobPlan, Plan
from scheduling.snapshot import GroupView, JobView, Snapshot
from tests.scheduling.checks import check_plan, group_of, held, in_order, is_limited, job_of, offered, siblings
from tests.scheduling.cluster import lines, text_for
from tests.scheduling.explain.test_reasons import check_reasons
from tests.scheduling.oracle.clusters import PlayedCluster

__all__ = ["CYCLES_TO_REST", "check_rest", "check_turn"]

#: Cycles within which a still cluster comes to rest.
CYCLES_TO_REST = 20


def check_turn(seen: Snapshot, plan: Plan) -> None:
    check_plan(seen, plan)
    check_reasons(seen, plan, besides=_beside_moved(seen, plan))
    for line in plan.jobs:
        _check_words(seen, plan, line)


def _beside_moved(seen: Snapshot, plan: Plan) -> set[int]:
    """Return the jobs of groups of which a fixed-size job is stopped to start elsewhere. Their sentences count what it
    is to have there."""
    moved = {
        job_of(seen, line).group
        for line in plan.jobs
        if line.reason.params["message"] == "reclaimed" and not job_of(seen, line).elastic
    }
    is_alone = len({group.resource_group for group in seen.groups}) == 1
    return set() if is_alone else {job.id for job in seen.jobs if job.group in moved}


def check_rest(cluster: PlayedCluster, seconds: float, check: Callable[[Snapshot, Plan], object] = check_turn) -> None:
    """Check that the cluster comes to rest while nothing happens, and that nobody then waits for what is free."""
    quiet = 0
    for _ in range(CYCLES_TO_REST):
        seen, plan = cluster.still_cycle(seconds)
        check(seen, plan)
        moves = [line.job for line in plan.jobs if line.claim or line.vacate]
        quiet = 0 if moves or any(slot.vacating for slot in seen.slots) else quiet + 1
        # Targets of policy goodput are kept for ten seconds: it rests if it decides the same afterwards.
        if quiet * seconds >= 12 and quiet >= 2:
            break
    assert quiet, f"no rest within {CYCLES_TO_REST} cycles: {moves} move"
    waiting = list(_waits_beside_free(seen, plan))
    assert not waiting, f"beside free GPUs wait {waiting}"
    overlooked = list(_overlooked(seen, plan))
    assert not overlooked, f"beside the minimums of elastic jobs wait {overlooked}"
    _check_reservations(cluster, plan)


def _overlooked(seen: Snapshot, plan: Plan) -> Iterator[int]:
    """Yield jobs of the only group that wait behind one that cannot start, although they fit beside the minimums of the
    others: elastic ones of unknown end, which were there before it, keep too many slots for it."""
    [group, *others] = seen.groups
    if others or not (group.preemption and group.policy in ("fairshare", "goodput")) or is_limited(group):
        return
    by_job, room = lines(plan), sum(offered(slot, group) for slot in seen.slots)
    running = [job for job in seen.jobs if by_job[job.id].slots]
    if not group.started or any(held(seen, job, in_service=False) for job in running):
        return
    # A job that needs one host and cannot have it is passed over.
    passed_over = {line.job for line in plan.jobs if line.reason.params["message"] == "one_host"}
    counted = [
        [one for one in ones if one in running or (one.id not in passed_over and one.min_slots <= room)]
        for ones in _units(seen)
    ]
    queue = _queue(group, [ones[0] for ones in counted if ones and not any(one in running for one in ones)])
    if not queue:
        return
    lasting = sum(_lasting_slots([one for one in ones if one in running], queue[0]) for ones in counted)
    if room - lasting < queue[0].min_slots:
        spare = room - sum(job.min_slots for job in running)
        yield from (job.id for job in queue[1:] if job.min_slots <= spare and not job.one_host)


def _units(seen: Snapshot) -> list[list[JobView]]:
    """Return the jobs of the only group, those together that count as one job."""
    return list({ones[0].id: ones for ones in (siblings(seen, job) for job in seen.jobs)}.values())


def _lasting_slots(running: list[JobView], first: JobView) -> int:
    """Return the slots that these running jobs, which count as one, keep for good."""
    lasts = all(one.elastic and (one.ends_at is None or len(running) > 1) for one in running)
    gives_way = all(one.backfilled_for == first.id for one in running)
    return min(one.min_slots for one in running) if running and lasts and not gives_way else 0


def _waits_beside_free(seen: Snapshot, plan: Plan) -> Iterator[int]:
    """Yield the first job of each queue that waits although its group may have as many free slots as it needs, and jobs
    of groups without a queue that could grow into them."""
    by_job = lines(plan)
    if _waited_for(plan):
        return  # see `_check_reservations`
    for group in seen.groups:
        spare = _spare(seen, group)
        members = [job for job in seen.jobs if job.group == group.name]
        waiting = _queue(group, [job for job in members if not by_job[job.id].slots])
        if not group.started or spare <= 0:
            continue
        if waiting:
            first = next(job for job in in_order(seen, group) if job in waiting)
            if first.min_slots <= spare and not first.one_host:
                yield first.id
        elif group.policy != "goodput" and not group.weighs_kinds:
            yield from (
                job.id
                for job in members
                if job.elastic
                and len(by_job[job.id].slots) < job.max_slots
                and by_job[job.id].reason.params["message"] != "pinned"
            )


def _spare(seen: Snapshot, group: GroupView) -> int:
    """Return how many free slots the group may use without those that other groups keep, and within its own limit."""
    free = sum(slot.held_by is None and offered(slot, group) for slot in seen.slots)
    for other in seen.groups:
        if other.name != group.name and other.quota and not other.lends and other.started:
            # Draining slots count for a limit, and not for a quota.
            free -= max(0, other.quota - _has(seen, other, in_service=None if is_limited(other) else True))
    if is_limited(group):
        free = min(free, (group.quota or 0) - _has(seen, group))
    return free


def _has(seen: Snapshot, group: GroupView, *, in_service: bool | None = None) -> int:
    return sum(len(held(seen, job, in_service=in_service)) for job in seen.jobs if job.group == group.name)


def _queue(group: GroupView, jobs: list[JobView]) -> list[JobView]:
    if group.policy == "fifo":
        return sorted(jobs, key=lambda job: (job.submitted_at, job.id))
    return sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.id))


def _check_reservations(cluster: PlayedCluster, plan: Plan) -> None:
    """Check that no job is waited for in vain: once others have ended, but for elastic jobs of its own group whose
    minimums leave it room, and then those that start before it because they are older, or are over by a known time,
    each one starts, or no other job waits for it any more."""
    for first in _waited_for(plan):
        now, later = cluster.snapshot, replace(cluster, leaving={}, snapshot=cluster.snapshot)
        me = next(job for job in now.jobs if job.id == first)
        others = [job for job in now.jobs if job.id != first and held(now, job)]
        kept = [job.id for job in others if job.elastic and job.group == me.group and job.ends_at is None]
        room = sum(offered(slot, group_of(now, me)) for slot in now.slots) - me.min_slots
        kept = kept if sum(job.min_slots for job in others if job.id in kept) <= room else []
        ending = [job.id for job in others if job.id not in kept]
        for _ in now.jobs:
            for number in ending:
                later.end(number)
            for _ in range(CYCLES_TO_REST):
                _, then = later.still_cycle(0.0)
            if lines(then)[first].slots or first not in _waited_for(then):
                break
            ending = [
                job.id for job in later.snapshot.jobs if job.id not in kept and _may_delay(later.snapshot, job, me)
            ]
        else:
            raise AssertionError(f"T{first} is waited for in vain")


def _may_delay(seen: Snapshot, job: JobView, first: JobView) -> bool:
    """Return whether the job may hold slots before `first` starts: it is older, or its end is known."""
    is_older = (job.submitted_at, job.id) < (first.submitted_at, first.id)
    return job.id != first.id and bool(held(seen, job)) and (is_older or job.ends_at is not None)


def _waited_for(plan: Plan) -> set[int]:
    """Return the jobs for which others wait whose groups have slots for them."""
    reasons = [line.reason.params for line in plan.jobs]
    return {params["first"]["job"] for params in reasons if params["message"] == "held_back_for"}


def _check_words(seen: Snapshot, plan: Plan, line: JobPlan) -> None:
    params, text, job = line.reason.params, text_for(line), job_of(seen, line)
    for figure in ("faster", "other_faster"):
        assert params.get(figure, 1) > 0, text
    if params["message"] == "held_back_for":
        assert not lines(plan)[params["first"]["job"]].target, text
    if params["message"] in ("in_line", "in_line_for_minimums"):
        assert 0 < params["missing"] <= job.min_slots, text
    if "group_quota" in params:
        assert params["group_quota"] == group_of(seen, job).quota, text
    if params["message"] == "protected":
        assert held(seen, job), text

"""Sentences: the right words for known cases, and true arithmetic for all others."""

import re
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from jobs.messages import text_of
from scheduling.plan import JobPlan, Plan, PlanReason
from scheduling.schedule import schedule
from scheduling.snapshot import JobView, SlotView, Snapshot
from tests.scheduling.checks import group_of, held, is_limited, job_of, most, offered, pinned, siblings
from tests.scheduling.cluster import Policy, group, hold, job, lines, running, slots, text_for
from tests.scheduling.strategies import snapshots


def sentence(
    number: int, held: tuple[SlotView, ...], *jobs: JobView, policy: Policy = "fairshare", preemption: bool = True
) -> tuple[PlanReason, str]:
    snapshot = Snapshot(0.0, (group(policy, preemption=preemption),), held, jobs)
    reason = lines(schedule(snapshot))[number].reason
    return reason.code, text_of(reason.params)


HALVES = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
FULL = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (5000, 5000, "T2 has the same priority (5000)"),
        (5000, 10000, "T2 has twice your priority (10000 to 5000)"),
        (3000, 9000, "T2 has 3 times your priority (9000 to 3000)"),
        (5000, 7000, "T2 has a higher priority than yours (7000 to 5000)"),
        (10000, 5000, "you have twice the priority of T2 (10000 to 5000)"),
        (7000, 5000, "you have a higher priority than T2 (7000 to 5000)"),
    ],
)
def test_two_jobs_are_compared_by_priority(mine: int, theirs: int, words: str) -> None:
    _, text = sentence(1, HALVES, running(job(1, mine)), running(job(2, theirs)))
    assert f" GPUs: {words}" in text


def test_another_users_training_is_not_named() -> None:
    _, text = sentence(1, HALVES, running(job(1, owner=1)), running(job(2, 10000, owner=2)))
    assert text == "3 of 8 GPUs: another user's training has twice your priority (10000 to 5000)."


def test_three_jobs_share_by_priority() -> None:
    _, text = sentence(1, FULL, running(job(1)), job(2, 10000), job(3))
    assert text == "2 of 8 GPUs: a quarter of the 8 that 3 trainings share by priority (5000 of 20000 in all)."


def test_a_share_beyond_the_own_priority_comes_from_what_others_cannot_use() -> None:
    _, text = sentence(1, FULL, running(job(1)), job(2, most=2))
    assert text == "6 of 8 GPUs: T2 can use at most 2."
    _, text = sentence(1, FULL, running(job(1)), job(2, most=2), job(3, most=1))
    assert text == "5 of 8 GPUs: the 2 other trainings can use at most 3."


def test_a_minimum_decides_where_it_is_above_the_share() -> None:
    _, text = sentence(1, FULL, running(job(1, 1)), job(2, 10000))
    assert text == "1 of 8 GPUs: its minimum is 1."
    _, text = sentence(1, FULL, running(job(1)), job(2, least=6))
    assert text == "2 of 8 GPUs: the minimum of T2 is 6."


def test_without_preemption_a_running_job_keeps_what_it_holds() -> None:
    mine = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 1})
    _, text = sentence(1, mine, running(job(1)), job(2, 10000), preemption=False)
    assert text == "6 of 8 GPUs: it keeps 6, because preemption is off."
    _, text = sentence(2, mine, running(job(1)), job(2, 10000), preemption=False)
    assert text == "2 of 8 GPUs: T1 keeps 6, because preemption is off."


def test_policies_in_order_say_who_has_the_rest() -> None:
    six = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 1})
    assert sentence(2, six, running(job(1, most=6)), job(2), policy="fifo")[1] == "2 of 8 GPUs: T1 has 6."
    code, text = sentence(1, FULL, running(job(1)), job(2, 6000, most=5), policy="priority")
    assert code == PlanReason.PREEMPTED_BY_PRIORITY
    assert text == "3 of 8 GPUs: T2 has a higher priority than yours (6000 to 5000)."
    waiting = job(1, least=6)
    assert (
        sentence(2, HALVES, waiting, running(job(2)), policy="fifo")[1]
        == "4 of 8 GPUs: T1 is ahead in the queue and waits for 6 GPUs."
    )


def test_waiting_jobs_say_what_they_wait_for() -> None:
    code, text = sentence(2, FULL, running(job(1, least=6)), job(2, least=3))
    assert code == PlanReason.WAITING_FOR_SLOTS
    assert text == "Waits for 1 more GPU: it needs 3, and 6 of 8 are the minimum of other trainings."
    code, text = sentence(3, FULL, running(job(1, least=6)), job(2, 6000, least=3), job(3, least=3))
    assert code == PlanReason.BEHIND_HIGHER_PRIORITY
    assert text == "Waits behind T2, which has a higher priority (6000 to 5000) and needs 3 GPUs."
    code, text = sentence(3, FULL, running(job(1, least=6)), job(2, least=3), job(3, least=3))
    assert (code, text) == (
        PlanReason.WAITING_FOR_SLOTS,
        "Waits behind T2, which was submitted first and needs 3 GPUs.",
    )
    code, text = sentence(1, slots(4), job(1, least=5))
    assert (code, text) == (PlanReason.GANG_TOO_LARGE_NOW, "Needs 5 GPUs at once: its group has 4 to share now.")


def test_a_fixed_size_job_says_so() -> None:
    code, text = sentence(1, slots(4), job(1, least=2, most=2, elastic=False))
    assert (code, text) == (PlanReason.GRANTED, "2 of 4 GPUs: it runs on exactly 2.")


def test_a_protected_job_keeps_more_than_its_group_is_entitled_to() -> None:
    groups = (group(name="a", minimum_run_seconds=60), group(name="b", quota=1, lends=False))
    young = replace(running(job(1, group="a", most=2)), started_at=-10.0)
    snapshot = Snapshot(0.0, groups, hold(slots(1), {"h1:0": 1}), (young,))
    plan = schedule(snapshot)
    check_reasons(snapshot, plan)
    [line] = plan.jobs
    assert text_for(line) == "1 of 1 GPU: kept, because its group stops no training in its first 60 s."


def test_who_is_raised_to_its_minimum_while_its_group_gives_back_keeps_nothing() -> None:
    """T1 has 1 GPU and needs 2: it had nothing to keep 2 of."""
    held = hold(slots(4, 4), {"h1:0": 1, "h1:1-3": 2, "h2:0-2": 2, "h2:3": 3})
    groups = (group(name="a", quota=4), group(name="b", quota=4, preemption=False))
    jobs = (running(job(1, 1, group="b", least=2)), running(job(2, group="b")), running(job(3, group="a")))
    snapshot = Snapshot(0.0, groups, held, jobs)
    plan = schedule(snapshot)
    check_reasons(snapshot, plan)
    assert lines(plan)[1].target == 2
    assert "keeps 2 of the 1" not in text_for(lines(plan)[1])


# --- arithmetic ------------------------------------------------------------------------------------------------------


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_the_arithmetic_of_every_sentence_is_true(snapshot: Snapshot) -> None:
    check_reasons(snapshot, schedule(snapshot))


def check_reasons(snapshot: Snapshot, plan: Plan, besides: Container[int] = ()) -> None:
    """`besides`: jobs whose sentences are not checked."""
    for line in plan.jobs:
        if line.job in besides:
            continue
        _check_every_number_is_a_param(snapshot, line)
        _check_names(snapshot, line)
        _check_priorities(snapshot, line)
        _check_others(snapshot, plan, line)
        _check_code(snapshot, line)
        _check_sentence(snapshot, plan, line)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
        yield len(value)
    elif isinstance(value, int):
        yield value


def _check_every_number_is_a_param(snapshot: Snapshot, line: JobPlan) -> None:
    text = re.sub(r"\b[A-Za-z]+\d+\b|\d+(\.\d+)? times", "", text_for(line))
    # A kind of GPU that is slower has a negative figure, and its sentence says "slower".
    params = line.reason.params
    figures = set(_numbers(params)) | {abs(params.get("kind_faster", 0))}
    if "total_priority" in params:
        # The part in percent, and those that share by priority with this one.
        sharing = params.get("sharing_count", params["others_count"])
        figures |= {round(100 * params["priority"] / params["total_priority"]), sharing + 1}
    # Weights may be fractions.
    fractions = {str(number) for number in params.values() if isinstance(number, float)}
    assert {number for number in re.findall(r"\d+\.\d+", text) if "group has" not in text} <= fractions
    text = re.sub(r"\d+\.\d+", "", text)
    assert {int(number) for number in re.findall(r"\d+", text)} <= figures
    assert text_for(line).endswith(".")


def _check_names(snapshot: Snapshot, line: JobPlan) -> None:
    me = job_of(snapshot, line)
    foreign = {job.name for job in snapshot.jobs if job.owner != me.owner}
    assert not foreign & set(re.findall(r"\bT\d+\b", text_for(line) + repr(line.reason.params)))


def _check_priorities(snapshot: Snapshot, line: JobPlan) -> None:
    mine, text = job_of(snapshot, line).priority, text_for(line)
    comparison = r"(you have|has) (?:a )?(twice|\d+ times|higher)[^.;(]*\((\d+) to (\d+)\)"
    for who, relation, first, second in re.findall(comparison, text):
        larger, smaller = int(first), int(second)
        factor = {"twice": 2, "higher": None}.get(relation) or re.sub(r"\D", "", relation)
        assert larger == int(factor) * smaller if factor else larger > smaller
        assert mine == (larger if who == "you have" else smaller)
        [other] = line.reason.params["others"]
        assert {larger, smaller} == {mine, other["priority"]}
    compares = " to " in re.sub(r"it moves to|from \d+ hosts to|are entitled to", "", text)
    assert compares <= bool(re.search(comparison, text) or "group has" in text)
    for priority in re.findall(r"the same priority \((\d+)\)", text):
        assert int(priority) == mine == line.reason.params["others"][0]["priority"]


def _check_others(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    for other in line.reason.params.get("others", []):
        view = next(job for job in snapshot.jobs if job.id == other["job"])
        assert view.id != line.job
        ones = siblings(snapshot, view) if "trainings" in other else [view]
        targets = [lines(plan)[one.id].target for one in ones if one.id not in pinned(snapshot, plan)]
        assert other["slots"] == sum(targets)
        assert other.get("trainings", 0) in {0, sum(target > 0 for target in targets)}
        if len({one.priority for one in ones}) == 1:
            assert other["priority"] == view.priority


def _check_code(snapshot: Snapshot, line: JobPlan) -> None:
    job, code = job_of(snapshot, line), line.reason.code
    before = len(held(snapshot, job))
    if line.reason.params["message"] == "pinned" or (
        before == line.target and not line.claim and not line.vacate and before
    ):
        assert code in {PlanReason.UNCHANGED, PlanReason.AT_ITS_KNEE, PlanReason.PROFILING}
    elif not before:
        starts = (
            {PlanReason.GRANTED, PlanReason.BACKFILLED}
            if line.claim
            else {
                PlanReason.WAITING_FOR_SLOTS,
                PlanReason.BEHIND_HIGHER_PRIORITY,
                PlanReason.GANG_TOO_LARGE_NOW,
                PlanReason.OVER_QUOTA,
                PlanReason.GROUP_STOPPED,
            }
        )
        assert code in starts
    elif line.preempt:
        shrunk = {PlanReason.SHRUNK_FOR_FAIR_SHARE, PlanReason.SHRUNK_FOR_GOODPUT}
        shrunk = shrunk if line.reason.params["message"] == "study_shrinks" else set()
        stopped = {PlanReason.PREEMPTED_BY_PRIORITY, PlanReason.RECLAIMED_BY_OWNER, PlanReason.GAVE_WAY}
        assert code in stopped | shrunk
    elif line.reason.params.get("moves_to_kind") and line.vacate:
        assert code in {PlanReason.MOVED_FOR_GOODPUT, PlanReason.REBALANCED, PlanReason.LIMIT_CHANGED}
    elif line.target > before:
        assert code in {PlanReason.GREW_INTO_FREE_SLOTS, PlanReason.GREW_FOR_GOODPUT, PlanReason.REBALANCED}
    else:
        shrunk = {
            PlanReason.SHRUNK_FOR_FAIR_SHARE,
            PlanReason.SHRUNK_FOR_GOODPUT,
            PlanReason.PREEMPTED_BY_PRIORITY,
            PlanReason.LIMIT_CHANGED,
            PlanReason.REBALANCED,
        }
        assert code in shrunk | {PlanReason.RECLAIMED_BY_OWNER}


def _capacity(snapshot: Snapshot, plan: Plan) -> int:
    """Return the capacity of the only group: its slots in service, less those of jobs that stay where they are."""
    [group] = snapshot.groups
    staying = pinned(snapshot, plan)
    usable = [slot for slot in snapshot.slots if offered(slot, group)]
    return sum(slot.vacating or slot.held_by not in staying for slot in usable)


def _check_sentence(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    params, text, job = line.reason.params, text_for(line), job_of(snapshot, line)
    if len(snapshot.groups) == 1 and not is_limited(snapshot.groups[0]) and "capacity" in params:
        assert params["capacity"] == _capacity(snapshot, plan)
    if match := re.match(r"(\d+) of (\d+) GPUs?: ", text):
        assert (int(match[1]), int(match[2])) == (line.target, params["capacity"])
        _check_why(snapshot, plan, line)
        _check_group(snapshot, plan, line)
    elif line.reason.code == PlanReason.GROUP_STOPPED:
        assert not group_of(snapshot, job).started
        assert not line.target
    elif params["message"] == "reclaimed":
        assert line.preempt
        assert int(re.findall(r"releases (\d+)", text)[0]) == len(line.vacate) == len(held(snapshot, job))
        _check_group(snapshot, plan, line)
    elif params["message"] == "held_back_for":
        first = next(view for view in snapshot.jobs if view.id == params["first"]["job"])
        assert (first.min_slots, lines(plan)[first.id].target) == (params["reserved"], 0)
    elif params["message"] == "study_waits":
        assert not line.target
        _check_study(snapshot, plan, line)
        _check_group(snapshot, plan, line)
    elif params["message"] == "one_host":
        assert job.one_host
        assert job.max_slots > params["most"]
    elif text.startswith("Waits: "):
        assert params["missing"] == line.target - params["free"]
        assert params["free"] < job.min_slots <= line.target
        _check_missing(line)
    elif match := re.match(r"Waits for (\d+) more GPUs?: it needs (\d+), and (\d+) of (\d+) are", text):
        missing, need, taken, capacity = map(int, match.groups())
        assert missing == need - (capacity - taken) > 0
        assert (need, capacity) == (job.min_slots, params["capacity"])
        assert taken <= sum(other.target for other in plan.jobs)
        _check_group(snapshot, plan, line)
    elif match := re.match(r"Waits behind .* needs (\d+) GPUs?\.", text):
        [other] = params["others"]
        assert (other["slots"], int(match[1])) == (0, other["min_slots"])
    elif match := re.match(r"Needs (\d+) GPUs? at once: its group has (\d+)", text):
        assert int(match[1]) == job.min_slots > params["capacity"]
        assert int(match[2]) in {params["capacity"], params.get("group_room")}
        _check_group(snapshot, plan, line)
    elif match := re.match(r"Stops for now and releases (\d+) GPUs?: ", text):
        assert line.preempt
        assert int(match[1]) == len(line.vacate) == len(held(snapshot, job))
    else:
        assert re.match(r"(\d+) GPUs?: stays on ", text)
        assert int(text.split()[0]) == line.target == len(held(snapshot, job))


def _check_group(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    """Check what is said of its group beside others: its own terms, and no more than it then has."""
    match = re.search(
        r"its group has (\d+) of (\d+) GPUs?, "
        r"by its (?:quota of (\d+)(?: and its |, because it ))?(weight of (\d+)|does not borrow)",
        text_for(line),
    )
    params, group = line.reason.params, group_of(snapshot, job_of(snapshot, line))
    assert bool(match) == ("group_room" in params)
    if match:
        quota = None if match[3] is None else int(match[3])
        assert quota == group.quota
        assert match[5] is None if group.weight and is_limited(group) else int(match[5]) == group.weight
        assert (int(match[1]), int(match[2])) == (params["group_room"], params["group_total"])
        members = [other for other in plan.jobs if job_of(snapshot, other).group == group.name]
        assert sum(other.target for other in members if other.job not in pinned(snapshot, plan)) <= params["group_room"]
        assert params["group_room"] < params["group_total"] <= sum(offered(slot, group) for slot in snapshot.slots)


def _check_study(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    """Check what is said of its study: the slots and the number of trainings that have any."""
    params, ones = line.reason.params, siblings(snapshot, job_of(snapshot, line))
    targets = [lines(plan)[one.id].target for one in ones if one.id not in pinned(snapshot, plan)]
    assert params["study_slots"] == sum(targets)
    assert params["study_trainings"] == sum(target > 0 for target in targets)
    assert params["study_priority"] in {one.priority for one in ones}


def _others(snapshot: Snapshot, plan: Plan, line: JobPlan) -> list[JobView]:
    """The other jobs of its group that the policy gave any slots."""
    served = {other.job for other in plan.jobs if other.target} - pinned(snapshot, plan) - {line.job}
    group_name = job_of(snapshot, line).group
    return [job for job in snapshot.jobs if job.id in served and job.group == group_name]


def _check_why(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    params, job = line.reason.params, job_of(snapshot, line)
    rule, others = params["message"], _others(snapshot, plan, line)
    sum_of_others = sum(lines(plan)[other.id].target for other in others)
    units = len({("study", one.bundle) if one.bundle is not None else ("job", one.id) for one in others})
    if "others_count" in params:
        assert (params["others_count"], params["others_slots"]) == (units, sum_of_others)
    if "study_slots" in params:
        _check_study(snapshot, plan, line)
    if rule in {"maximum", "fixed"}:
        assert line.target == params["max_slots"]
    elif rule == "protected":
        assert job.started_at is not None
        assert snapshot.at - job.started_at < params["minimum_run_seconds"]
        assert line.target + sum_of_others == params["capacity"]
    elif rule in {"knee", "measured_on", "unmeasured", "whole_hosts"}:
        assert line.target < params["max_slots"] == job.max_slots
        if rule == "measured_on":
            assert job.profile is not None
            assert params["measured"] == job.profile.largest_ranks
    elif rule == "goodput":
        assert line.target < params["next"] <= job.max_slots
    elif rule == "alone":
        assert line.target == params["capacity"]
    elif rule in {"one_kind", "by_weights"}:
        _check_weights(snapshot, plan, line)
    elif rule == "by_priority":
        assert abs(line.target - params["shared"] * job.priority / params["total_priority"]) < 1
        assert 0 < params["sharing_count"] <= units >= 2
        assert params["total_priority"] <= job.priority + sum(other.priority for other in others)
        if params["shared"] == params["capacity"]:
            assert params["sharing_count"] == units
        assert line.target + sum_of_others == params["capacity"]
    elif rule == "others_maximum":
        alone = [other for other in others if len(siblings(snapshot, other)) == 1]
        assert all(lines(plan)[other.id].target == most(snapshot, other) for other in alone)
        assert line.target + sum_of_others == params["capacity"]
    elif rule == "limited":
        assert line.target == params["floor"] < params["before"]
        assert line.reason.code in {PlanReason.RECLAIMED_BY_OWNER, PlanReason.REBALANCED}
    elif rule == "below_minimum":
        assert line.target < job.min_slots
    elif rule == "others_limits":
        assert units > 1
        assert line.target + sum_of_others == params["capacity"]
    elif rule.startswith(("floor", "kept")):
        if rule == "floor":
            assert line.target == job.min_slots
        assert params["floor"] in {line.target, sum_of_others}
        # Some GPUs of a kind may stay free where they count by their kind.
        assert line.target + sum_of_others == params["capacity"] or group_of(snapshot, job).weighs_kinds
    elif rule == "compared" and group_of(snapshot, job).policy == "fairshare":
        assert line.target + sum_of_others == params["capacity"]
    elif rule == "others_have":
        assert sum_of_others == params["capacity"] - line.target
    elif rule == "ahead":
        assert params["others"][0]["slots"] == 0
    if "missing" in params:
        assert params["missing"] == line.target - len(line.slots)
        _check_missing(line)


def _check_weights(snapshot: Snapshot, plan: Plan, line: JobPlan) -> None:
    """Check what is said of a job whose GPUs count by their kind, beside others that have GPUs of one kind."""
    group = group_of(snapshot, job_of(snapshot, line))
    sharing = [one for one in plan.jobs if one.kind is not None and one.target]
    sharing = [one for one in sharing if job_of(snapshot, one).group == group.name]
    units = {tuple(one.id for one in siblings(snapshot, job_of(snapshot, other))): other for other in sharing}
    if line.reason.params["message"] == "one_kind":
        assert (len(units), line.kind is None) == (1, False)
        return
    counts = {one.job: one.target * group.weight_of(one.kind or "") for one in sharing}
    found = re.search(
        r"they count ([\d.]+); of the ([\d.]+) that (\d+) trainings share, its part by priority would be ([\d.]+) "
        r"\((\d+) of (\d+) in all\)",
        text_for(line),
    )
    assert found
    counted, total, jobs, part = (float(found[place]) for place in range(1, 5))
    assert (counted, total, jobs) == pytest.approx((counts[line.job], sum(counts.values()), len(units)), abs=0.005)
    priority, in_all = int(found[5]), int(found[6])
    assert priority == job_of(snapshot, line).priority
    if all(len(ones) == 1 for ones in units):
        assert in_all == sum(job_of(snapshot, one).priority for one in sharing)
    assert part == pytest.approx(total * priority / in_all, abs=0.01)


def _check_missing(line: JobPlan) -> None:
    """Check that the released and the held GPUs add up to the missing ones."""
    params, text = line.reason.params, text_for(line)
    returning = re.findall(r"(\d+) of (?:them|\d+ GPUs?) (?:is|are) being released", text)
    kept = re.findall(r"(\d+) of (?:them|\d+ GPUs?) (?:is|are) not free yet", text)
    assert sum(map(int, returning + kept)) == params["missing"]
    assert sum(map(int, returning)) <= params.get("givers_slots", 0)


@pytest.mark.parametrize(
    "forged",
    [
        {"target": 4},
        {"capacity": 9},
        {"priority": 6000},
        {"others": [{"job": 2, "name": "T2", "slots": 5, "priority": 15000, "min_slots": 1, "max_slots": 8}]},
        {"others": [{"job": 2, "name": "T3", "slots": 7, "priority": 10000, "min_slots": 1, "max_slots": 8}]},
    ],
)
def test_a_wrong_figure_in_a_reason_is_noticed(forged: dict[str, Any]) -> None:
    snapshot = Snapshot(0.0, (group(),), HALVES, (running(job(1)), running(job(2, 10000))))
    plan = schedule(snapshot)
    first = plan.jobs[0]
    assert text_for(first) == "3 of 8 GPUs: T2 has twice your priority (10000 to 5000)."
    check_reasons(snapshot, plan)
    wrong = replace(first, reason=replace(first.reason, params={**first.reason.params, **forged}))
    with pytest.raises(AssertionError):
        check_reasons(snapshot, replace(plan, jobs=(wrong, *plan.jobs[1:])))

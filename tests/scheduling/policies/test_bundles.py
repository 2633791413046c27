"""A study's trainings count as one training towards others, and divide its GPUs among them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast import Span, Work, forecast
from scheduling.plan import PlanReason
from scheduling.policies.bundles import KEEPS_ALL, Bundle, Terms, fold, in_bundles
from scheduling.policies.demand import Demand, by_priority, by_submission
from scheduling.policies.shares import shares_of
from scheduling.preview import preview, with_job
from scheduling.schedule import run_cycle
from scheduling.snapshot import GroupView, JobView, SlotView, Snapshot
from tests.scheduling.cluster import (
    Policy,
    SimulatedCluster,
    group,
    hold,
    job,
    lines,
    running,
    slots,
    targets,
    text_for,
)

STUDY, OTHER_STUDY = 1, 2
FAIR = Terms(shares=True, stops_elastic=True)
BY_PRIORITY = Terms(stops_elastic=True, stops_fixed=True)
thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def trial(number: int, *, held: int | None = None, least: int = 1, most: int = 4, **fields: Any) -> Demand:
    """Elastic trial `number` of a study, submitted at second `number`; `held` if it runs."""
    values: dict[str, Any] = {"priority": 5000, "submitted_at": float(number), "bundle": STUDY, "elastic": True}
    values |= {"min_slots": least, "max_slots": most, "running": held is not None, "held": held or 0}
    return Demand(number, **(values | fields))


def fixed(number: int, size: int, *, runs: bool = False, **fields: Any) -> Demand:
    return trial(number, held=size if runs else None, least=size, most=size, elastic=False, **fields)


def alone(number: int, priority: int = 5000, *, held: int | None = None, least: int = 1, most: int = 8) -> Demand:
    return Demand(number, priority, float(number), least, most, held is not None, held or 0, elastic=True)


def bundle_of(members: list[Demand], terms: Terms) -> Bundle:
    folded = fold(members, 100, terms)
    assert folded is not None
    [bundle] = folded.bundles.values()
    return bundle


# --- inside a study --------------------------------------------------------------------------------------------------

INSIDE: list[tuple[str, list[Demand], Terms, int, dict[int, int]]] = [
    ("the rest goes evenly", [trial(1, held=5), trial(2, held=1)], FAIR, 6, {1: 3, 2: 3}),
    ("of equals the first gets one more", [trial(1), trial(2), trial(3)], FAIR, 8, {1: 3, 2: 3, 3: 2}),
    ("never over maxima", [trial(1, most=2), trial(2, most=3)], FAIR, 8, {1: 2, 2: 3}),
    ("each minimum before any growth", [trial(1, least=2), trial(2, least=3), trial(3)], FAIR, 6, {1: 2, 2: 3, 3: 1}),
    ("a higher rank starts first", [trial(1), trial(2, bundle_rank=1)], FAIR, 1, {2: 1}),
    ("who runs is not stopped for a higher rank", [trial(1, held=1), trial(2, bundle_rank=1)], FAIR, 1, {1: 1}),
    ("who runs shrinks for one that waits", [trial(1, held=4), trial(2)], FAIR, 4, {1: 2, 2: 2}),
    ("shrinking comes before stopping", [trial(1, held=3), trial(2, held=1)], FAIR, 2, {1: 1, 2: 1}),
    ("the lowest rank is stopped", [trial(1, held=1), trial(2, held=1, bundle_rank=1)], FAIR, 1, {2: 1}),
    ("the last is stopped", [trial(n, held=1) for n in (1, 2, 3)], FAIR, 2, {1: 1, 2: 1}),
    ("nobody passes who does not fit", [trial(1, held=2), trial(2, least=4), trial(3)], FAIR, 4, {1: 4}),
    ("a fixed size is exact", [fixed(1, 2, runs=True), fixed(2, 2), fixed(3, 2)], FAIR, 5, {1: 2, 2: 2}),
    ("a fixed size is not stopped", [trial(1, held=1), fixed(2, 2, runs=True)], FAIR, 2, {2: 2}),
    ("a protected one is not stopped", [trial(1, held=1), trial(2, held=1, protected=True)], FAIR, 1, {2: 1}),
    ("by priority a fixed size may be stopped", [fixed(n, 2, runs=True) for n in (1, 2)], BY_PRIORITY, 3, {1: 2}),
    ("by priority none shrinks for another", [trial(1, held=4), trial(2)], BY_PRIORITY, 4, {1: 4}),
    ("by priority who runs shrinks at last", [trial(1, held=4), trial(2, held=4)], BY_PRIORITY, 3, {1: 2, 2: 1}),
    ("without preemption none shrinks", [trial(1, held=3), trial(2, held=1), trial(3)], Terms(), 4, {1: 3, 2: 1}),
    ("without preemption who waits comes first", [trial(1, held=2), trial(2)], Terms(), 3, {1: 2, 2: 1}),
    ("without preemption growth waits for who waits", [trial(1, held=1), trial(2, least=3)], Terms(), 3, {1: 1}),
    ("where all keep their minimum, all shrink", [trial(1, held=3), trial(2, held=2)], KEEPS_ALL, 3, {1: 2, 2: 1}),
]


@pytest.mark.parametrize(
    ("members", "terms", "given", "expected"), [row[1:] for row in INSIDE], ids=[r[0] for r in INSIDE]
)
def test_a_study_divides_its_slots(members: list[Demand], terms: Terms, given: int, expected: dict[int, int]) -> None:
    assert bundle_of(members, terms).divided(given) == expected


def test_a_study_asks_as_one_job() -> None:
    one = bundle_of([trial(3, held=2, priority=7000), trial(2, held=1), trial(1)], FAIR).demand
    assert (one.id, one.priority, one.submitted_at, one.running) == (2, 7000, 1.0, True)
    assert (one.min_slots, one.max_slots, one.held, one.least) == (1, 12, 3, 1)


def test_a_study_that_waits_needs_its_first_minimum() -> None:
    one = bundle_of([trial(1, least=2), trial(2, least=3, bundle_rank=1)], FAIR).demand
    assert (one.id, one.min_slots, one.max_slots, one.running) == (2, 3, 8, False)


def test_a_study_of_one_training_is_that_training() -> None:
    assert fold([trial(1), trial(2, bundle=OTHER_STUDY), alone(3)], 8, FAIR) is None
    assert fold([trial(1), trial(2, least=9, most=9)], 8, FAIR) is None


def test_trainings_of_a_study_are_side_by_side() -> None:
    asked = [alone(1), trial(2), alone(3, 9000), trial(4, priority=6000), trial(5, bundle_rank=1)]
    assert [one.id for one in in_bundles(by_priority(asked))] == [3, 5, 2, 4, 1]
    assert [one.id for one in in_bundles(by_submission(asked))] == [1, 5, 2, 4, 3]


# --- beside others ---------------------------------------------------------------------------------------------------

POLICIES: list[tuple[str, Policy, bool, list[Demand], dict[int, int]]] = [
    ("half of the GPUs are a job's", "fairshare", True, [*(trial(n, held=1) for n in range(1, 9)), alone(20)],
     {1: 1, 2: 1, 3: 1, 4: 1, 20: 4}),
    ("trials shrink before one stops", "fairshare", True, [trial(1, held=4), trial(2, held=4), alone(20)],
     {1: 2, 2: 2, 20: 4}),
    ("two studies share", "fairshare", True,
     [*(trial(n) for n in range(1, 9)), *(trial(n, bundle=OTHER_STUDY) for n in (10, 11))],
     {1: 1, 2: 1, 3: 1, 4: 1, 10: 2, 11: 2}),
    ("twice the priority", "fairshare", True, [*(trial(n, priority=10000) for n in range(1, 9)), alone(20)],
     {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 20: 3}),
    ("a high minimum stops trials", "fairshare", True, [*(trial(n, held=1) for n in range(1, 9)), alone(20, least=6)],
     {1: 1, 2: 1, 20: 6}),
    ("fixed sizes are not stopped", "fairshare", True, [*(fixed(n, 2, runs=True) for n in (1, 2, 3)), alone(20)],
     {1: 2, 2: 2, 3: 2, 20: 2}),
    ("a fixed size waits beyond its study's share", "fairshare", True, [fixed(1, 3, runs=True), fixed(2, 3), alone(20)],
     {1: 3, 20: 5}),
    ("nothing shrinks without preemption", "fairshare", False, [trial(1, held=4), trial(2, held=3), alone(20)],
     {1: 4, 2: 3, 20: 1}),
    ("new trials wait beyond the share", "fairshare", False, [*(trial(n, held=2) for n in (1, 2)), trial(3), alone(20)],
     {1: 2, 2: 2, 20: 4}),
    ("first come, first served", "fifo", False, [trial(1, held=2), trial(2), alone(20), trial(21)],
     {1: 3, 2: 3, 21: 2}),
    ("a job that came first", "fifo", False, [alone(0, most=5), *(trial(n) for n in range(1, 6))],
     {0: 5, 1: 1, 2: 1, 3: 1}),
    ("a higher priority stops trials", "priority", True,
     [*(trial(n, held=1) for n in range(1, 9)), alone(20, 9000, most=5)],
     {1: 1, 2: 1, 3: 1, 20: 5}),
    ("a higher priority stops fixed sizes", "priority", True,
     [*(fixed(n, 2, runs=True) for n in (1, 2, 3, 4)), alone(20, 9000, most=3)], {1: 2, 2: 2, 20: 3}),
    ("a study of higher priority takes all that it asks for", "priority", True,
     [alone(20, held=8), *(trial(n, priority=9000, most=2) for n in (1, 2, 3))], {1: 2, 2: 2, 3: 2, 20: 2}),
    ("equals take nothing from a study", "priority", True, [*(trial(n, held=1) for n in range(1, 9)), alone(20)],
     dict.fromkeys(range(1, 9), 1)),
    ("goodput: as many trials as fit in the share", "goodput", True,
     [*(trial(n, held=1) for n in range(1, 9)), alone(20)], {1: 1, 2: 1, 3: 1, 4: 1, 20: 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "preemption", "demands", "expected"), [row[1:] for row in POLICIES], ids=[row[0] for row in POLICIES]
)
def test_a_study_counts_as_one(
    policy: Policy, preemption: bool, demands: list[Demand], expected: dict[int, int]
) -> None:
    in_order = by_submission if policy == "fifo" else by_priority
    asked = in_bundles(in_order(demands))
    assert shares_of(group(policy, preemption=preemption), asked, 8) == expected


def test_slots_that_a_study_cannot_use_go_to_others() -> None:
    """Trials of 2 use 4 of the 5 slots."""
    asked = [*(fixed(n, 2, priority=9000) for n in (1, 2, 3)), alone(20, most=3), alone(21, most=8)]
    assert shares_of(group(), in_bundles(by_priority(asked)), 9) == {1: 2, 2: 2, 20: 3, 21: 2}


@st.composite
def studies(draw: st.DrawFn) -> tuple[list[Demand], int, GroupView]:
    """Draw jobs, trials of two studies among them, and what of the slots they hold."""
    capacity = left = draw(st.integers(1, 20))
    asked = []
    for number in range(1, draw(st.integers(2, 9)) + 1):
        least = draw(st.integers(1, 3))
        elastic = draw(st.integers(0, 3)) > 0
        most = draw(st.integers(least, 6)) if elastic else least
        held = draw(st.integers(least, most)) if draw(st.booleans()) else 0
        held, left = (held, left - held) if held <= left else (0, left)
        one = trial(number, held=held or None, least=least, most=most, elastic=elastic)
        bundle, rank = draw(st.sampled_from([None, STUDY, STUDY, OTHER_STUDY])), draw(st.integers(0, 1))
        asked.append(replace(one, bundle=bundle, bundle_rank=rank, priority=draw(st.sampled_from([2500, 5000]))))
    policy = draw(st.sampled_from(["fairshare", "fairshare", "fifo", "priority", "goodput"]))
    rules = GroupView("g", "rg", policy, preemption=draw(st.booleans()))
    in_order = by_submission if policy == "fifo" else by_priority
    return list(in_bundles(in_order(asked))), capacity, rules


@thorough
@given(studies())
def test_shares_are_within_limits_and_stop_nobody_without_need(drawn: tuple[list[Demand], int, GroupView]) -> None:
    asked, capacity, rules = drawn
    shares = shares_of(rules, asked, capacity)
    assert sum(shares.values()) <= capacity
    for one in asked:
        assert one.id not in shares or one.min_slots <= shares[one.id] <= max(one.max_slots, one.held)
        stopped = one.running and one.id not in shares
        ones = [other for other in asked if other.bundle == one.bundle and other is not one]
        assert not stopped or (rules.preemption and rules.policy != "fifo")
        if stopped and one.bundle is not None and rules.policy != "priority":
            assert one.elastic
            assert any(other.running and other.id in shares for other in ones)
        if stopped and one.bundle is not None:
            started = sum(shares.get(other.id, 0) for other in ones if not other.running)
            running = [other for other in ones if other.running and other.elastic and other.id in shares]
            assert started + sum(shares[other.id] - other.min_slots for other in running) < one.min_slots


@thorough
@given(studies())
def test_others_get_what_they_would_get_beside_one_elastic_job(drawn: tuple[list[Demand], int, GroupView]) -> None:
    """With elastic trials that need one GPU each, a study is in no way different from one job of their sum."""
    asked, capacity, rules = drawn
    asked = [replace(one, min_slots=1, elastic=True) if one.bundle is not None else one for one in asked]
    as_one: dict[object, Demand] = {}
    for one in asked:
        key = ("study", one.bundle) if one.bundle is not None else one.id
        other = as_one.get(key)
        as_one[key] = replace(one, bundle=None) if other is None else replace(
            other, priority=max(one.priority, other.priority), max_slots=one.max_slots + other.max_slots,
            held=one.held + other.held, running=one.running or other.running,
        )  # fmt: skip
    if rules.policy == "goodput":
        return
    shares, expected = shares_of(rules, asked, capacity), shares_of(rules, list(as_one.values()), capacity)
    for one in asked:
        ones = [other.id for other in asked if other.bundle == one.bundle] if one.bundle is not None else [one.id]
        counted = as_one["study", one.bundle] if one.bundle is not None else one
        assert sum(shares.get(job, 0) for job in ones) == expected.get(counted.id, 0)


# --- cycle after cycle -----------------------------------------------------------------------------------------------


def trials(count: int, **fields: Any) -> tuple[JobView, ...]:
    return tuple(job(number, **{"bundle": STUDY, "most": 4, **fields}) for number in range(1, count + 1))


def settled(cluster: SimulatedCluster) -> dict[int, int]:
    cluster.settle()
    return {number: target for number, target in targets(cluster.plans[-1]).items() if target}


def test_a_study_gives_a_job_its_share_and_takes_it_back() -> None:
    cluster = SimulatedCluster(Snapshot(0.0, (group(),), slots(4, 4), trials(12)))
    assert settled(cluster) == dict.fromkeys(range(1, 9), 1)
    cluster.submit(job(20))
    plan = lines(cluster.cycle())
    assert [number for number, line in plan.items() if line.preempt] == [5, 6, 7, 8]
    assert {plan[number].reason.code for number in (5, 6, 7, 8)} == {PlanReason.SHRUNK_FOR_FAIR_SHARE}
    assert settled(cluster) == {1: 1, 2: 1, 3: 1, 4: 1, 20: 4}
    cluster.end(20)
    assert settled(cluster) == dict.fromkeys(range(1, 9), 1)


def test_a_study_alone_stops_nobody_as_trials_come_and_go() -> None:
    cluster = SimulatedCluster(Snapshot(0.0, (group(),), slots(4, 4), trials(3)))
    assert settled(cluster) == {1: 3, 2: 3, 3: 2}
    for number in range(4, 30):
        cluster.submit(job(number, most=4, bundle=STUDY, bundle_rank=number % 3))
        cluster.settle()
        if number > 8:
            cluster.end(min(view.id for view in cluster.snapshot.jobs if cluster.held(view.id)))
    assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)


def test_a_job_that_needs_the_whole_cluster_waits_for_no_trial_that_comes_later() -> None:
    """The trials that were there before it end one by one; those that take their place give way to it."""
    cluster = SimulatedCluster(Snapshot(0.0, (group(),), slots(4), trials(4, most=1)))
    cluster.settle()
    cluster.submit(job(5, least=4, most=4, elastic=False))
    for number in range(6, 10):
        cluster.end(number - 5)
        cluster.submit(job(number, most=1, bundle=STUDY))
        cluster.settle()
    assert settled(cluster) == {5: 4}
    plan = next(plan for plan in map(lines, cluster.plans) if 5 in plan and plan[5].target)
    assert {plan[number].reason.code for number in (6, 7, 8)} == {PlanReason.GAVE_WAY}


@pytest.mark.parametrize("policy", ["fairshare", "goodput"])
def test_new_trials_of_a_fixed_size_wait_for_a_job_before_them(policy: Policy) -> None:
    """They would not give way: else the job would wait until the study is over."""
    cluster = SimulatedCluster(Snapshot(0.0, (group(policy),), slots(4), trials(4, most=1, elastic=False)))
    cluster.settle()
    cluster.submit(job(5, least=3, most=3, elastic=False))
    for number in range(6, 9):
        cluster.end(number - 5)
        cluster.submit(job(number, most=1, bundle=STUDY, elastic=False))
        cluster.settle()
        assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)
    assert settled(cluster) == {4: 1, 5: 3}
    waited = next(plan for plan in map(lines, cluster.plans) if 6 in plan)
    assert text_for(waited[6]) == "Waits behind T5, which was submitted first and needs 3 GPUs."


def test_trials_of_a_fixed_size_end_before_a_job_has_its_share() -> None:
    cluster = SimulatedCluster(Snapshot(0.0, (group(),), slots(4, 4), trials(6, least=2, most=2, elastic=False)))
    assert settled(cluster) == dict.fromkeys((1, 2, 3, 4), 2)
    cluster.submit(job(20))
    assert settled(cluster) == dict.fromkeys((1, 2, 3, 4), 2)
    for ended, share in ((1, 2), (2, 4)):
        cluster.end(ended)
        assert settled(cluster)[20] == share
    assert settled(cluster) == {3: 2, 4: 2, 20: 4}
    cluster.end(3)
    assert settled(cluster) == {4: 2, 5: 2, 20: 4}


def test_another_group_gets_its_quota_from_trials_first() -> None:
    """The group keeps 4 of 8 GPUs. As one elastic job, the study shrinks before T20 is stopped."""
    groups = (group(name="a", quota=4), group(name="b", quota=4))
    mine = [running(view) for view in trials(7, group="a")]
    other = running(job(20, group="a", most=1))
    there = Snapshot(0.0, groups, hold(slots(8), {**{f"h1:{n}": n + 1 for n in range(7)}, "h1:7": 20}), (*mine, other))
    cluster = SimulatedCluster(there)
    cluster.submit(job(30, group="b"))
    plan = lines(cluster.cycle())
    assert [number for number, line in plan.items() if line.preempt] == [4, 5, 6, 7]
    assert {plan[number].reason.code for number in (4, 5, 6, 7)} == {PlanReason.RECLAIMED_BY_OWNER}
    assert settled(cluster) == {1: 1, 2: 1, 3: 1, 20: 1, 30: 4}
    cluster.end(30)
    assert settled(cluster) == {**dict.fromkeys(range(1, 8), 1), 20: 1}


def test_groups_with_studies_share_by_quota() -> None:
    groups = (group(name="a", quota=2), group(name="b", quota=6))
    jobs = (*trials(8, group="a"), *(job(number, group="b", bundle=OTHER_STUDY, most=1) for number in range(11, 19)))
    cluster = SimulatedCluster(Snapshot(0.0, groups, slots(4, 4), jobs))
    assert settled(cluster) == {1: 1, 2: 1, **dict.fromkeys(range(11, 17), 1)}


def test_the_next_trial_is_expected_at_the_end_of_the_first() -> None:
    there = Snapshot(0.0, (group(),), hold(slots(2), {"h1:0": 1, "h1:1": 2}), (*map(running, trials(2)), trials(3)[2]))
    works = {number: Work((100.0 * number,) * 2, (100.0 * number,) * 2) for number in (1, 2, 3)}
    result = run_cycle(there)
    assert forecast(result.decision(3), 3, works).start == Span(100.0, 100.0)
    assert result.queues == {"g": [3]}


def test_a_preview_says_which_trials_stop() -> None:
    there = Snapshot(0.0, (group(),), hold(slots(2), {"h1:0": 1, "h1:1": 2}), tuple(map(running, trials(2))))
    found = preview(there, with_job(there, job(20)), 20)
    assert found.line.target == 1
    assert [(change.job, change.after, change.stops) for change in found.others] == [(2, 0, True)]


# --- sentences -------------------------------------------------------------------------------------------------------

FULL = hold(slots(4, 4), {f"h{1 + n // 4}:{n % 4}": n + 1 for n in range(8)})


def sentences(held: tuple[SlotView, ...], *jobs: JobView, policy: Policy = "fairshare") -> dict[int, str]:
    plan = SimulatedCluster(Snapshot(0.0, (group(policy),), held, jobs)).cycle()
    return {number: text_for(line) for number, line in lines(plan).items()}


def test_a_trial_is_told_what_its_study_has() -> None:
    there = [*map(running, trials(8)), job(9, bundle=STUDY), job(20, owner=2)]
    told = sentences(FULL, *there)
    assert (
        told[1] == "1 of 8 GPUs: its study has 4 GPUs for 4 trainings, and counts as one training with priority 5000."
    )
    assert told[8] == (
        "Stops for now and releases 1 GPU: its study has 4 of 8 GPUs for 4 trainings, and counts as one training with "
        "priority 5000."
    )
    assert told[9] == "Waits: its study has 4 of 8 GPUs for 4 trainings, and counts as one training with priority 5000."


def test_a_study_without_gpus_waits_in_its_place() -> None:
    half = hold(slots(4), {"h1:0-3": 20})
    told = sentences(half, running(job(20, least=4)), *trials(2))
    assert told[1] == "Waits for 1 more GPU: it needs 1, and 4 of 4 are the minimum of other trainings."
    assert told[2] == "Waits: its study waits for its first GPUs, and counts as one training with priority 5000."
    told = sentences(half, running(job(20, least=4)), *trials(2), job(30, owner=3), job(31))
    assert told[30] == "Waits behind another user's study, which was submitted first and needs 1 GPU."
    assert told[31] == "Waits behind the study of T1, which was submitted first and needs 1 GPU."


def test_a_study_waits_in_the_line_of_its_highest_priority() -> None:
    protected = running(job(20, 1, least=4, most=4, elastic=False, started_at=-1.0))
    there = (protected, job(1, 5000, bundle=STUDY, bundle_rank=1), job(2, 9000, bundle=STUDY), job(3, 6000))
    rules = group("priority", minimum_run_seconds=60)
    plan = SimulatedCluster(Snapshot(0.0, (rules,), hold(slots(4), {"h1:0-3": 20}), there)).cycle()
    assert text_for(lines(plan)[1]) == "Waits for 1 more GPU: it needs 1, and 4 of 4 are in use."
    assert text_for(lines(plan)[3]) == "Waits for 1 more GPU: it needs 1, and 4 of 4 are in use."


def test_others_count_a_study_as_one_training() -> None:
    quarters = hold(slots(4, 4), {"h1:0-3": 20, "h2:0-1": 21, "h2:2": 1, "h2:3": 2})
    mine = [running(view) for view in trials(2)]
    told = sentences(quarters, running(job(20)), *mine)
    assert told[20] == "4 of 8 GPUs: the study of T1 has the same priority (5000)."
    told = sentences(quarters, running(job(20)), running(job(21)), *mine)
    assert told[20] == "3 of 8 GPUs: a third of the 8 that 3 trainings share by priority (5000 of 15000 in all)."

"""Snapshots on which the scheduler was wrong once, found by random search. Each test reckons for itself what is due."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduling.plan import JobPlan, PlanReason
from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.checks import check_plan, group_of, job_of
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets, text_for
from tests.scheduling.explain.test_reasons import check_reasons

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def load(name: str) -> Snapshot:
    [path] = [path for path in CASES if path.stem.split("_")[0] == name]
    return load_path(path)


def load_path(path: Path) -> Snapshot:
    return msgspec.json.decode(path.read_bytes(), type=Snapshot)


# --- rules -----------------------------------------------------------------------------------------------------------


def test_who_may_not_borrow_keeps_to_its_quota_beside_a_group_that_asks_for_nothing() -> None:
    cluster = SimulatedCluster(load("V1"))
    cluster.settle()
    assert len(cluster.held(2)) == 2


def test_who_may_not_borrow_keeps_to_its_quota_alone() -> None:
    [line] = schedule(load("V1b")).jobs
    assert (line.target, line.reason.code) == (0, PlanReason.OVER_QUOTA)


def test_a_fixed_job_above_the_quota_of_a_group_that_may_not_borrow_does_not_start() -> None:
    snapshot = load("V1c")
    free = tuple(replace(slot, held_by=None) for slot in snapshot.slots)
    alone = replace(snapshot, slots=free, jobs=(replace(snapshot.jobs[0], state="PENDING", started_at=None),))
    [line] = schedule(alone).jobs
    assert (line.target, line.reason.code) == (0, PlanReason.OVER_QUOTA)


@pytest.mark.parametrize(("quota", "target"), [(2, 2), (0, 0), (None, 0)])
def test_a_group_of_weight_0_keeps_to_its_quota_alone_and_beside_others(quota: int | None, target: int) -> None:
    of_quota = group(name="a", quota=quota, weight=0)
    alone = Snapshot(0.0, (of_quota,), slots(8), (job(1, group="a"),))
    beside = replace(alone, groups=(of_quota, group(name="b")), jobs=(*alone.jobs, job(2, group="b", most=3)))
    assert targets(schedule(alone)) == {1: target}
    assert targets(schedule(beside)) == {1: target, 2: 3}
    [line] = schedule(alone).jobs
    assert "weight of 0" in text_for(line)
    assert target or line.reason.code == PlanReason.OVER_QUOTA


def test_a_borrower_whose_weight_becomes_0_gives_back_what_nobody_else_asks_for() -> None:
    full = Snapshot(
        0.0, (group(name="a", quota=2, weight=0),), hold(slots(8), {"h1:0-7": 1}), (running(job(1, group="a")),)
    )
    [line] = schedule(full).jobs
    assert (line.target, line.reason.code) == (2, PlanReason.RECLAIMED_BY_OWNER)
    fixed = replace(full, jobs=(running(job(1, group="a", least=8, most=8)),))
    [line] = schedule(fixed).jobs
    assert line.preempt
    assert "entitled" not in text_for(line)


def test_a_group_that_does_not_lend_may_borrow() -> None:
    assert len(lines(schedule(load("V2")))[1].claim) == 7


def test_a_draining_slot_protects_nobody_from_a_higher_priority() -> None:
    cluster = SimulatedCluster(load("V6"))
    assert lines(cluster.cycle())[1].preempt
    cluster.settle()
    assert len(cluster.held(2)) == 2


def test_a_stopped_group_lends_what_it_does_not_use() -> None:
    assert targets(schedule(load("S1"))) == {1: 8}


def test_growth_takes_nothing_that_the_first_in_line_waits_for() -> None:
    cluster = SimulatedCluster(load("V5"))
    cluster.settle()
    assert len(cluster.held(1)) == 3
    cluster.end(3)
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(4))) == (3, 5)


@pytest.mark.parametrize("name", ["T1", "T4"])
def test_no_reservation_keeps_a_group_from_its_part_for_a_job_that_its_own_group_does_not_start(name: str) -> None:
    """T1 takes all that its group has, by its priority, so no reservation starts T4; T6 is due 7.7 or 6.9 GPUs."""
    cluster = SimulatedCluster(load(name))
    plan = cluster.cycle()
    assert lines(plan)[6].claim
    assert not [line for line in plan.jobs if line.reason.params["message"] == "held_back_for"]
    cluster.settle()
    assert len(cluster.held(6)) >= 6


@pytest.mark.parametrize("policy", ["fifo", "priority", "fairshare", "goodput"])
@pytest.mark.parametrize("preemption", [True, False])
@pytest.mark.parametrize("priority", [7000, 5000, 3000])
@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("ends_at", [None, 1500.0])
def test_who_waits_beside_a_reservation_gets_what_the_reservation_cannot_use(
    policy: Any, preemption: bool, priority: int, holds: bool, ends_at: float | None
) -> None:
    """T1's group has 2.3 of 10 GPUs by weight, and T4, which needs 3, has waited: T6 waits for it only if it then
    starts, and gets all that the other group leaves."""
    at = 1000.0
    there = hold(slots(4, 4, 2), {"h1:0-3": 1, "h2:0-2": 4} if holds else {"h1:0-3": 1})
    first = running(job(1, priority, group="a", most=4, submitted_at=500.0, ends_at=ends_at))
    gang = job(4, group="a", least=3, most=3, submitted_at=600.0)
    jobs = (first, running(gang) if holds else gang, job(6, group="b", most=11, submitted_at=990.0))
    groups = (group(policy, preemption=preemption, name="a", weight=3), group(name="b", weight=10))
    cluster = SimulatedCluster(Snapshot(at, groups, there, jobs))
    for _ in range(6):
        before = cluster.snapshot
        plan = cluster.cycle()
        check_plan(before, plan)
        check_reasons(before, plan)
    assert len(cluster.held(6)) == 10 - len(cluster.held(1)) - len(cluster.held(4))
    assert len(cluster.held(1)) + len(cluster.held(4)) <= 2 * 10 * 3 / 13


def test_a_reserve_of_overcommitted_quotas_keeps_nobody_from_its_own() -> None:
    """Both ask for less than their quotas; of 7 GPUs they need 5, and who keeps a reserve asks for nothing."""
    assert targets(schedule(load("V3"))) == {1: 4, 3: 1}


def test_equal_quotas_that_are_too_many_divide_equally_whatever_is_asked_for_beyond() -> None:
    assert targets(schedule(load("V4"))) == {1: 4, 2: 4}


def test_a_fixed_job_above_its_groups_part_starts_once_that_stops_nobody() -> None:
    cluster = SimulatedCluster(load("S3"))
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (2, 6)
    assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)
    cluster.end(2)
    cluster.settle()
    assert len(cluster.held(1)) == 8


def test_a_limit_counts_what_a_job_keeps_on_a_host_that_drains() -> None:
    cluster = SimulatedCluster(load("T5"))
    for _ in range(4):
        before = cluster.snapshot
        check_plan(before, cluster.cycle())
        assert len(cluster.held(5)) + len(cluster.held(39)) == 4


@pytest.mark.parametrize("terms", [{"borrows": False}, {"weight": 0}], ids=["does not borrow", "weight 0"])
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another group"])
def test_a_limited_group_grows_no_further_while_a_job_finishes_on_a_host_that_drains(
    terms: dict[str, Any], elastic: bool, beside: bool
) -> None:
    """T1 needs 3 at once, and only 2 are in service beside its host; T2 may use all of them."""
    offered = (*(replace(slot, claimable=False) for slot in slots(3)), *slots(0, 4))
    first = running(job(1, group="a", least=3, most=3, elastic=elastic, priority=9000))
    second = running(job(2, group="a", most=8))
    groups = (group(name="a", quota=4, preemption=False, **terms), *([group(name="b")] if beside else []))
    cluster = SimulatedCluster(Snapshot(0.0, groups, hold(offered, {"h1:0-2": 1, "h2:0": 2}), (first, second)))
    cluster.submit(job(3, group="a", most=1))
    for _ in range(6):
        before = cluster.snapshot
        check_plan(before, cluster.cycle())
        assert sum(len(cluster.held(number)) for number in (1, 2, 3)) <= 4
    assert (len(cluster.held(1)), len(cluster.held(2))) == (3, 1)
    cluster.end(1)
    cluster.settle()
    assert sum(len(cluster.held(number)) for number in (2, 3)) == 4


# --- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_figure_of_every_sentence_is_what_it_is_called(path: Path) -> None:
    snapshot = load_path(path)
    plan = schedule(snapshot)
    if path.stem.split("_")[0] not in {"E3", "E6", "T6"}:  # a fixed job, or one that runs, has less than it needs there
        check_plan(snapshot, plan)
        check_reasons(snapshot, plan)
    for line in plan.jobs:
        _check_figures(snapshot, line, [other for other in plan.jobs if other is not line])


def _counts(params: dict[str, Any]) -> Iterator[float]:
    for value in params.values():
        if isinstance(value, list):
            for entry in value:
                yield from _counts(entry) if isinstance(entry, dict) else ()
        elif isinstance(value, int | float):
            yield value


def _check_figures(snapshot: Snapshot, line: JobPlan, others: list[JobPlan]) -> None:
    params, job = line.reason.params, job_of(snapshot, line)
    group = group_of(snapshot, job)
    rule = params["message"]
    staying = {other.job for other in others if other.reason.params["message"] == "pinned"}
    mates = sum(o.target for o in others if job_of(snapshot, o).group == job.group and o.job not in staying)
    # Only the comparison of two kinds of GPU has a sign, which its sentence puts into words.
    assert all(count >= 0 for count in _counts({key: params[key] for key in params.keys() - {"kind_faster"}}))
    assert params.get("target", 0) <= params.get("capacity", line.target)
    if "being released" in text_for(line):
        assert params["givers"]
        assert min(params["missing"], params["givers_slots"]) > 0
    if rule in {"in_line", "in_line_for_minimums"}:
        assert 0 < params["missing"] <= job.min_slots
        assert params["missing"] == job.min_slots - (params["capacity"] - params["taken"])
        if group.policy != "fairshare" or not group.preemption:
            assert params["taken"] == mates
    if rule == "by_priority":
        exact = params["shared"] * job.priority / params["total_priority"]
        assert abs(line.target - exact) < 1
    if rule == "floor":
        assert line.target == job.min_slots == params["floor"]
    if rule == "kept":
        assert line.target == params["before"]
    if rule in {"alone", "others_have", "others_maximum", "others_limits"}:
        assert line.target + mates == params["capacity"]
    if "group_quota" in params and params["group_room"] < min(params["group_quota"], params["group_total"]):
        assert params["group_deserved"] < params["group_quota"] or "still hold" in text_for(line)


@pytest.mark.parametrize("quota", range(1, 9))
@pytest.mark.parametrize("count", [1, 2])
def test_the_gain_that_a_sentence_names_is_a_gain(quota: int, count: int) -> None:
    """T5 is slower on 2 GPUs than on 1, and fastest on 6: whatever it gets, no sentence offers it a slower size."""
    told = load("T3")
    [mine] = [view for view in told.jobs if view.id == 5]
    groups = (told.groups[0], replace(told.groups[1], quota=quota))
    hosts = tuple(replace(slot, resource_groups=("r0",)) for slot in slots(2, 4, 4))
    jobs = tuple(replace(mine, id=5 + number, name=f"T{5 + number}") for number in range(count))
    cluster = SimulatedCluster(Snapshot(told.at, groups, hosts, jobs))
    for _ in range(3):
        before, plan = cluster.snapshot, cluster.cycle()
        check_reasons(before, plan)
        for line in plan.jobs:
            _check_figures(before, line, [other for other in plan.jobs if other is not line])
            assert " 0 % faster" not in text_for(line)


def test_a_group_whose_jobs_stay_beyond_its_part_has_nothing_to_share_and_not_less() -> None:
    """The only GPU in service is kept by a fixed job that finishes on a host that drains."""
    free = slots(1, 1)
    held = hold((free[0], replace(free[1], claimable=False)), {"h1:0": 4, "h2:0": 4})
    fixed = [job(n, group="b", least=2, most=2, elastic=False) for n in (1, 4)]
    groups = (group(name="b"), group(name="c", quota=1))
    snapshot = Snapshot(0.0, groups, held, (fixed[0], running(fixed[1]), job(5, group="c")))
    plan = schedule(snapshot)
    check_reasons(snapshot, plan)
    assert all(count >= 0 for line in plan.jobs for count in _counts(line.reason.params))

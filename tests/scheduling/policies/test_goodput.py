"""Policy goodput: slots go where they are worth most, and a division that is not better changes nothing."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from tidepool.goodput.curve import best
from tidepool.goodput.model import Bounds, NoiseScale, Size, ThroughputParameters

from scheduling.plan import PlanReason
from scheduling.policies.goodput import goodput_division
from scheduling.policies.goodput_bids import (
    BONUS,
    BONUS_OF_KINDS,
    LONGEST,
    SHORTEST,
    Bid,
    bid_weight,
    finish_time_ratio,
    lasts_for,
    seconds_left,
)
from scheduling.policies.speedups import KNEE, JobScaling, Shape, scaling_of, sizes_within
from scheduling.policies.target_hold import hold_targets
from scheduling.schedule import schedule
from scheduling.snapshot import Aim, JobView, ProfileView, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets, text_for


def speeds(sums: float, overlap: float = 1.5) -> ThroughputParameters:
    """Speeds of a job whose sums take so many seconds; without them twice the GPUs are nearly twice as fast."""
    return ThroughputParameters(0.001, 0.002, sums, sums / 20, 2 * sums, sums / 20, overlap)


def profile(sums: float = 0.001, **fields: Any) -> ProfileView:
    values: dict[str, Any] = {"bounds": Bounds(512), "parameters": {"": speeds(sums)}, "largest_ranks": 64}
    return ProfileView(**(values | fields))


def trains(number: int, sums: float = 0.001, *, most: int = 16, **fields: Any) -> JobView:
    return job(number, most=most, profile=profile(sums), **fields)


def planned(
    jobs: list[JobView], there: tuple[SlotView, ...], aim: Aim = "even", **terms: Any
) -> tuple[Snapshot, dict[int, int]]:
    snapshot = Snapshot(at=1000.0, groups=(group("goodput", aim=aim, **terms),), slots=there, jobs=tuple(jobs))
    plan = schedule(snapshot)
    check_plan(snapshot, plan)
    assert schedule(snapshot) == plan
    return snapshot, targets(plan)


def test_slots_go_to_who_makes_most_of_them() -> None:
    _, found = planned([trains(1, 0.001), trains(2, 1.0)], slots(4, 4))
    assert found[1] >= 4
    assert found[2] == 1


def test_equal_jobs_get_equal_parts() -> None:
    _, found = planned([trains(number) for number in (1, 2, 3, 4)], slots(4, 4, 4, 4))
    assert found == {1: 4, 2: 4, 3: 4, 4: 4}
    _, found = planned([trains(number) for number in (1, 2, 3)], slots(4, 4))
    assert sorted(found.values()) == [2, 2, 4]


def test_who_waits_gets_its_minimum_before_anybody_grows() -> None:
    there = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    _, found = planned([running(trains(1)), trains(2, least=2), trains(3, 1.0)], there)
    assert found[2] >= 2
    assert found[3] == 1
    assert sum(found.values()) <= 8


def test_nobody_is_given_more_than_its_knee() -> None:
    snapshot, found = planned([trains(1, 0.3)], slots(4, 4, 4, 4))
    shape = Shape((4, 4, 4, 4))
    knee = found[1]
    assert 1 < knee < 16
    sizes = sizes_within(shape, 1, 16)
    assert knee in sizes
    speed = {size: best(speeds(0.3), Bounds(512), None, Size(-(-size // 4), size)).goodput for size in sizes}
    assert speed[knee] >= KNEE * max(speed.values())
    assert all(speed[size] < KNEE * max(speed.values()) for size in sizes if size < knee)
    assert knee <= 4
    there = hold(slots(4, 4, 4, 4), {f"h1:0-{knee - 1}": 1})
    line = lines(schedule(replace(snapshot, slots=there, jobs=(running(trains(1, 0.3)),))))[1]
    assert line.reason.code == PlanReason.AT_ITS_KNEE
    assert "more would make it at most 1 % faster" in text_for(line)


@pytest.mark.parametrize(("known", "gets"), [(None, 2), (profile(largest_ranks=1), 4), (profile(largest_ranks=4), 16)])
def test_what_was_not_measured_is_offered_in_steps(known: ProfileView | None, gets: int) -> None:
    view = job(1, most=64, profile=known)
    snapshot, found = planned([view], slots(16, 16))
    assert found == {1: gets}
    there = hold(slots(16, 16), {f"h1:0-{gets - 1}": 1})
    line = lines(schedule(replace(snapshot, slots=there, jobs=(running(view),))))[1]
    assert line.reason.code == PlanReason.PROFILING
    assert line.reason.params["message"] == ("measured_on" if known else "unmeasured")


def test_sizes_are_powers_within_a_host_and_whole_hosts() -> None:
    assert sizes_within(Shape((8, 8, 4)), 1, 64) == (1, 2, 4, 8, 16, 20, 64)
    assert sizes_within(Shape((4,)), 3, 3) == (3,)
    assert sizes_within(Shape((4, 4)), 1, 3) == (1, 2, 3)
    assert sizes_within(Shape((4, 4)), 1, 7) == (1, 2, 4)
    assert sizes_within(Shape((4, 4)), 5, 7) == (5,)


@pytest.mark.parametrize(("aim", "more"), [("soon", 1), ("used", 2)])
def test_an_aim_says_who_weighs_more(aim: Aim, more: int) -> None:
    """1 has little left and has used much; 2 the other way round."""
    jobs = [
        replace(trains(1, 0.01), profile=profile(0.01, remaining_steps=100.0), gpu_seconds=1e5),
        replace(trains(2, 0.01), profile=profile(0.01, remaining_steps=1e6), gpu_seconds=0.0),
    ]
    _, found = planned(jobs, slots(4, 4, 4), aim)
    assert found[more] > found[3 - more]
    _, even = planned(jobs, slots(4, 4), "even")
    assert even[1] == even[2]


def test_a_job_gains_nothing_by_what_it_says_under_used() -> None:
    assert bid_weight("used", 5000, 100.0, 1.0) == bid_weight("used", 5000, 100.0, 1e9) == (0.05, -0.5)
    assert bid_weight("soon", 5000, 70.0, 1.0) > bid_weight("soon", 5000, 70.0, 1e9)
    assert bid_weight("soon", 5000, 70.0, None) == (pytest.approx(370**-0.7), 0.5)
    assert bid_weight("even", 10000, 70.0, 1.0) == (2.0, -1.0)


@pytest.mark.parametrize("aim", ["soon", "even", "used"])
def test_staying_is_worth_the_same_part_of_utility_under_each_aim(aim: Aim) -> None:
    scaling = replace(
        scaling_of(job(1, most=4, profile=profile(0.01)), Shape((4,)), 0), pause_seconds=0.0, start_seconds=0.0
    )
    weight, power = bid_weight(aim, 5000, 0.0, None)
    new, moved = (Bid(1, weight, power, 1, 4, has, scaling).utility(2) for has in (None, 1))
    assert moved < new
    assert max(moved / new, new / moved) == pytest.approx(1 / (1 - BONUS), rel=1e-6)


@pytest.mark.parametrize("aim", ["soon", "even", "used"])
def test_with_several_kinds_staying_is_worth_the_same_part_of_speed_under_each_aim(aim: Aim) -> None:
    scaling = replace(
        scaling_of(job(1, most=4, profile=profile(0.01)), Shape((4,)), 0), pause_seconds=0.0, start_seconds=0.0
    )
    weight, power = bid_weight(aim, 5000, 0.0, None, several_kinds=True)
    moved = Bid(1, weight, power, 1, 4, 1, scaling, several_kinds=True).utility(2)
    assert moved == pytest.approx(weight * (scaling.speedup(2) * (1 - BONUS_OF_KINDS)) ** power / power, rel=1e-6)


@pytest.mark.parametrize(
    ("left", "horizon"), [(10.0, SHORTEST), (600.0, 600.0), (1e6, LONGEST)], ids=["nearly over", "ten minutes", "days"]
)
def test_a_change_has_to_pay_within_what_is_left(left: float, horizon: float) -> None:
    """A training on one GPU pauses for 20 s; three more GPUs take 40 s to start."""
    scaling = replace(
        scaling_of(job(1, most=4, profile=profile(0.01)), Shape((4,)), 0), pause_seconds=20.0, start_seconds=40.0
    )
    bid = Bid(1, 2.0, 0.5, 1, 4, 1, scaling, left=left, several_kinds=True)
    kept = max(0.05, 1 - BONUS_OF_KINDS - (20 + 40 * 3 / 4) / horizon)
    assert bid.utility(4) == pytest.approx(2.0 * (scaling.speedup(4) * kept) ** 0.5 / 0.5)
    assert bid.utility(1) == pytest.approx(2.0 * scaling.speedup(1) ** 0.5 / 0.5)


def test_a_training_in_a_long_start_is_left_alone() -> None:
    scaling = scaling_of(job(1, most=4, profile=profile(0.01)), Shape((4,)), 0)
    bid = Bid(1, 1.0, 0.5, 1, 4, 2, scaling, restarting=True)
    assert goodput_division([bid], 4).shares == {1: 2}
    assert goodput_division([replace(bid, restarting=False)], 4).shares == {1: 4}


def test_seconds_left_are_at_the_present_speed() -> None:
    assert seconds_left(900.0, 50.0, 3.0, 4) == 300.0
    # Nobody knows what remains: a training is taken to be halfway through.
    assert seconds_left(None, 50.0, 3.0, 4) == 12.5
    assert seconds_left(900.0, 0.0, 1.0, 0) == LONGEST


def test_a_change_is_expected_to_last_as_long_as_those_before() -> None:
    assert lasts_for(1500.0, 900.0, 2) == 300.0
    assert lasts_for(200.0, 900.0, 2) == 200.0, "its end comes first"


def test_the_finish_time_ratio_compares_with_the_equal_part_from_the_beginning() -> None:
    """A training of 600 s on one GPU has done a third in 500 s; its equal part is twice as fast as one GPU."""
    assert finish_time_ratio(500.0, 400.0, 600.0, 2.0, 50.0) == pytest.approx((500 + 200) / (300 + 50))
    # One that always had its equal part is on time, whatever it has at the moment.
    assert finish_time_ratio(100.0, 400.0, 600.0, 2.0, 0.0) == pytest.approx(1.0)


def test_priority_weighs() -> None:
    _, found = planned([trains(1, 0.01, priority=1000), trains(2, 0.01, priority=9000)], slots(4, 4, 4))
    assert found[2] > found[1]


def test_without_preemption_nobody_shrinks() -> None:
    there = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-2": 1})
    _, found = planned([running(trains(1, 1.0)), trains(2)], there, preemption=False)
    assert found == {1: 7, 2: 1}


@pytest.mark.parametrize("seed", range(40))
def test_it_comes_to_rest_on_a_still_snapshot(seed: int) -> None:
    draw = Random(seed)
    sizes = [draw.choice([2, 4, 8]) for _ in range(draw.randint(1, 4))]
    jobs = [
        replace(
            trains(number, draw.choice([0.0005, 0.01, 0.1, 1.0]), priority=draw.choice([2500, 5000])),
            min_slots=draw.choice([1, 1, 2]),
            profile=draw.choice([None, profile(draw.choice([0.001, 0.05]), remaining_steps=draw.choice([10.0, 1e5]))]),
        )
        for number in range(1, draw.randint(1, 7) + 1)
    ]
    aim: Aim = draw.choice(["soon", "even", "used"])
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(group("goodput", aim=aim),), slots=slots(*sizes)))
    for one in jobs:
        cluster.submit(one)
        cluster.settle()
    cluster.end(1)
    cluster.settle()
    for plan in cluster.plans:
        assert not any(line.preempt for line in plan.jobs)


def test_targets_stay_for_ten_seconds_while_nothing_happens() -> None:
    there = hold(slots(4, 4), {"h1:0": 1, "h2:0-3": 2})
    jobs = [replace(running(trains(1)), target=1), replace(running(trains(2)), target=4)]
    _, found = planned(jobs, there, shared_at=995.0)
    assert found == {1: 1, 2: 4}
    _, found = planned(jobs, there, shared_at=990.0)
    assert found == {1: 4, 2: 4}
    _, found = planned([*jobs, trains(3)], there, shared_at=999.0)
    assert found[3] >= 1


def test_no_training_of_a_study_stops_for_gpus_that_another_of_it_gets_beyond_its_need() -> None:
    """T3 has 3 GPUs by its fair share, and the study 1. T3 makes little of a third one: T2 stopped, and T1 got its GPU.
    The targets hold, too."""
    there = hold(slots(4), {"h1:0": 1, "h1:1": 2, "h1:2-3": 3})
    of_study = [replace(running(trains(number, 0.0001)), bundle=1) for number in (1, 2)]
    jobs = [*of_study, running(trains(3, 0.1, priority=10_000))]
    _, found = planned(jobs, there, aim="soon")
    assert found == {1: 1, 2: 1, 3: 2}
    before = [replace(one, target=found[one.id]) for one in jobs]
    assert planned(before, there, aim="soon", shared_at=995.0)[1] == found


def test_news_is_decided_about_at_once_and_measures_after_ten_seconds() -> None:
    there = hold(slots(4, 4), {"h1:0": 1, "h2:0-3": 2})
    jobs = (running(trains(1)), running(trains(2)))
    first = Snapshot(at=100.0, groups=(group("goodput"), group("fifo", name="other")), slots=there, jobs=jobs)
    seen, state = hold_targets(first, None)
    assert seen == first
    worked = replace(first, at=105.0, jobs=tuple(replace(one, gpu_seconds=9.0) for one in jobs))
    seen, state = hold_targets(worked, state)
    assert [one.shared_at for one in seen.groups] == [100.0, None]
    for news in (
        replace(worked, at=110.0),
        replace(worked, at=99.0),
        replace(worked, jobs=(*worked.jobs, trains(3))),
        replace(worked, jobs=worked.jobs[:1]),
        replace(worked, slots=there[:-1]),
        replace(worked, groups=(group("goodput", aim="even"), worked.groups[1])),
        replace(worked, jobs=(replace(worked.jobs[0], max_slots=2), worked.jobs[1])),
        replace(worked, jobs=(replace(worked.jobs[0], profile=profile(largest_ranks=2)), worked.jobs[1])),
        replace(worked, jobs=(replace(worked.jobs[0], state="PENDING"), worked.jobs[1])),
        replace(worked, jobs=(replace(worked.jobs[0], profile=None), worked.jobs[1])),
    ):
        assert hold_targets(news, state)[0] == news
    unmeasured = [
        replace(worked, jobs=(replace(worked.jobs[0], profile=profile(parameters={}, largest_ranks=most)),))
        for most in (1, 2)
    ]
    assert hold_targets(unmeasured[1], hold_targets(unmeasured[0], None)[1])[0] != unmeasured[1]
    other = replace(first, groups=(group("fifo"),))
    assert hold_targets(other, state) == (other, None)


def drawn_bids(draw: Random, capacity: int) -> list[Bid]:
    shape = Shape((4,) * (capacity // 4))
    bids = []
    for number in range(1, draw.randint(2, 6) + 1):
        known = profile(draw.choice([0.001, 0.01, 0.1]), bounds=Bounds(64, draw.choice([None, 1024])))
        known = replace(known, noise=NoiseScale(draw.choice([10.0, 1000.0]), 1.0))
        held = draw.choice([0, 1, 2, 4])
        scaling = scaling_of(job(number, most=capacity, profile=known), shape, held)
        weight, power = bid_weight(draw.choice(["soon", "even"]), draw.choice([1000, 5000]), draw.random() * 1e4, None)
        bids.append(Bid(number, weight, power, 1, scaling.most, held or None, scaling))
    return bids


def exact(bids: list[Bid], capacity: int) -> float:
    """The best value over all sizes that are offered: by dynamic programming, slot by slot."""
    table = [0.0] * (capacity + 1)
    for bid in bids:
        table = [
            max(
                (table[left - size] + bid.utility(size) for size in bid.sizes if size <= left),
                default=float("-inf"),
            )
            for left in range(capacity + 1)
        ]
    return table[capacity]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_missing_to_the_best_is_within_the_certified_gap(seed: int) -> None:
    draw = Random(seed)
    capacity = draw.choice([8, 16, 32])
    bids = drawn_bids(draw, capacity)
    division = goodput_division(bids, capacity)
    assert sum(division.shares.values()) <= capacity
    floors = sum(bid.utility(bid.floor) for bid in bids)
    # The gap is a part of what a division could at most add to the floors: value = (1 - gap) * bound.
    best_value = exact(bids, capacity)
    if division.gap == 0:
        assert division.value >= best_value - 1e-6 * abs(best_value)
    else:
        assert floors + (division.value - floors) / (1 - division.gap) >= best_value - 1e-6 * abs(best_value)


def test_a_hull_that_fits_has_no_gap() -> None:
    bids = drawn_bids(Random(1), 8)
    assert goodput_division(bids, 1000).gap == 0


def test_small_worlds_are_divided_as_well_as_by_trying_everything() -> None:
    for seed in range(20):
        bids = drawn_bids(Random(seed), 8)[:3]
        division = goodput_division(bids, 8)
        tried = max(
            sum(bid.utility(size) for bid, size in zip(bids, chosen, strict=True))
            for chosen in product(*(bid.sizes for bid in bids))
            if sum(chosen) <= 8
        )
        assert exact(bids, 8) == pytest.approx(tried)
        assert division.value >= tried - 0.06 * abs(tried)


def test_a_profile_that_lies_gains_little() -> None:
    lying = profile(parameters={"": ThroughputParameters(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)}, bounds=Bounds(8))
    scaling = scaling_of(job(1, most=8, profile=lying), Shape((8,)), 1)
    assert all(speed <= 1.1 * count for count, speed in enumerate(scaling.speedups, start=1))


def test_the_figures_of_a_reason_can_be_recomputed() -> None:
    jobs = [running(trains(1, 0.03)), running(trains(2, 0.001)), running(trains(3, 0.001))]
    there = hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 2, "h2:0-3": 3})
    snapshot, found = planned(jobs, there)
    shape = Shape((4, 4))
    for line in schedule(snapshot).jobs:
        params = line.reason.params
        if params["message"] != "goodput":
            continue
        mine = scaling_of(jobs[line.job - 1], shape, 4)
        assert params["faster"] == gain_of(mine, line.target, params["next"])
        [other] = params["others"]
        theirs = scaling_of(jobs[other["job"] - 1], shape, 4)
        has = found[other["job"]]
        assert params["other_faster"] == gain_of(theirs, has - params["other_more"], has)


def gain_of(scaling: JobScaling, before: int, after: int) -> int:
    return round((scaling.speedup(after) / scaling.speedup(before) - 1) * 100)


def test_growing_and_shrinking_say_so() -> None:
    there = hold(slots(4, 4), {"h1:0-3": 1, "h2:0": 2})
    snapshot, _ = planned([running(trains(1, 1.0)), running(trains(2))], there)
    found_lines = lines(schedule(snapshot))
    assert found_lines[1].reason.code == PlanReason.SHRUNK_FOR_GOODPUT
    assert found_lines[2].reason.code == PlanReason.GREW_FOR_GOODPUT
    assert all(text_for(line) for line in found_lines.values())


def test_a_plan_predicts_the_batch() -> None:
    view = job(1, most=4, profile=profile(bounds=Bounds(64, 1024), noise=NoiseScale(1e4, 1.0)))
    snapshot, _ = planned([view], slots(4))
    batch = lines(schedule(snapshot))[1].batch
    assert batch is not None
    assert 64 < batch.batch <= 1024
    assert batch.goodput > 0
    assert lines(schedule(replace(snapshot, jobs=(job(1),))))[1].batch is None


def test_the_plan_names_the_gap_of_each_group() -> None:
    snapshot, _ = planned([trains(1)], slots(2))
    [line] = schedule(snapshot).groups
    assert (line.group, line.gap) == ("g", 0)
    other = replace(snapshot, groups=(group("fairshare"),))
    assert schedule(other).groups == ()


@pytest.mark.parametrize("seed", range(20))
def test_at_most_one_has_parts_of_several_hosts(seed: int) -> None:
    draw = Random(seed)
    hosts = [4] * draw.randint(2, 5)
    jobs = [
        trains(
            number,
            draw.choice([0.0005, 0.01, 0.1]),
            most=draw.choice([3, 7, 16, 64]),
            priority=draw.choice([2500, 5000]),
        )
        for number in range(1, draw.randint(2, 6) + 1)
    ]
    snapshot, found = planned(jobs, slots(*hosts), draw.choice(["soon", "even", "used"]))
    assert sum(count > 4 and count % 4 != 0 for count in found.values()) <= 1
    on_several = [{ref.host for ref in line.slots} for line in schedule(snapshot).jobs]
    on_several = [there for there in on_several if len(there) > 1]
    assert sum(map(len, on_several)) == len(set().union(*on_several))

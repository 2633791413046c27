"""Fair share in which GPUs count by their kind."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from scheduling.plan import PlanReason
from scheduling.policies.speedups import Shape
from scheduling.policies.weighted_share import weighted_scalings
from scheduling.schedule import schedule
from scheduling.snapshot import JobView, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, of_kinds, running, targets, text_for
from tests.scheduling.explain.test_reasons import check_reasons

#: One A100 counts as much as four T4.
WEIGHTS = (("A100", 4.0), ("T4", 1.0))
BOTH = of_kinds((8, "T4"), (8, "A100"))
SHAPE = Shape((8,) * 500, "A100")


def settled(there: tuple[SlotView, ...], *jobs: JobView, **terms: object) -> SimulatedCluster:
    """A cluster in which the jobs came one after the other, each once all was at rest."""
    terms = {"gpu_weights": WEIGHTS, **terms}
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(group("fairshare", **terms),), slots=there))
    for one in jobs:
        cluster.submit(one)
        cluster.settle()
    return cluster


def counts(cluster: SimulatedCluster) -> dict[int, float]:
    """Job -> what its GPUs count."""
    [rules] = cluster.snapshot.groups
    found = Counter[int]()
    for slot in cluster.snapshot.slots:
        if slot.held_by is not None:
            found[slot.held_by] += rules.weight_of(slot.device)  # type: ignore[assignment]
    return dict(found)


def test_eight_slow_gpus_are_not_the_share_of_eight_fast_ones() -> None:
    cluster = settled(BOTH, *(job(number, most=16) for number in (1, 2, 3)))
    assert counts(cluster) == {1: 16.0, 2: 16.0, 3: 8.0}
    without = settled(BOTH, *(job(number, most=16) for number in (1, 2)), gpu_weights=())
    assert targets(without.plans[-1]) == {1: 8, 2: 8}


def test_shares_follow_priorities() -> None:
    cluster = settled(of_kinds((8, "A100"), (4, "T4")), job(1, 7500, most=16), job(2, 2500, most=16))
    assert counts(cluster) == {1: 24.0, 2: 8.0}


def test_a_model_that_is_not_named_counts_one() -> None:
    cluster = settled(of_kinds((8, "T4"), (8, "L4")), *(job(number, most=16) for number in (1, 2)))
    assert counts(cluster) == {1: 8.0, 2: 8.0}


def test_weights_do_not_matter_where_all_gpus_are_alike() -> None:
    cluster = settled(of_kinds((8, "A100"), (8, "A100")), *(job(number, most=16) for number in (1, 2)))
    assert targets(cluster.plans[-1]) == {1: 8, 2: 8}
    assert lines(cluster.plans[-1])[1].kind is None
    assert text_for(lines(cluster.plans[-1])[1]) == "8 of 16 GPUs: T2 has the same priority (5000)."


def test_weights_matter_to_no_other_policy() -> None:
    jobs = tuple(job(number, most=8) for number in (1, 2))
    for policy in ("fifo", "priority"):
        plans = [
            schedule(Snapshot(0.0, (group(policy, gpu_weights=weights),), BOTH, jobs))  # type: ignore[arg-type]
            for weights in ((), WEIGHTS)
        ]
        assert plans[0] == plans[1]


def test_two_trainings_that_change_places_do_not_turn_back_half_way() -> None:
    """T1 goes from T4 to A100, and T2 the other way, one GPU at a time. While T1 had one of each, it seemed to keep T2
    from T4: both turned back, and began again."""
    there = of_kinds((2, "T4"), (3, "A100"))
    jobs = (
        running(job(1, least=2, most=3, priority=7000, target=3, target_kind="A100")),
        running(job(2, least=2, most=40, priority=3000, target=2, target_kind="T4")),
    )
    rules = group("fairshare", gpu_weights=(("A100", 1.2), ("T4", 1.0)))
    half_way = hold(there, {"h1:0": 1, "h2:2": 1, "h2:0-1": 2})
    plan = schedule(Snapshot(100.0, (rules,), half_way, jobs))
    assert {number: line.kind for number, line in lines(plan).items()} == {1: "A100", 2: "T4"}


def test_who_is_alone_uses_one_kind_and_its_sentence_says_so() -> None:
    cluster = settled(BOTH, job(1, most=16))
    line = lines(cluster.plans[-1])[1]
    assert text_for(line) == (
        "8 of 16 GPUs: it uses GPUs of one model, and shares them by weight with no other training; it runs on A100, "
        "each of which counts 4."
    )


def test_the_sentence_has_the_numbers_of_the_division() -> None:
    cluster = settled(BOTH, *(job(number, most=16) for number in (1, 2, 3, 4)))
    line = lines(cluster.plans[-1])[3]
    assert counts(cluster) == {1: 12.0, 2: 12.0, 3: 8.0, 4: 8.0}
    assert text_for(line) == (
        "8 of 16 GPUs: by the weights of GPU models, they count 8; of the 40 that 4 trainings share, its part by "
        "priority would be 10 (5000 of 20000 in all); it runs on T4, each of which counts 1."
    )


def test_who_moves_to_another_kind_says_so() -> None:
    cluster = settled(of_kinds((4, "T4"), (4, "A100")), *(job(number, least=3, most=4) for number in (1, 2)))
    [on_t4] = [number for number, counted in counts(cluster).items() if counted == 4.0]
    cluster.end(3 - on_t4)
    line = lines(cluster.cycle())[on_t4]
    assert line.reason.code == PlanReason.REBALANCED
    assert "it moves to A100, each of which counts 4" in text_for(line)
    cluster.settle()
    assert counts(cluster) == {on_t4: 16.0}


def test_nobody_moves_or_shrinks_without_preemption() -> None:
    there = hold(BOTH, {"h1:0-3": 1})
    jobs = (running(job(1, most=16)), job(2, most=16))
    snapshot = Snapshot(0.0, (group("fairshare", preemption=False, gpu_weights=WEIGHTS),), there, jobs)
    found = lines(schedule(snapshot))
    assert (found[1].kind, found[1].vacate) == ("T4", ())


def test_a_minimum_that_no_kind_has_room_for_gets_gpus_of_several() -> None:
    cluster = settled(BOTH, job(1, least=12, most=16))
    line = lines(cluster.plans[-1])[1]
    assert (line.kind, line.target) == (None, 12)
    assert "its minimum is 12" in text_for(line)


def test_a_kind_that_vanishes_leaves_the_weights_of_the_others() -> None:
    cluster = settled(BOTH, *(job(number, most=16) for number in (1, 2, 3)))
    cluster.drain("h2")
    cluster.settle()
    assert sum(targets(cluster.plans[-1]).values()) == 8
    assert {line.kind for line in cluster.plans[-1].jobs} == {None}  # one kind is left


def test_thirty_kinds() -> None:
    there = of_kinds(*((4, f"K{number:02}") for number in range(30)))
    weights = tuple((f"K{number:02}", 1.0 + number / 10) for number in range(30))
    cluster = settled(there, *(job(number, most=8) for number in range(1, 31)), gpu_weights=weights)
    assert min(targets(cluster.plans[-1]).values()) >= 1
    _check_fairness(cluster)
    check_reasons(cluster.snapshot, cluster.plans[-1])


def test_large_trainings_are_offered_few_sizes() -> None:
    scaling = weighted_scalings(job(1, least=3, most=5000), (SHAPE,), {}, group(gpu_weights=WEIGHTS))["A100"]
    assert scaling.sizes[:3] == (3, 4, 5)
    assert (scaling.sizes[-1], scaling.speedup(4000)) == (4000, 16000.0)
    assert len(scaling.sizes) < 300
    assert all(
        after - before <= max(1, before / 32) for before, after in zip(scaling.sizes, scaling.sizes[1:], strict=False)
    )


@pytest.mark.parametrize("seed", range(40))
def test_it_rests_starves_nobody_and_no_slot_would_be_fairer_elsewhere(seed: int) -> None:
    draw = Random(seed)
    kinds = ["T4", "A100", "H100"][: draw.randint(2, 3)]
    there = of_kinds(*((draw.choice([1, 2, 4, 8]), draw.choice(kinds)) for _ in range(draw.randint(2, 5))))
    rules = group("fairshare", gpu_weights=tuple((kind, draw.choice([0.5, 1.0, 2.0, 4.0])) for kind in kinds))
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(rules,), slots=there))
    for number in range(1, draw.randint(2, 8)):
        least = draw.choice([1, 1, 1, 2])
        one = job(number, draw.choice([2500, 5000, 5000, 10000]), least=least, most=draw.randint(least, 16))
        cluster.submit(one)
        for _ in range(draw.randint(0, 2)):
            plan = schedule(cluster.snapshot)
            check_plan(cluster.snapshot, plan)
            check_reasons(cluster.snapshot, plan)
            cluster.cycle()
    cluster.settle(20)
    _check_fairness(cluster)


def _check_fairness(cluster: SimulatedCluster) -> None:
    """Check that all minimums are met if they fit, and that of two trainings on one kind neither would be nearer to
    its part with a GPU of the other: the sum of priority^2 / counts would not fall by more than staying is worth."""
    [rules], plan = cluster.snapshot.groups, cluster.plans[-1]
    views = {view.id: view for view in cluster.snapshot.jobs}
    waiting = [line.job for line in plan.jobs if not line.target]
    spare = len(cluster.snapshot.slots) - sum(views[line.job].min_slots for line in plan.jobs if line.target)
    assert all(views[number].min_slots > spare for number in waiting)
    for gives in plan.jobs:
        for takes in plan.jobs:
            if gives.kind is None or gives.kind != takes.kind or gives.job == takes.job:
                continue
            if gives.target > views[gives.job].min_slots and takes.target < views[takes.job].max_slots:
                now = _lack(views[gives.job], gives.target) + _lack(views[takes.job], takes.target)
                then = _lack(views[gives.job], gives.target - 1) + _lack(views[takes.job], takes.target + 1)
                assert then / 0.99 >= now - 1e-9, (gives.job, takes.job, rules.weight_of(gives.kind))


def _lack(view: JobView, slots: int) -> float:
    return (view.priority / 5000) ** 2 / slots


def test_two_trainings_of_a_study_count_as_one() -> None:
    of_study = (replace(job(number, most=16), bundle=1) for number in (1, 2))
    cluster = settled(of_kinds((8, "A100"), (1, "T4")), *of_study, job(3, most=16))
    found = counts(cluster)
    assert found[1] + found[2] == found[3] == 16.0


def test_no_training_of_a_study_stops_for_gpus_that_another_of_it_gets_beyond_its_need() -> None:
    """T3 has 3 of the 4 GPUs beside T4 by its fair share, and the study 1. T3 can use 2, all of one kind: T2 stopped,
    and T1 got its GPU."""
    of_study = (running(replace(job(number, most=2), bundle=1)) for number in (1, 2))
    others = (running(job(3, 10_000, least=2, most=40)), running(job(4, least=1, most=1, elastic=False)))
    there = hold(of_kinds((3, "A100"), (2, "T4")), {"h1:0": 1, "h1:1": 2, "h1:2": 4, "h2:0-1": 3})
    rules = group("fairshare", gpu_weights=(("T4", 4.0), ("A100", 1.0)))
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(rules,), slots=there, jobs=(*of_study, *others)))
    assert cluster.settle() == 0
    assert targets(cluster.plans[-1]) == {1: 1, 2: 1, 3: 2, 4: 1}

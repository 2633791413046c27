"""Several kinds of GPU under policy goodput: each training on the kind that is best for all together."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from tidepool.goodput.model import Bounds, ThroughputParameters

from scheduling.plan import PlanReason
from scheduling.policies.goodput_bids import BEHIND, Bid, bid_weight
from scheduling.policies.gpu_kinds import Offer, division_of_kinds
from scheduling.policies.kind_ratios import Ratios
from scheduling.policies.speedups import Shape, scalings_of
from scheduling.schedule import schedule
from scheduling.snapshot import Aim, JobView, KindRatio, ProfileView, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, of_kinds, running, text_for

#: Speed of a GPU as a multiple of the slowest.
SPEED = {"T4": 1.0, "A100": 4.0, "H100": 8.0}
#: Seconds of computing of a job that is equally fast on each kind, because it computes next to nothing.
IDLE = 1e-8


def speeds(kind: str, computes: float, sums: float) -> ThroughputParameters:
    """Return parameters for `computes` seconds per micro-batch on a T4, and sums of equal duration on each kind."""
    return ThroughputParameters(0.001, computes / SPEED[kind], sums, sums / 20, 2 * sums, sums / 20, 1.5)


def trains(
    number: int, computes: float = 0.002, sums: float = 0.001, *, on: str = "T4 A100 H100", most: int = 16
) -> JobView:
    """Measured on these kinds of GPU."""
    parameters = {kind: speeds(kind, computes, sums) for kind in on.split()}
    known = ProfileView(bounds=Bounds(512), parameters=parameters, largest_ranks=64) if on else None
    return job(number, most=most, profile=known)


def kinds_of(cluster: SimulatedCluster, number: int) -> set[str]:
    return {slot.device for slot in cluster.snapshot.slots if slot.held_by == number}


def settled(there: tuple[SlotView, ...], *jobs: JobView, **terms: object) -> SimulatedCluster:
    """A cluster in which the jobs came one after the other, each once all was at rest."""
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(group("goodput", aim="even", **terms),), slots=there))
    for one in jobs:
        cluster.submit(one)
        cluster.settle()
    return cluster


def test_who_makes_more_of_the_faster_kind_gets_it() -> None:
    cluster = settled(of_kinds((4, "T4"), (4, "A100")), trains(2, 0.02), trains(1, IDLE))
    assert kinds_of(cluster, 2) == {"A100"}
    assert kinds_of(cluster, 1) == {"T4"}


def test_a_training_moves_live_once_a_better_kind_is_free() -> None:
    two = (replace(trains(number), min_slots=3, max_slots=4) for number in (1, 2))
    cluster = settled(of_kinds((4, "T4"), (4, "A100")), *two)
    [on_a100] = [number for number in (1, 2) if kinds_of(cluster, number) == {"A100"}]
    other = 3 - on_a100
    assert kinds_of(cluster, other) == {"T4"}
    cluster.end(on_a100)
    cluster.settle()
    assert kinds_of(cluster, other) == {"A100"}
    moved = [lines(plan)[other].reason.code for plan in cluster.plans if other in lines(plan)]
    assert PlanReason.MOVED_FOR_GOODPUT in moved
    assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)


@pytest.mark.parametrize(("changes", "kind"), [(0, "A100"), (9, "T4")])
def test_who_has_changed_often_stays_where_a_change_takes_long(changes: int, kind: str) -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1})
    view = running(trains(1, 0.02, most=4))
    assert view.profile is not None
    slow = replace(view, changes=changes, profile=replace(view.profile, pause_seconds=100.0, remaining_steps=1e7))
    cluster = SimulatedCluster(Snapshot(at=1000.0, groups=(group("goodput"),), slots=there, jobs=(slow,)))
    cluster.settle()
    assert kinds_of(cluster, 1) == {kind}


def test_two_change_places_though_every_gpu_is_taken() -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 2, "h2:0-3": 1})
    jobs = (running(replace(trains(1, IDLE), min_slots=4)), running(trains(2, 0.02)))
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(group("goodput", aim="soon"),), slots=there, jobs=jobs))
    cluster.settle()
    assert (kinds_of(cluster, 1), kinds_of(cluster, 2)) == ({"T4"}, {"A100"})
    assert len(cluster.held(2)) == 4


def test_the_sentence_compares_with_another_kind() -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1})
    view = running(trains(1, 0.02, 0.001, on="T4 A100"))
    snapshot = Snapshot(at=0.0, groups=(group("goodput", aim="even"),), slots=there, jobs=(view,))
    line = lines(schedule(snapshot))[1]
    shapes = (Shape((4,), "A100"), Shape((4,), "T4"))
    scalings = scalings_of(view, shapes, {"T4": 4})
    faster = round((scalings["A100"].speedup(4) / scalings["T4"].speedup(4) - 1) * 100)
    assert line.reason.code == PlanReason.MOVED_FOR_GOODPUT
    assert line.kind == "A100"
    assert (line.reason.params["kind_faster"], line.reason.params["kind_assumed"]) == (faster, False)
    assert f"it moves to A100, where it is {faster} % faster than on as many T4" in text_for(line)


def test_a_profile_that_lies_of_one_kind_gains_little() -> None:
    shapes = (Shape((4,), "T4"), Shape((4,), "A100"))
    ratios = Ratios([KindRatio("T4", "A100", 0.5, 3)])
    lying = trains(1)
    assert lying.profile is not None
    parameters = lying.profile.parameters | {"A100": ThroughputParameters(1e-9, 1e-9, 1e-9, 0.0, 1e-9, 0.0, 1.0)}
    lying = replace(lying, profile=replace(lying.profile, parameters=parameters))
    assert scalings_of(lying, shapes, {}, ratios)["A100"].speedup(1) == 8.0


def test_what_remains_is_the_same_whatever_it_was_measured_on() -> None:
    shapes = (Shape((4,), "T4"), Shape((4,), "A100"))
    ratios = Ratios([KindRatio("A100", "T4", 3.0, 2)])
    view = trains(1, on="A100")
    assert view.profile is not None
    view = replace(view, profile=replace(view.profile, remaining_steps=1000.0))
    found = {kind: one.remaining_seconds for kind, one in scalings_of(view, shapes, {}, ratios).items()}
    assert found["T4"] == found["A100"]
    at_one = scalings_of(view, (Shape((4,), "A100"),), {})["A100"].remaining_seconds
    assert at_one is not None
    assert found["T4"] == pytest.approx(3 * at_one)


def test_a_minimum_that_fits_on_no_kind_gets_some_of_several() -> None:
    view = replace(trains(1, most=6), min_slots=6)
    cluster = settled(of_kinds((4, "T4"), (4, "A100")), view)
    assert len(cluster.held(1)) == 6
    assert lines(cluster.plans[-1])[1].kind is None


def test_who_waits_starts_on_another_kind_rather_than_not_at_all() -> None:
    """2 shall have the only A100 of 3, which is vacating it; until then a T4 does."""
    there = hold(of_kinds((2, "T4"), (1, "A100")), {"h1:0": 1, "h2:0": 99})
    jobs = (running(replace(trains(1), max_slots=1)), replace(trains(2, 0.02), max_slots=1))
    snapshot = Snapshot(at=0.0, groups=(group("goodput", aim="even"),), slots=there, jobs=jobs)
    line = lines(schedule(snapshot))[2]
    assert line.kind == "A100"
    assert [ref.host for ref in line.claim] == ["h1"]


def test_without_preemption_nobody_changes_its_kind() -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-1": 1})
    snapshot = Snapshot(
        at=0.0, groups=(group("goodput", aim="even", preemption=False),), slots=there, jobs=(running(trains(1)),)
    )
    line = lines(schedule(snapshot))[1]
    assert (line.kind, line.vacate, len(line.slots)) == ("T4", (), 4)


def test_a_quota_leaves_the_choice_of_kinds() -> None:
    there = of_kinds((4, "T4"), (4, "A100"))
    cluster = settled(there, trains(1, 0.02), quota=2, borrows=False)
    assert (kinds_of(cluster, 1), len(cluster.held(1))) == ({"A100"}, 2)


def test_groups_that_share_slots_each_choose_of_what_the_other_leaves() -> None:
    there = of_kinds((4, "T4"), (4, "A100"))
    groups = (group("goodput", aim="even"), group("goodput", name="other", aim="even"))
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=groups, slots=there))
    cluster.submit(trains(1, 0.02, most=4))
    cluster.settle()
    cluster.submit(replace(trains(2, 0.02, most=4), group="other"))
    cluster.settle()
    assert [(kinds_of(cluster, one), len(cluster.held(one))) for one in (1, 2)] == [({"A100"}, 4), ({"T4"}, 4)]
    cluster.end(1)
    cluster.settle()
    assert (kinds_of(cluster, 2), len(cluster.held(2))) == ({"A100"}, 4)


def test_nobody_counts_on_what_a_job_of_fixed_size_of_another_group_holds() -> None:
    there = hold(of_kinds((4, "T4"), (4, "T4"), (4, "H100")), {"h1:0-3": 2, "h3:0-3": 1})
    fixed = running(job(1, least=4, most=4, elastic=False))
    jobs = (fixed, running(replace(trains(2, 0.02, most=4), group="other")))
    groups = (group("goodput", aim="even"), group("goodput", name="other", aim="even"))
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=groups, slots=there, jobs=jobs))
    cluster.settle()
    assert not any(line.vacate for plan in cluster.plans for line in plan.jobs)
    assert lines(cluster.plans[-1])[2].kind == "T4"


def test_nobody_counts_on_what_is_held_from_elsewhere() -> None:
    """A host came to this resource group while a job of another one runs there."""
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1, "h2:0-3": 9})
    stranger = running(job(9, least=4, most=4, elastic=False, group="b"))
    groups = (group("goodput", aim="even"), group("fifo", name="b", rg="elsewhere"))
    jobs = (running(trains(1, 0.02, most=4)), stranger)
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=groups, slots=there, jobs=jobs))
    cluster.settle()
    assert not any(line.vacate for plan in cluster.plans for line in plan.jobs)


def test_nobody_counts_on_what_a_job_on_several_kinds_holds() -> None:
    there = hold(of_kinds((8, "T4"), (4, "A100")), {"h1:0-5": 1, "h2:0-3": 1, "h1:6-7": 2})
    jobs = (running(replace(trains(1, most=10), min_slots=10)), running(trains(2, 0.02)))
    snapshot = Snapshot(at=0.0, groups=(group("goodput", aim="even"),), slots=there, jobs=jobs)
    found = lines(schedule(snapshot))
    assert found[1].kind is None
    assert (found[2].kind, found[2].target, found[2].vacate) == ("T4", 2, ())


def test_groups_on_other_hosts_have_nothing_to_do_with_each_other_though_their_gpus_are_alike() -> None:
    other = tuple(replace(slot, resource_groups=("r2",)) for slot in of_kinds((1, "A100"), (1, "A100"), (4, "T4"))[2:])
    there = (*of_kinds((4, "T4"), (4, "A100")), *other)
    groups = (group("goodput", aim="even"), group("fifo", name="h", rg="r2"))
    jobs = (trains(1, most=4), job(2, most=3, group="h"))
    found = lines(schedule(Snapshot(at=0.0, groups=groups, slots=there, jobs=jobs)))
    assert found[1].reason.params["capacity"] == 8


def test_who_waits_for_a_kind_keeps_what_nobody_else_waits_for() -> None:
    """2 holds the fast GPUs to its end, and a minute later 1 has them."""
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1, "h2:0-3": 99})
    jobs = (running(trains(1, 0.02, most=4)),)
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=(group("goodput", aim="even"),), slots=there, jobs=jobs))
    line = lines(cluster.cycle())[1]
    assert (line.kind, len(line.slots), line.vacate) == ("A100", 4, ())
    cluster.settle()
    assert (kinds_of(cluster, 1), len(cluster.held(1))) == ({"A100"}, 4)


def test_targets_are_kept_on_their_kind_while_nothing_happens() -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1})
    view = replace(running(trains(1, 0.02)), target=4, target_kind="T4")
    kept = Snapshot(at=1000.0, groups=(group("goodput", aim="even", shared_at=995.0),), slots=there, jobs=(view,))
    assert lines(schedule(kept))[1].kind == "T4"
    anew = replace(kept, groups=(group("goodput", aim="even", shared_at=990.0),))
    assert lines(schedule(anew))[1].kind == "A100"


@pytest.mark.parametrize("seed", range(60))
def test_it_comes_to_rest_on_a_still_snapshot(seed: int) -> None:
    draw = Random(seed)
    kinds = list(SPEED)[: draw.randint(2, 3)]
    there = of_kinds(*((draw.choice([1, 2, 4, 8]), draw.choice(kinds)) for _ in range(draw.randint(2, 5))))
    groups = tuple(
        group(
            draw.choice(["goodput", "goodput", "fairshare"]) if number else "goodput",
            name="gab"[number],
            aim=draw.choice(["soon", "even", "used"]),
            quota=draw.choice([None, None, 2, 6]),
            preemption=draw.random() < 0.8,
        )
        for number in range(draw.choice([1, 1, 2, 3]))
    )
    cluster = SimulatedCluster(Snapshot(at=0.0, groups=groups, slots=there))
    for number in range(1, draw.randint(1, 8) + 1):
        known = " ".join(draw.sample(kinds, draw.randint(0, len(kinds))))
        view = trains(number, draw.choice([0.0001, 0.002, 0.02]), draw.choice([0.0005, 0.01, 0.3]), on=known)
        is_elastic, least = draw.random() < 0.85, draw.choice([1, 1, 1, 2, 3])
        most = draw.randint(least, 16) if is_elastic else least
        cluster.submit(
            replace(view, group=draw.choice(groups).name, min_slots=least, max_slots=most, elastic=is_elastic)
        )
        for _ in range(draw.randint(0, 2)):
            check_plan(cluster.snapshot, schedule(cluster.snapshot))
            cluster.cycle()
    cluster.settle()
    cluster.end(1)
    cluster.settle()


def test_who_is_late_weighs_more_and_the_sentence_says_how_much() -> None:
    """Both have the same work left, and hold two GPUs each; 1 was submitted long before the other."""
    there = hold(of_kinds((8, "T4"), (4, "A100")), {"h1:0-1": 1, "h1:2-3": 2})
    left, at = 5000.0, 40_000.0
    jobs = tuple(
        running(
            replace(one, submitted_at=submitted, profile=replace(one.profile, remaining_steps=left, done_steps=left))
        )
        for one, submitted in ((trains(1), 0.0), (trains(2), at))
        if one.profile is not None
    )
    snapshot = Snapshot(at=at, groups=(group("goodput", aim="soon"),), slots=there, jobs=jobs)
    found = lines(schedule(snapshot))
    shapes = (Shape((4, 4), "T4"), Shape((4,), "A100"))
    scalings = scalings_of(jobs[0], shapes, {})
    part = (8 * scalings["T4"].speedup(6) + 4 * scalings["A100"].speedup(6)) / 12
    one_gpu = scalings["T4"].remaining_seconds
    assert one_gpu is not None
    rho = (at + one_gpu / part) / (2 * one_gpu / part)
    assert rho > BEHIND
    params = found[1].reason.params
    assert (params["finish_time_ratio"], params["late_weight"]) == (round(rho, 1), round(rho / BEHIND, 1))
    assert f"it takes {rho:.1f} times as long as with an equal part of all GPUs" in text_for(found[1])
    assert "finish_time_ratio" not in found[2].reason.params
    even = replace(snapshot, groups=(group("goodput", aim="even"),))
    assert not any("finish_time_ratio" in line.reason.params for line in schedule(even).jobs)


@pytest.mark.parametrize("aim", ["soon", "used"])
def test_a_bitwise_training_may_be_late_on_its_only_kind(aim: Aim) -> None:
    """It has no speeds on other kinds, and no cycle was planned any more."""
    one = trains(1)
    assert one.profile is not None
    late = replace(
        one, one_kind=True, began_on="A100", profile=replace(one.profile, remaining_steps=1e4, done_steps=1e4)
    )
    snapshot = Snapshot(
        at=40_000.0,
        groups=(group("goodput", aim=aim),),
        slots=hold(of_kinds((8, "T4"), (4, "A100")), {"h2:0": 1}),
        jobs=(running(late), trains(2)),
    )
    found = lines(schedule(snapshot))
    check_plan(snapshot, schedule(snapshot))
    assert found[1].kind == "A100"


def test_the_late_one_gets_what_is_faster() -> None:
    """Two equal trainings and one A100: the late one has it, whichever holds it now."""
    there = hold(of_kinds((1, "T4"), (1, "A100")), {"h1:0": 1, "h2:0": 2})
    jobs = []
    for one, submitted in ((trains(1, 0.02, most=1), 0.0), (trains(2, 0.02, most=1), 90_000.0)):
        assert one.profile is not None
        profile = replace(one.profile, remaining_steps=1000.0, done_steps=1000.0)
        jobs.append(running(replace(one, submitted_at=submitted, profile=profile)))
    snapshot = Snapshot(at=90_000.0, groups=(group("goodput", aim="used"),), slots=there, jobs=tuple(jobs))
    assert {job: line.kind for job, line in lines(schedule(snapshot)).items()} == {1: "A100", 2: "T4"}
    both = tuple(replace(one, submitted_at=90_000.0) for one in jobs)
    assert {job: line.kind for job, line in lines(schedule(replace(snapshot, jobs=both))).items()} == {
        1: "T4",
        2: "A100",
    }


# --- the division alone -----------------------------------------------------------------------------------------------


def drawn(draw: Random) -> tuple[list[Offer], dict[str, int]]:
    rooms = {kind: draw.choice([4, 8]) for kind in list(SPEED)[: draw.randint(2, 3)]}
    shapes = [Shape((4,) * (room // 4), kind) for kind, room in rooms.items()]
    views = [
        trains(number, draw.choice([0.0001, 0.002, 0.02]), draw.choice([0.001, 0.01, 0.1]), most=8)
        for number in range(1, draw.randint(2, 4) + 1)
    ]
    offers = []
    for view in views:
        held = {draw.choice(list(rooms)): draw.choice([1, 2])} if draw.random() < 0.5 else {}
        weight, power = bid_weight(draw.choice(["soon", "even"]), draw.choice([1000, 5000]), 100.0, None)
        bids = {
            kind: Bid(view.id, weight, power, 1, scaling.most, held.get(kind, 0) if held else None, scaling, kind)
            for kind, scaling in scalings_of(view, shapes, held).items()
        }
        offers.append(Offer(bids, bids[next(iter(rooms))], held))
    return offers, rooms


def best_of_all(offers: list[Offer], rooms: Mapping[str, int]) -> float:
    """The best value over all kinds and sizes that are offered, by trying each."""
    options = [[(kind, bid, size) for kind, bid in offer.bids.items() for size in bid.sizes] for offer in offers]
    best = float("-inf")
    for chosen in product(*options):
        if all(sum(size for kind, _, size in chosen if kind == one) <= room for one, room in rooms.items()):
            best = max(best, sum(bid.utility(size) for _, bid, size in chosen))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_what_is_missing_to_the_best_is_within_the_certified_gap(seed: int) -> None:
    offers, rooms = drawn(Random(seed))
    division = division_of_kinds(offers, rooms, sum(rooms.values()))
    for kind, room in rooms.items():
        assert sum(division.shares[job] for job, on in division.kinds.items() if on == kind) <= room
    best = best_of_all(offers, rooms)
    floors = sum(offer.bids[division.kinds[offer.id]].utility(1) for offer in offers)
    bound = floors + (division.value - floors) / (1 - division.gap) if division.gap < 1 else float("inf")
    assert bound >= best - 1e-6 * abs(best)
    assert division.value >= best - 0.05 * (best - floors), "utilities of both signs may add up to next to nothing"


def test_no_more_than_the_capacity_is_given() -> None:
    for seed in range(20):
        offers, rooms = drawn(Random(seed))
        division = division_of_kinds(offers, rooms, 5)
        assert sum(division.shares.values()) <= 5


def test_floors_that_do_not_fit_are_given_without_a_gap() -> None:
    for seed in range(20):
        offers, rooms = drawn(Random(seed))
        division = division_of_kinds(offers, dict.fromkeys(rooms, 0), 0)
        assert division.shares == {offer.id: 1 for offer in offers}
        assert 0 <= division.gap <= 1


def test_a_kind_that_nobody_competes_for_costs_nothing() -> None:
    offers, rooms = drawn(Random(1))
    division = division_of_kinds(offers[:1], rooms, sum(rooms.values()))
    assert division.prices == dict.fromkeys(rooms, 0.0)
    assert division.gap == 0

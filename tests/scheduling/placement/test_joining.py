"""A training on more hosts than it needs moves its parts together, on pools of several kinds of GPU."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tidepool.goodput.curve import best
from tidepool.goodput.model import Size

from scheduling.plan import PlanReason
from scheduling.preview import compare, with_changes
from scheduling.schedule import schedule
from scheduling.snapshot import JobView, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, of_kinds, running, text_for
from tests.scheduling.explain.test_reasons import check_reasons
from tests.scheduling.policies.test_gpu_kinds import trains

#: Two hosts of a kind, and one of another that is of no use here.
THERE = of_kinds((4, "A100"), (4, "A100"), (1, "T4"))


def four(number: int = 1, sums: float = 0.3, **fields: Any) -> JobView:
    """A training that keeps four GPUs of a kind, and sums twice as long over several hosts as within one."""
    view = trains(number, 0.02, sums, on="A100", most=4)
    return running(replace(view, min_slots=4, **fields))


def snapshot(there: tuple[SlotView, ...], *jobs: JobView, **terms: Any) -> Snapshot:
    return Snapshot(at=0.0, groups=(group("goodput", aim="even", **terms),), slots=there, jobs=jobs)


def test_it_moves_to_one_host_and_the_sentence_has_the_gain_by_its_own_fit() -> None:
    view = four()
    line = lines(schedule(snapshot(hold(THERE, {"h1:0-1": 1, "h2:0-1": 1}), view)))[1]
    assert view.profile is not None
    speeds = [
        best(view.profile.parameters["A100"], view.profile.bounds, view.profile.noise, Size(hosts, 4)).goodput
        for hosts in (2, 1)
    ]
    gain = round((speeds[1] / speeds[0] - 1) * 100)
    assert gain > 1
    assert line.reason.code == PlanReason.REBALANCED
    assert (line.target, len(line.claim), len(line.vacate)) == (4, 2, 2)
    assert len({ref.host for ref in line.slots}) == 1
    assert f"it moves from 2 hosts to 1 host, where it is {gain} % faster" in text_for(line)


def test_it_stays_where_the_move_costs_more_than_it_gains() -> None:
    """Work of a minute is left, and a move takes half of it."""
    there = hold(THERE, {"h1:0-1": 1, "h2:0-1": 1})
    view = replace(four(), submitted_at=-7200.0)
    assert view.profile is not None
    slow = replace(view, profile=replace(view.profile, pause_seconds=30.0, remaining_steps=1.0))
    assert not lines(schedule(snapshot(there, slow)))[1].claim
    long = replace(view, profile=replace(view.profile, pause_seconds=30.0, remaining_steps=1e9))
    assert lines(schedule(snapshot(there, long)))[1].claim


def test_it_stays_where_sums_take_no_time() -> None:
    there = hold(THERE, {"h1:0-1": 1, "h2:0-1": 1})
    assert not lines(schedule(snapshot(there, four(sums=1e-9))))[1].claim


@pytest.mark.parametrize(
    "fields", [{"state": "STARTING"}, {"profile": None}], ids=["its ranks are not ready", "nobody knows its speed"]
)
def test_it_stays(fields: dict[str, Any]) -> None:
    there = hold(THERE, {"h1:0-1": 1, "h2:0-1": 1})
    assert not lines(schedule(snapshot(there, replace(four(), **fields))))[1].vacate


def test_nothing_moves_without_preemption_or_on_one_kind() -> None:
    held = {"h1:0-1": 1, "h2:0-1": 1}
    assert not lines(schedule(snapshot(hold(THERE, held), four(), preemption=False)))[1].claim
    assert not lines(schedule(snapshot(hold(THERE[:8], held), four())))[1].claim


def test_one_move_a_cycle() -> None:
    there = of_kinds((4, "A100"), (4, "A100"), (4, "A100"), (4, "A100"), (1, "T4"))
    cluster = SimulatedCluster(
        snapshot(hold(there, {"h1:0-1": 1, "h2:0-1": 1, "h3:0-1": 2, "h4:0-1": 2}), four(1), four(2))
    )
    assert [bool(line.claim) for line in cluster.cycle().jobs] == [True, False]
    assert [bool(line.claim) for line in cluster.cycle().jobs] == [False, True]
    cluster.settle()
    assert [len({ref.host for ref in cluster.held(number)}) for number in (1, 2)] == [1, 1]


def test_nobody_moves_onto_slots_while_another_training_waits_for_some() -> None:
    """2 needs four GPUs at once, and three are coming: what is free is kept for it."""
    there = hold(of_kinds((4, "A100"), (4, "A100"), (3, "A100"), (1, "T4")), {"h1:0-1": 1, "h2:0-1": 1, "h3:0-2": 99})
    waits = job(2, least=6, most=6, elastic=False)
    assert not lines(schedule(snapshot(there, four(), waits)))[1].claim


def test_a_preview_says_that_a_shrinking_neighbour_lets_it_move() -> None:
    """2 keeps the rest of both hosts; with fewer GPUs it leaves room."""
    there = hold(THERE, {"h1:0-1": 1, "h2:0-1": 1, "h1:2-3": 2, "h2:2-3": 2})
    now = snapshot(there, four(1), four(2))
    assert not any(line.claim for line in schedule(now).jobs)
    after = with_changes(now, 2, min_slots=2, max_slots=2)
    assert [(change.job, change.before, change.after) for change in compare(now, after).changes] == [(2, 4, 2)]
    cluster = SimulatedCluster(after)
    cluster.settle()
    assert len({ref.host for ref in cluster.held(1)}) == 1
    assert any("it moves from 2 hosts to 1 host" in text_for(line) for plan in cluster.plans for line in plan.jobs)


@pytest.mark.parametrize("seed", range(30))
def test_scattered_clusters_come_to_rest(seed: int) -> None:
    draw = Random(seed)
    kinds = ["T4", "A100"]
    there = of_kinds(*((draw.choice([2, 4]), draw.choice(kinds)) for _ in range(draw.randint(3, 7))))
    slots = list(there)
    jobs: list[JobView] = []
    for number in range(1, draw.randint(2, 6)):
        kind = draw.choice(kinds)
        free = [place for place, slot in enumerate(slots) if slot.held_by is None and slot.device == kind]
        count = min(len(free), draw.randint(1, 4))
        for place in draw.sample(free, count):
            slots[place] = replace(slots[place], held_by=number)
        view = trains(number, 0.02, draw.choice([0.0005, 0.01, 0.3]), on=draw.choice(["T4 A100", "A100"]))
        jobs.append(running(view) if count else view)
    cluster = SimulatedCluster(snapshot(tuple(slots), *jobs))
    for _ in range(20):
        plan = schedule(cluster.snapshot)
        check_plan(cluster.snapshot, plan)
        check_reasons(cluster.snapshot, plan)
        cluster.cycle()
    cluster.settle(2)

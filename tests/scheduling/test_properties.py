"""Properties of the plan of every snapshot."""

import random
from dataclasses import replace
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.plan import Plan, PlanReason
from scheduling.policies.demand import Demand, by_priority
from scheduling.policies.fair_share import fair_shares
from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster
from tests.scheduling.strategies import snapshots

Item = TypeVar("Item")
thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(snapshots())
def test_every_plan_is_sound(snapshot: Snapshot) -> None:
    check_plan(snapshot, schedule(snapshot))


@thorough
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(snapshot: Snapshot, shuffler: random.Random) -> None:
    def shuffled(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(shuffler.sample(items, len(items)))

    mixed = replace(
        snapshot, jobs=shuffled(snapshot.jobs), slots=shuffled(snapshot.slots), groups=shuffled(snapshot.groups)
    )
    assert schedule(mixed) == schedule(snapshot)


@thorough
@given(snapshots())
def test_applying_plans_comes_to_rest(snapshot: Snapshot) -> None:
    cluster = SimulatedCluster(snapshot)
    cluster.settle(limit=12)
    for line in cluster.cycle().jobs:
        assert not line.claim
        assert not line.vacate
        if line.slots:
            assert line.reason.code in {PlanReason.UNCHANGED, PlanReason.AT_ITS_KNEE, PlanReason.PROFILING}


@thorough
@given(snapshots())
def test_snapshot_and_plan_survive_json(snapshot: Snapshot) -> None:
    read = msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot)
    plan = schedule(snapshot)
    assert read == snapshot
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan == schedule(read)


@st.composite
def demands(draw: st.DrawFn) -> list[Demand]:
    result = []
    for number in range(1, draw(st.integers(1, 7)) + 1):
        least = draw(st.integers(1, 4))
        most = draw(st.integers(least, 12))
        result.append(Demand(number, draw(st.integers(1, 10000)), float(number), least, most, running=False))
    return result


@thorough
@given(demands(), st.integers(1, 30))
def test_whole_shares_are_the_exact_shares_rounded(asked: list[Demand], capacity: int) -> None:
    shares = fair_shares(by_priority(asked), capacity, preemption=True)
    served = [demand for demand in asked if demand.id in shares]
    total = min(capacity, sum(demand.max_slots for demand in served))
    assert sum(shares.values()) == (total if served else 0)
    exact = _by_bisection(served, total)
    fractions = {job: shares[job] - exact[job] for job in shares}
    assert all(abs(fraction) < 1 for fraction in fractions.values())
    raised = [exact[job] % 1 for job, fraction in fractions.items() if fraction > 1e-6]
    lowered = [exact[job] % 1 for job, fraction in fractions.items() if fraction < -1e-6]
    assert not raised or not lowered or min(raised) >= max(lowered) - 1e-6


def _by_bisection(served: list[Demand], total: int) -> dict[int, float]:
    """The formula itself, solved by halving the interval in which lambda lies."""

    def at(rate: float) -> dict[int, float]:
        return {d.id: min(max(rate * d.priority, d.min_slots), d.max_slots) for d in served}

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle).values()) < total else (low, middle)
    return at(high)

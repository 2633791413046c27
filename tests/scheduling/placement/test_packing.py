"""Jobs that start in the same cycle, on as few hosts as an integer program finds."""

import random
from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import group, hold, job, lines, running, slots
from tests.scheduling.test_corners import load

CASES = 60


def pairs(snapshot: Snapshot) -> tuple[int, list[int], list[int]]:
    """Return the hosts that the plan gives to jobs that start; what they get; what was free on each host."""
    starts = [line for line in lines(schedule(snapshot)).values() if line.claim]
    free: dict[str, int] = {}
    for slot in snapshot.slots:
        if slot.held_by is None:
            free[slot.ref.host] = free.get(slot.ref.host, 0) + 1
    used = sum(len({ref.host for ref in line.claim}) for line in starts)
    return used, [len(line.claim) for line in starts], list(free.values())


def fewest(wanted: Sequence[int], free: Sequence[int]) -> int:
    """x[j, h] slots of job j on host h, y[j, h] in {0, 1} if any: least sum of y."""
    jobs, hosts = len(wanted), len(free)
    count = jobs * hosts
    by_job = np.kron(np.eye(jobs), np.ones(hosts))
    by_host = np.kron(np.ones(jobs), np.eye(hosts))
    most = np.minimum.outer(wanted, free).ravel()
    nothing = np.zeros((jobs, count)), np.zeros((hosts, count))
    rules = [
        LinearConstraint(np.hstack([by_job, nothing[0]]), wanted, wanted),
        LinearConstraint(np.hstack([by_host, nothing[1]]), 0, free),
        LinearConstraint(np.hstack([np.eye(count), -np.diag(most)]), -np.inf, 0),
    ]
    bounds = Bounds(0, np.concatenate([most, np.ones(count)]))
    found = milp(
        np.r_[np.zeros(count), np.ones(count)], constraints=rules, bounds=bounds, integrality=np.ones(2 * count)
    )
    return round(found.fun)


def test_five_trainings_are_on_six_pairs_of_training_and_host() -> None:
    used, wanted, free = pairs(load("P1"))
    assert (sorted(wanted), sorted(free)) == ([2, 3, 3, 4, 8], [1, 3, 4, 5, 7])
    assert used == fewest(wanted, free) == 6


def test_small_cases_are_packed_as_well_as_can_be() -> None:
    for seed in range(CASES):
        dice = random.Random(seed)
        sizes = [dice.randint(1, 8) for _ in range(dice.randint(2, 6))]
        asked = [dice.randint(1, 8) for _ in range(dice.randint(2, 6))]
        views = tuple(job(n, least=size, most=size, elastic=False) for n, size in enumerate(asked, start=1))
        used, wanted, free = pairs(Snapshot(0.0, (group("fifo"),), slots(*sizes), views))
        assert not wanted or used == fewest(wanted, free), f"case {seed}: {wanted} on {free}"


def test_who_grows_takes_the_hosts_that_it_is_on_before_others_are_packed() -> None:
    held = hold(slots(4, 4, 2), {"h1:0-1": 1})
    jobs = (running(job(1, most=4)), job(2, least=4, most=4, elastic=False), job(3, least=2, most=2, elastic=False))
    plan = lines(schedule(Snapshot(0.0, (group("fifo"),), held, jobs)))
    assert {n: {ref.host for ref in plan[n].claim} for n in (1, 2, 3)} == {1: {"h1"}, 2: {"h2"}, 3: {"h3"}}


def test_many_are_packed_by_the_rule_of_thumb_within_a_tenth() -> None:
    """More than are tried out."""
    total, best = 0, 0
    for seed in range(2):
        dice = random.Random(seed)
        sizes = [dice.randint(1, 8) for _ in range(18)]
        views = tuple(job(n, least=size, most=size) for n, size in enumerate(dice.choices(range(1, 9), k=14), start=1))
        used, wanted, free = pairs(Snapshot(0.0, (group("fifo"),), slots(*sizes), views))
        total, best = total + used, best + fewest(wanted, free)
    assert total <= 1.1 * best

"""Nobody is stopped only to be moved: random histories against a linear program that knows nothing of the scheduler."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from scheduling.preview import without_jobs
from scheduling.snapshot import JobView, SlotRef, Snapshot
from tests.scheduling.checks import held
from tests.scheduling.cluster import SimulatedCluster, job, lines
from tests.scheduling.test_corners import CASES, load_path

HISTORIES = 40
TURNS = 6
SNAPSHOTS = [path for path in CASES if path.stem.startswith("C1")]


def test_an_elastic_training_moves_where_one_of_fixed_size_would_have_to_stop() -> None:
    """T5 ends, T1 grows onto slots that only its group can use: T6 can leave them, T4 is left alone."""
    [path] = [path for path in SNAPSHOTS if path.stem.endswith("3")]
    cluster = SimulatedCluster(load_path(path))
    before = cluster.held(4)
    cluster.end(5)
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(6)), cluster.held(4)) == (6, 3, before)
    assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_who_is_stopped_could_not_have_kept_its_slots(path: Path) -> None:
    snapshot = load_path(path)
    for seed in range(HISTORIES):
        for turn, (before, stopped) in enumerate(_history(snapshot, random.Random(seed))):
            for number in stopped:
                assert not _could_stay(before, number, stopped), f"history {seed}, turn {turn}: job {number}"


def _history(snapshot: Snapshot, dice: random.Random) -> Iterator[tuple[Snapshot, set[int]]]:
    """Yield each turn in which somebody is stopped: what was there, and who is stopped."""
    cluster = SimulatedCluster(snapshot)
    for turn in range(TURNS):
        if dice.random() < 0.5:
            cluster.submit(_arrival(100 + turn, cluster.snapshot, dice))
        elif cluster.snapshot.jobs:
            cluster.snapshot = without_jobs(cluster.snapshot, {dice.choice(cluster.snapshot.jobs).id})
        before = cluster.snapshot
        stopped = {number for number, line in lines(cluster.cycle()).items() if line.preempt}
        if stopped:
            yield before, stopped


def _arrival(number: int, snapshot: Snapshot, dice: random.Random) -> JobView:
    least, elastic = dice.choice([1, 1, 2, 3, 4]), dice.random() < 0.4
    most = dice.randint(least, 8) if elastic else least
    priority, name = dice.choice([1, 100, 5000, 10000]), dice.choice(snapshot.groups).name
    return job(number, priority, least=least, most=most, group=name, elastic=elastic, submitted_at=2000.0 + number)


def _could_stay(before: Snapshot, number: int, stopped: set[int]) -> bool:
    """Return whether all can have what they have at rest, while this job and all of fixed size keep their slots."""
    cluster = SimulatedCluster(before)
    cluster.settle()
    sizes = {one.id: len(cluster.held(one.id)) for one in before.jobs}
    stay = {one.id: held(before, one) for one in before.jobs if not one.elastic and one.id not in stopped}
    stay[number] = held(before, next(one for one in before.jobs if one.id == number))
    return 0 < len(stay[number]) <= sizes[number] and _fits(before, sizes, stay)


def _fits(snapshot: Snapshot, sizes: Mapping[int, int], stay: Mapping[int, set[SlotRef]]) -> bool:
    """Slots that the same resource groups offer are all the same; the linear program of a flow has whole solutions."""
    home = {group.name: group.resource_group for group in snapshot.groups}
    taken = set().union(*stay.values())
    offers = Counter(slot.resource_groups for slot in snapshot.slots if slot.claimable and slot.ref not in taken)
    needs = {one: sizes[one.id] - len(stay.get(one.id, ())) for one in snapshot.jobs}
    needs = {one: count for one, count in needs.items() if count > 0}
    ways = [(a, b) for a, one in enumerate(needs) for b, names in enumerate(offers) if home[one.group] in names]
    if not needs or not ways:
        return not needs
    table = np.zeros((len(needs) + len(offers), len(ways)))
    for column, (a, b) in enumerate(ways):
        table[a, column] = table[len(needs) + b, column] = 1
    found = linprog(-np.ones(len(ways)), A_ub=table, b_ub=[*needs.values(), *offers.values()], method="highs")
    return -found.fun > sum(needs.values()) - 1e-6

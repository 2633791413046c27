"""Random clusters turn by turn: what must hold holds in each, and a still cluster comes to rest.

python -m tests.scheduling.test_oracle [TURNS] [SEED]
"""

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from scheduling.snapshot import JobView, Snapshot
from tests.scheduling.cluster import group, hold, job, lines, of_kinds, running, slots
from tests.scheduling.oracle.clusters import PlayedCluster, random_cluster
from tests.scheduling.oracle.rules import check_rest, check_turn
from tests.scheduling.test_corners import load

TURNS = 30


def play(seed: int, turns: int = TURNS) -> None:
    """Play a cluster for so many turns; every fifth one waits until it rests."""
    cluster = random_cluster(seed)
    for turn in range(turns):
        for _ in range(cluster.dice.choice((1, 1, 2, cluster.most_jobs // 3))):
            cluster.happens()
        check_turn(*cluster.cycle(seconds=cluster.dice.choice((1.0, 1.0, 20.0))))
        if turn % 5 == 4:
            check_rest(cluster, seconds=cluster.dice.choice((0.0, 1.0, 4.0)))


@pytest.mark.parametrize("seed", range(10))
def test_what_must_hold_holds_in_every_turn(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("name", ["T1", "T2", "T4", "T5", "T6"])
@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_still_cluster_comes_to_rest(name: str, seconds: float) -> None:
    """Where a group could not use slots of the wrong kind, a job lost one and got it back again and again. (A job of T6
    runs on less than its minimum from the beginning.)"""
    cluster = PlayedCluster(load(name), random.Random(0), ("",), ((),))
    if name == "T6":
        check_rest(cluster, seconds, check=lambda *turn: None)
    else:
        check_rest(cluster, seconds)


def fixed(number: int, slots: int, **fields: Any) -> JobView:
    return job(number, least=slots, most=slots, elastic=False, **fields)


def test_a_reserve_keeps_nobody_from_its_own_quota_whoever_runs() -> None:
    """a keeps 1 of 3 GPUs, which it cannot use. T2 started on the other 2 and was stopped for T4, which needs all 3 of
    its group's quota. T4 did not start, because none of its group ran any more."""
    groups = (group(name="a", quota=1, lends=False), group("priority", name="c", quota=3), group(name="d", quota=2))
    jobs = (
        job(1, group="a", least=4),
        job(2, group="c", least=2, most=2),
        job(3, group="d", least=2),
        fixed(4, 3, group="c", priority=10000),
    )
    cluster = PlayedCluster(Snapshot(0.0, groups, slots(3), jobs), random.Random(0), ("",), ((),))
    check_rest(cluster, 1.0)
    assert [slot.held_by for slot in cluster.snapshot.slots] == [4, 4, 4]


def test_a_job_leaves_a_host_for_one_that_gets_all_its_slots_there() -> None:
    """T2 needs all of h1, and T1 is there. T2 was counted on both kinds, so T1 waited for a GPU that was to be T2's."""
    groups = (group("goodput", name="c", quota=1), group(name="d"))
    jobs = (running(job(1, group="c", most=1)), fixed(2, 8, group="c", one_host=True), job(3, group="d"))
    places = hold(of_kinds((8, "Hopper"), (4, "Turing"), (4, "Turing")), {"h1:1": 1})
    cluster = PlayedCluster(Snapshot(0.0, groups, places, jobs), random.Random(0), ("Hopper", "Turing"), ((),))
    check_rest(cluster, 1.0)
    assert {slot.held_by for slot in cluster.snapshot.slots if slot.ref.host == "h1"} == {2}


def test_a_job_that_shrinks_gives_the_kind_of_gpu_that_another_group_counts_on() -> None:
    """T2 holds one Hopper and two Ampere. T3 is due one of these, of its kind, and T2 kept one of each."""
    groups = (group(name="a"), group("goodput", name="b"), group(name="d"))
    jobs = (
        running(fixed(1, 3, group="d")),
        running(job(2, group="a", most=3)),
        running(job(3, group="b", most=2)),
    )
    places = hold(
        of_kinds((1, "Hopper"), (1, "Ampere"), (4, "Hopper"), (1, "Ampere")),
        {"h1:0": 2, "h2:0": 2, "h4:0": 2, "h3:0": 3, "h3:1-3": 1},
    )
    cluster = PlayedCluster(Snapshot(0.0, groups, places, jobs), random.Random(0), ("Hopper", "Ampere"), ((),))
    check_rest(cluster, 1.0)
    assert [slot.device for slot in cluster.snapshot.slots if slot.held_by == 3] == ["Hopper", "Hopper"]


def test_the_oracle_expects_nobody_before_a_job_that_no_host_is_large_enough_for() -> None:
    """T1 needs all of h1, where T6 stays. T4 is the first in line, and T5 would delay it."""
    jobs = (
        job(1, least=4, most=4, elastic=False, one_host=True),
        running(job(2, least=3)),
        running(job(3, most=1, elastic=False)),
        job(4, least=2),
        job(5, most=1, elastic=False),
        running(job(6, most=1, elastic=False)),
    )
    places = hold(slots(4, 2), {"h1:0-2": 2, "h1:3": 6, "h2:0": 3})
    check_rest(PlayedCluster(Snapshot(0.0, (group(),), places, jobs), random.Random(0), ("",), ((),)), 1.0)


def test_the_oracle_lets_a_job_wait_for_an_older_one_of_another_group() -> None:
    """T4 is reserved 3 of 4 GPUs. T1 is older: it starts on 2 of them once T2 has ended."""
    jobs = (
        job(1, group="a", least=2, most=2, elastic=False),
        running(job(2, group="a", least=2, most=2, elastic=False)),
        running(job(3, group="b", most=1, elastic=False)),
        job(4, group="b", least=3, most=3, elastic=False),
        job(5, group="b", most=1, elastic=False),
    )
    groups = (group("goodput", name="a"), group("goodput", name="b", preemption=False))
    there = Snapshot(1000.0, groups, hold(slots(4), {"h1:0-1": 2, "h1:2": 3}), jobs)
    cluster = PlayedCluster(there, random.Random(0), ("",), ((),))
    _, plan = replace(cluster).cycle(1.0)
    assert lines(plan)[5].reason.params["message"] == "held_back_for"
    check_rest(cluster, 1.0)


@pytest.mark.long
def test_what_must_hold_holds_in_ten_thousand_turns() -> None:
    for seed in range(10_000 // TURNS):
        play(seed)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    bad = Counter[str]()
    for seed in range(first, first + turns // TURNS):
        try:
            play(seed)
        except Exception as error:  # every one is counted, and named
            import traceback

            where = traceback.extract_tb(error.__traceback__)
            frames = [f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in where if "scheduling" in f.filename]
            bad[f"{' '.join(frames[-3:])} {type(error).__name__}"] += 1
            print(seed, " ".join(frames[-3:]), type(error).__name__, str(error)[:200].replace("\n", " "), flush=True)
    print(f"{turns} turns, {bad.total()} bad clusters: {dict(bad)}")


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main()

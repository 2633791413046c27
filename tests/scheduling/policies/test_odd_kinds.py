"""Kinds of GPU that come, go, or are many, under policy goodput: plans stay possible, rest, and say what is so."""

from dataclasses import replace

import pytest

from scheduling.schedule import schedule
from scheduling.snapshot import JobView, KindRatio, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, lines, of_kinds, text_for
from tests.scheduling.explain.test_reasons import check_reasons
from tests.scheduling.policies.test_gpu_kinds import kinds_of, trains


def played(cluster: SimulatedCluster, cycles: int = 20) -> None:
    """Play until nothing changes any more; every plan and sentence is checked."""
    for _ in range(cycles):
        plan = schedule(cluster.snapshot)
        check_plan(cluster.snapshot, plan)
        check_reasons(cluster.snapshot, plan)
        before = cluster.snapshot
        cluster.cycle()
        if cluster.snapshot == before:
            return
    raise AssertionError(f"not settled after {cycles} cycles")


def cluster_of(*hosts: tuple[int, str], ratios: tuple[KindRatio, ...] = (), aim: str = "soon") -> SimulatedCluster:
    return SimulatedCluster(Snapshot(0.0, (group("goodput", aim=aim),), of_kinds(*hosts), ratios=ratios))


def submitted(cluster: SimulatedCluster, *jobs: JobView) -> None:
    for one in jobs:
        cluster.submit(one)
        played(cluster)


def test_a_training_leaves_a_kind_that_vanishes_though_it_was_measured_there_alone() -> None:
    cluster = cluster_of((4, "T4"), (4, "A100"), (4, "H100"))
    submitted(cluster, trains(1, 0.02, on="A100", most=4), trains(2, 0.02, on="A100", most=4))
    left = next(number for number in (1, 2) if kinds_of(cluster, number) == {"A100"})
    cluster.drain("h2")
    played(cluster)
    assert kinds_of(cluster, left) <= {"T4", "H100"}
    line = lines(cluster.plans[-1])[left]
    assert line.reason.params["kind_source"] == "unknown"
    assert "(assumed, no training was measured on both)" in text_for(line)


def test_the_last_host_of_a_training_s_kind_may_leave_the_snapshot_at_once() -> None:
    cluster = cluster_of((4, "T4"), (4, "A100"))
    submitted(cluster, trains(1, 0.02, most=4))
    assert kinds_of(cluster, 1) == {"A100"}
    slots = tuple(slot for slot in cluster.snapshot.slots if slot.device == "T4")
    cluster.snapshot = replace(cluster.snapshot, slots=slots)
    cluster.change(1, state="PENDING")
    played(cluster)
    assert kinds_of(cluster, 1) == {"T4"}


@pytest.mark.parametrize("aim", ["soon", "even", "used"])
def test_thirty_kinds(aim: str) -> None:
    """Each is measured against the first alone; trainings were measured on that one, on the last one, or nowhere."""
    names = [f"K{number:02}" for number in range(30)]
    ratios = tuple(KindRatio(name, names[0], 1 + place / 10, 3) for place, name in enumerate(names) if place)
    cluster = cluster_of(*((4, name) for name in names), ratios=ratios, aim=aim)
    known = trains(0, 0.02, on="T4").profile
    assert known is not None
    for number in range(1, 13):
        on = {1: names[:1], 2: names[-1:]}.get(number % 3, [])
        profile = replace(known, parameters=dict.fromkeys(on, known.parameters["T4"])) if on else None
        submitted(cluster, replace(trains(number, most=16), profile=profile))
    assert all(cluster.held(number) for number in range(1, 13))


def test_changed_code_is_estimated_by_others_until_it_is_measured() -> None:
    ratios = (KindRatio("A100", "T4", 8.0, 9), KindRatio("A100", "T4", 0.5, 2, "former"))
    found = {}
    for code in ("former", "changed"):
        cluster = cluster_of((4, "T4"), (4, "A100"), ratios=ratios)
        submitted(cluster, replace(trains(1, 0.02, on="T4", most=4), code=code))
        params = lines(cluster.plans[-1])[1].reason.params
        found[code] = (kinds_of(cluster, 1), params["kind_source"], params["kind_trainings"])
    assert found == {"former": ({"T4"}, "code", 2), "changed": ({"A100"}, "others", 9)}

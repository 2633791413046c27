"""CPUs of a rank: near its GPU, and as many as its share in what Python tells scripts."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tidepool.rank_cpus import bound_words, cpus_in, cpus_near, list_words, own_cpus

from tests.runtime.process_tree import JobReconciler
from workers.executor.forkserver import Forkserver

TELLS = """
import json, multiprocessing, os, sys
def bound(pid):
    return len(os.sched_getaffinity(pid))
found = {
    "told": [os.cpu_count(), multiprocessing.cpu_count(), bound(0), bound(os.getpid())],
    "variable": os.environ.get("PYTHON_CPU_COUNT"),
    "parent": bound(os.getppid()),
}
if "moves" in sys.argv:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(os.getppid()))})
    found["moved"] = sorted(os.sched_getaffinity(0))
result = os.path.join(os.environ["RESULT_DIR"], "cpus")
with open(result + ".new", "w") as file:
    json.dump(found, file)
os.rename(result + ".new", result + ".json")
"""
ALL = sorted(os.sched_getaffinity(0))
Found = Callable[..., dict[str, Any]]


@pytest.fixture
def found(warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Found]:
    """Return what a rank finds that is started so."""
    jobs: list[JobReconciler] = []

    def start(**values: Any) -> dict[str, Any]:
        jobs.append(JobReconciler(warm_forkserver, tmp_path, TELLS, **values))
        jobs[-1].desired([0])
        answer: dict[str, Any] = jobs[-1].written("cpus.json")
        return answer

    yield start
    for job in jobs:
        job.close()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("", set()),
        ("0-", set()),
        ("all", set()),
        ("1,,2", set()),
    ],
)
def test_a_list_of_the_kernel_is_read(text: str, cpus: set[int]) -> None:
    assert cpus_in(text) == cpus
    assert cpus_in(list_words(cpus)) == cpus


def test_a_rank_of_several_gpus_has_the_cpus_near_any_if_all_are_known() -> None:
    assert cpus_near(["0-3", "8-9"]) == {0, 1, 2, 3, 8, 9}
    assert not cpus_near(["0-3", ""])
    assert not cpus_near([])


def test_slots_have_cpus_of_their_own_as_far_as_there_are_enough() -> None:
    assert [own_cpus(range(8), 3, slot) for slot in range(3)] == [{0, 1, 2}, {3, 4, 5}, {6, 7, 0}]
    assert own_cpus({4, 6}, 3, 5) == {4, 6}


def test_a_long_list_is_cut_short_at_a_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidepool.rank_cpus._affinity", lambda pid: set(range(0, 400, 2)))
    monkeypatch.setattr("os.sysconf", lambda name: 400)
    words = bound_words(16)
    assert words == "0,2,4,6,8,..."
    assert bound_words(10_000) == list_words(range(0, 400, 2))


def test_python_tells_a_script_as_many_cpus_as_its_share(found: Found) -> None:
    told = found(slot_cores=1.9)
    assert told["told"] == [1, 1, 1, 1]
    assert (told["variable"], told["parent"]) == ("1", len(ALL))


def test_cpus_that_were_asked_for_count_instead_of_the_share(found: Found) -> None:
    count = 2 * len(ALL)
    told = found(slot_cores=1.0, cpus_per_gpu=count)
    assert told["told"] == [count, count, len(ALL), len(ALL)], "no CPU is made up"


def test_a_training_may_have_python_tell_all_cpus_or_another_number(found: Found) -> None:
    told = found(slot_cores=1.0, environment={"PYTHON_CPU_COUNT": "default"})
    assert told["told"] == [os.cpu_count(), os.cpu_count(), len(ALL), len(ALL)]


def test_a_script_that_binds_itself_is_told_what_it_has(found: Found) -> None:
    assert found(slot_cores=1.0, arguments=["moves"])["moved"] == [ALL[-1]]


@pytest.mark.skipif(len(ALL) < 2, reason="one CPU")
def test_a_rank_is_bound_to_the_cpus_near_its_gpu(warm_forkserver: Forkserver, tmp_path: Path) -> None:
    near = (f"{ALL[0]}", f"{ALL[-1]},9999")
    job = JobReconciler(
        *(warm_forkserver, tmp_path, "import time\ntime.sleep(600)\n"),
        slots_per_gpu=1,
        gpus=("GPU-a", "GPU-b", "GPU-c"),
        near_cpus=near,
    )
    try:
        job.desired([0, 1, 2])
        ranks = job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING"] * 3)
        bound = {rank.slot: os.sched_getaffinity(rank.pid) for rank in ranks}
    finally:
        job.close()
    assert bound == {0: {ALL[0]}, 1: {ALL[-1]}, 2: {*ALL}}

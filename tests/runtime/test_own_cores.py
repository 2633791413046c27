"""Threads and workers of ranks follow their part of the host's cores."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tidepool
from tidepool.own_cores import threads_on

from tests.runtime.process_tree import JobReconciler
from workers.executor.forkserver import Forkserver

SHOW_CORES = """
import json, os
import tidepool, torch
found = {
    "variables": [os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")],
    "threads": torch.get_num_threads(),
    "cores": tidepool.cores(),
    "workers": tidepool.loader_workers(),
}
result = os.path.join(os.environ["RESULT_DIR"], "cores")
with open(result + ".new", "w") as file:
    json.dump(found, file)
os.rename(result + ".new", result + ".json")
"""
Found = Callable[..., dict[str, Any]]


@pytest.fixture
def found(warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Found]:
    """Return what a rank finds that is started so."""
    jobs: list[JobReconciler] = []

    def start(**values: Any) -> dict[str, Any]:
        jobs.append(JobReconciler(warm_forkserver, tmp_path, SHOW_CORES, **values))
        jobs[-1].desired([0])
        answer: dict[str, Any] = jobs[-1].written("cores.json")
        return answer

    yield start
    for job in jobs:
        job.close()


def test_a_rank_has_as_many_threads_as_its_slot_has_cores(found: Found) -> None:
    assert found(slot_cores=3.5) == {"variables": ["3"] * 3, "threads": 3, "cores": 3.5, "workers": 2}


def test_a_rank_of_a_small_share_has_one_thread_and_no_worker(found: Found) -> None:
    assert found(slot_cores=0.25) == {"variables": ["1"] * 3, "threads": 1, "cores": 0.25, "workers": 0}


def test_cores_that_were_asked_for_count_instead_of_the_share(found: Found) -> None:
    told = found(slot_cores=1.0, cpus_per_gpu=4)
    assert (told["threads"], told["cores"], told["workers"]) == (4, 4.0, 3)


def test_each_bit_counts_more_than_speed(found: Found) -> None:
    told = found(slot_cores=4.0, exactness="bitwise", virtual_ranks=4)
    assert (told["threads"], told["variables"], told["cores"]) == (1, ["1"] * 3, 4.0)


def test_an_operator_who_sets_the_number_of_threads_is_obeyed(found: Found) -> None:
    assert found(slot_cores=4.0, sets_threads=False)["threads"] == 1


def test_a_training_may_set_its_own_number(found: Found) -> None:
    told = found(slot_cores=4.0, environment={"OMP_NUM_THREADS": "2"})
    assert (told["threads"], told["variables"][0]) == (2, "2")


def test_off_the_cluster_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 5})
    assert (tidepool.cores(), tidepool.loader_workers()) == (4.0, 3)
    assert [threads_on(cores) for cores in (0.2, 1.9, 8.0)] == [1, 1, 8]

"""Stacks of ranks on request, by real shims and ranks: of those that run, hang, sleep in C code, or cannot answer."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tidepool.protocol import HostStacks, ProcessStacks, RankStacks, from_json
from tidepool.shim_slots import RankProcess
from tidepool.stacks import STACKS_SIGNAL, StackTaker, stacks_path

from tests.runtime.process_tree import JobReconciler
from tests.waiting import wait_until
from workers.executor.forkserver import Forkserver

Keep = Callable[[str], JobReconciler]

#: The main thread waits in C code for good, and holds the interpreter's lock: nothing written in Python could answer.
IN_C_CODE = """
import ctypes
def compute(lock):
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
print("ready", flush=True)
compute(ctypes.create_string_buffer(64))
"""

LOADING = """
import time
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        print("ready", flush=True)
        time.sleep(60)
for batch in DataLoader(Slow(), num_workers=2, batch_size=1):
    pass
"""

COMMAND = """
import os, sys
print("ready", flush=True)
os.execv(sys.executable, [sys.executable, "-c", "import time; print('other', flush=True); time.sleep(60)"])
"""


@pytest.fixture
def keep(warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Keep]:
    jobs: list[JobReconciler] = []

    def start(script: str) -> JobReconciler:
        jobs.append(JobReconciler(warm_forkserver, tmp_path, script))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def started(job: JobReconciler, slots: list[int], word: str = "ready") -> None:
    """Have ranks in these slots, and wait until each has printed the word."""
    job.desired(slots)
    ranks = job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING"] * len(slots))
    for rank in ranks:
        wait_until(lambda member_id=rank.member_id: word in job.log(member_id, "stdout"), f"{word} in the log")


def taken(job: JobReconciler, slots: list[int], number: int = 1) -> list[RankStacks]:
    """Request stacks, and return the answer once the host has written it."""
    job.desired(slots, stacks=number)
    path = Path(job.spec.launch.folder) / stacks_path(job.spec.host)
    wait_until(lambda: path.exists() and json.loads(path.read_text())["number"] == number, "the stacks")
    answer = from_json(HostStacks, json.loads(path.read_text()))
    assert answer.seconds < 2.5
    return answer.ranks


def test_a_rank_in_c_code_with_the_interpreters_lock_writes_where_it_is(keep: Keep) -> None:
    job = keep(IN_C_CODE)
    started(job, [0, 2])
    ranks = taken(job, [0, 2])
    assert [rank.slot for rank in ranks] == [0, 2]
    for rank in ranks:
        [process] = rank.processes
        assert process.state == "answered"
        assert 'train.py", line 5 in compute' in process.text
        assert process.text.endswith("\n")
    assert [rank.pid for rank in job.status.ranks] == [rank.processes[0].pid for rank in ranks]


@pytest.mark.long
def test_64_hanging_ranks_of_a_host_answer_within_two_seconds(keep: Keep) -> None:
    job = keep(IN_C_CODE)
    slots = list(range(64))
    started(job, slots)
    ranks = taken(job, slots)
    assert [rank.slot for rank in ranks] == slots
    assert {process.state for rank in ranks for process in rank.processes} == {"answered"}
    path = Path(job.spec.launch.folder) / stacks_path(job.spec.host)
    assert json.loads(path.read_text())["seconds"] < 2.0


def test_a_second_request_gets_new_stacks_alone(keep: Keep) -> None:
    job = keep(IN_C_CODE)
    started(job, [0])
    [first], [second] = taken(job, [0], 1), taken(job, [0], 2)
    assert second.processes[0].text.count("in compute") == first.processes[0].text.count("in compute") == 1


def test_workers_of_a_data_loader_answer_too(keep: Keep) -> None:
    job = keep(LOADING)
    started(job, [0])
    pids = {process.pid for process in job.processes()}
    assert len(pids) == 3
    wait_until(lambda: len(taken_again(job)) == 3, "workers that have lived for a second")
    rank, *workers = taken_again(job)
    assert (rank.state, {worker.state for worker in workers}) == ("answered", {"answered"})
    assert "dataloader.py" in rank.text
    assert all("in __getitem__" in worker.text for worker in workers)
    assert "in __getitem__" not in rank.text


def taken_again(job: JobReconciler) -> list[ProcessStacks]:
    path = Path(job.spec.launch.folder) / stacks_path(job.spec.host)
    number = json.loads(path.read_text())["number"] + 1 if path.exists() else 1
    [rank] = taken(job, [0], number)
    return rank.processes


def test_a_stopped_rank_and_another_program_are_told_apart_and_live_on(keep: Keep) -> None:
    job = keep(COMMAND)
    started(job, [0], "other")
    [rank] = taken(job, [0], 1)
    assert [process.state for process in rank.processes] == ["unable"]
    [pid] = [rank.pid for rank in job.status.ranks]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text(), "a stopped process")
    [rank] = taken(job, [0], 2)
    assert [process.state for process in rank.processes] == ["stopped"]
    os.kill(pid, signal.SIGCONT)
    assert not job.records("rank_exited")


def test_a_process_that_blocks_the_signal_in_all_its_threads_is_silent(tmp_path: Path) -> None:
    script = f"""
import pathlib, signal, sys, time
from tidepool.stacks import answer_with_stacks
signal.pthread_sigmask(signal.SIG_BLOCK, [{int(STACKS_SIGNAL)}])
answer_with_stacks(pathlib.Path({str(tmp_path)!r}))
print("ready", flush=True)
time.sleep(60)
"""
    (tmp_path / "journal").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        ours, theirs = socket.socketpair()
        with ours, theirs:
            rank = RankProcess("host-a.0.1", 0, (0,), process.pid, process.pid, time.time(), tmp_path, ours)
            taker = StackTaker(tmp_path, "host-a")
            taker.request(0, [])
            taker.request(1, [rank])
            wait_until(lambda: taker.turn() or taker.next_look_at is None, "the answer")
        answer = from_json(HostStacks, json.loads((tmp_path / stacks_path("host-a")).read_text()))
        assert [each.state for rank in answer.ranks for each in rank.processes] == ["silent"]
        process.kill()


def test_a_file_that_the_script_has_replaced_by_a_link_is_let_be(keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    replace = "import os, time\nplace = os.environ['LOG_DIR'] + '/stacks'\nos.remove(place)\n"
    job = keep(f"{replace}os.symlink('{tmp_path}/mine.txt', place)\nprint('ready', flush=True)\ntime.sleep(60)\n")
    started(job, [0])
    [rank] = taken(job, [0])
    assert [process.state for process in rank.processes] == ["unable"]
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_requests_from_before_the_shims_start_are_not_answered(keep: Keep) -> None:
    job = keep(IN_C_CODE)
    job.desired([0], stacks=5)
    job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING"])
    [rank] = taken(job, [0], 6)
    assert [process.state for process in rank.processes] == ["answered"]

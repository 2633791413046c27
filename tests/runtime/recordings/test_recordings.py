"""Flame graphs and traces on request, by real shims and ranks, also of those that are stopped or cannot answer."""

import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tidepool.protocol import FlameAnswer, RecordingKind, RecordingRequest, TraceAnswer, from_json
from tidepool.recordings.requests import ANSWER_FILES, TRACE_FILE

from tests.runtime.process_tree import JobReconciler
from tests.waiting import wait_until
from workers.executor.forkserver import Forkserver

Keep = Callable[[str], JobReconciler]

COMPUTING = """
print("ready", flush=True)
def inner():
    return sum(range(2000))
def outer():
    while True:
        inner()
outer()
"""

TRAINING = """
import time, torch
{before}
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("ready", flush=True)
while True:
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    {after}
    print("step", flush=True)
"""

WAITING = """
import threading, time
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def keep(warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Keep]:
    jobs: list[JobReconciler] = []

    def start(script: str) -> JobReconciler:
        jobs.append(JobReconciler(warm_forkserver, tmp_path, script))
        job = jobs[-1]
        job.desired([0])
        [rank] = job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING"])
        wait_until(lambda: "ready" in job.log(rank.member_id, "stdout"), "ready in the log")
        return job

    yield start
    for job in jobs:
        job.close()


def folder_of(job: JobReconciler) -> Path:
    [rank] = job.status.ranks
    return Path(job.spec.launch.folder) / "log" / f"{rank.member_id}.host-a"


def request(job: JobReconciler, kind: RecordingKind, number: int, amount: int, *, native: bool = False) -> None:
    [rank] = job.status.ranks
    job.desired([0], recording=RecordingRequest(number, kind, rank.member_id, amount, native))


def answered(job: JobReconciler, kind: RecordingKind, number: int) -> dict[str, object]:
    path = folder_of(job) / ANSWER_FILES[kind]
    wait_until(lambda: path.exists() and json.loads(path.read_text())["number"] == number, "the answer")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def flame(job: JobReconciler, number: int = 1, seconds: int = 1, *, native: bool = False) -> FlameAnswer:
    request(job, "flame", number, seconds, native=native)
    return from_json(FlameAnswer, answered(job, "flame", number))


def trace(job: JobReconciler, number: int = 1, steps: int = 3) -> TraceAnswer:
    request(job, "trace", number, steps)
    return from_json(TraceAnswer, answered(job, "trace", number))


def names_of(answer: FlameAnswer, stack: list[int]) -> list[str]:
    return [answer.functions[place].name for place in stack]


def test_a_flame_graph_says_in_which_functions_the_main_thread_is(keep: Keep) -> None:
    answer = flame(keep(COMPUTING))
    assert (answer.problem, answer.left_out) == ("", 0)
    assert answer.seconds > 0.9
    main, *others = answer.threads
    assert main.is_main
    assert not any(thread.is_main for thread in others)
    assert sum(main.counts) == answer.samples > 0
    for stack in main.stacks:
        names = names_of(answer, stack)
        assert names[len(names) - names[::-1].index("<module>")] == "outer"
    assert "recording" not in {thread.name for thread in answer.threads}
    assert "shim-watch" in {thread.name for thread in others}


def test_a_rank_that_waits_is_sampled_too(keep: Keep) -> None:
    answer = flame(keep(WAITING))
    [stack] = answer.threads[0].stacks
    assert names_of(answer, stack)[-1] == "Condition.wait"


def test_functions_of_c_are_recorded_by_py_spy(keep: Keep) -> None:
    job = keep(COMPUTING)
    answer = flame(job, native=True)
    assert (answer.problem, answer.detail, answer.left_out, answer.is_native) == ("", "", 0, True)
    main, *others = answer.threads
    assert main.is_main
    assert sum(main.counts) == answer.samples > 0
    for stack in main.stacks:
        assert {"<module>", "outer"} <= set(names_of(answer, stack))
        assert any(answer.functions[place].is_native for place in stack)
    assert {each.name: each.is_native for each in answer.functions}["outer"] is False
    assert "recording" not in {thread.name for thread in answer.threads}
    assert "shim-watch" in {thread.name for thread in others}
    assert flame(job, 2).is_native is False
    assert not [path.name for path in folder_of(job).glob("flame-*")]
    assert not job.records("rank_exited")


@pytest.mark.parametrize(
    ("py_spy", "problem", "detail"),
    [
        (None, "no_py_spy", ""),
        ("echo Error: Permission Denied: try sudo >&2; exit 1", "failed", "py-spy: Error: Permission Denied: try sudo"),
        ("exit 0", "failed", "py-spy has ended with 0"),
    ],
)
def test_no_functions_of_c_without_py_spy(
    keep: Keep, tmp_path: Path, py_spy: str | None, problem: str, detail: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if py_spy is not None:
        (folder / "py-spy").write_text(f"#!/bin/sh\n{py_spy}\n")
        (folder / "py-spy").chmod(0o755)
    lacking = f"import os, sys\nos.environ['PATH'] = {str(folder)!r}\nsys.executable = '/nowhere/python'\n"
    job = keep(lacking + WAITING)
    answer = flame(job, native=True)
    assert (answer.problem, answer.detail) == (problem, detail)
    assert flame(job, 2).problem == ""


def test_requests_from_before_the_shims_start_are_not_answered(keep: Keep) -> None:
    job = keep(WAITING)
    job.reconnect()
    assert flame(job, 5).number == 5
    request(job, "flame", 4, 1)
    assert flame(job, 6).number == 6


def test_one_recording_at_a_time(keep: Keep) -> None:
    job = keep(WAITING)
    request(job, "flame", 1, 5)
    assert trace(job, 2).problem == "busy"
    assert from_json(FlameAnswer, answered(job, "flame", 1)).problem == ""


def test_a_stopped_rank_is_named_and_lives_on(keep: Keep) -> None:
    job = keep(WAITING)
    [pid] = [rank.pid for rank in job.status.ranks]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text(), "a stopped process")
    assert flame(job, 1).problem == "stopped"
    os.kill(pid, signal.SIGCONT)
    assert flame(job, 2).problem == ""
    assert not job.records("rank_exited")


def test_a_rank_that_dies_while_it_is_traced_is_started_again(keep: Keep) -> None:
    job = keep(TRAINING.format(before="", after="time.sleep(0.2)"))
    [rank] = job.status.ranks
    request(job, "trace", 1, 20)
    before = job.log(rank.member_id, "stdout").count("step")
    wait_until(lambda: job.log(rank.member_id, "stdout").count("step") > before + 1, "steps that are traced")
    os.kill(rank.pid, signal.SIGKILL)
    [ended] = wait_until(lambda: job.records("rank_exited"), "the end of the rank")
    assert ended["signal"] == signal.SIGKILL
    job.until_ranks(lambda ranks: [each.state for each in ranks if each.member_id != rank.member_id] == ["RUNNING"])
    assert not (Path(job.spec.launch.folder) / "log" / f"{rank.member_id}.host-a" / ANSWER_FILES["trace"]).exists()


def test_a_trace_has_the_steps_and_the_longest_operators(keep: Keep) -> None:
    job = keep(TRAINING.format(before="", after="pass"))
    answer = trace(job)
    assert (answer.problem, answer.steps, answer.is_cut, answer.gpu_seconds) == ("", 3, False, None)
    assert 0 < answer.cpu_seconds <= answer.seconds
    assert 0 < len(answer.operators) <= 10
    assert "Optimizer.step#SGD.step" in {one.name for one in answer.operators}
    assert all(one.calls >= 1 and not one.is_on_gpu for one in answer.operators)
    content = (folder_of(job) / TRACE_FILE).read_bytes()
    assert len(content) == answer.file_bytes
    events = json.loads(gzip.decompress(content))["traceEvents"]
    assert sum(event.get("name") == "Optimizer.step#SGD.step" for event in events) == 3
    assert not list(folder_of(job).glob(".trace*"))
    assert trace(job, 2, steps=1).steps == 1
    assert not job.records("rank_exited")


def test_steps_that_take_too_long_are_cut_off(keep: Keep) -> None:
    limit = "import tidepool.recordings.trace as ours\nours._RECORDED_SECONDS = 0.5"
    answer = trace(
        keep(
            TRAINING.format(
                before=limit, after="ends = time.monotonic() + 3\n    while time.monotonic() < ends: torch.ones(1)"
            )
        )
    )
    assert (answer.problem, answer.is_cut) == ("", True)
    assert answer.steps < 3


def test_a_training_that_makes_no_step_has_no_trace(keep: Keep) -> None:
    limit = "import tidepool.recordings.trace as ours\nours._FIRST_STEP_SECONDS = 0.2\n"
    assert trace(keep(limit + "import torch\n" + WAITING)).problem == "no_steps"


def test_a_script_with_a_profiler_of_its_own_keeps_it(keep: Keep) -> None:
    own = "mine = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1000, warmup=1, active=1))"
    assert trace(keep(TRAINING.format(before=own, after="pass"))).problem == "profiled"


def test_no_object_of_the_script_is_touched_in_the_search_for_a_profiler(keep: Keep) -> None:
    touchy = """
class Touchy:
    @property
    def __class__(self):
        print("touched", flush=True)
        return object
touchy = Touchy()
"""
    job = keep(TRAINING.format(before=touchy, after="pass"))
    assert trace(job).problem == ""
    [member] = [rank.member_id for rank in job.status.ranks]
    assert "touched" not in job.log(member, "stdout")


def test_too_many_events_are_not_kept_and_the_training_goes_on(keep: Keep) -> None:
    limit = "import tidepool.recordings.trace as ours\nours._MOST_EVENTS = 5"
    job = keep(TRAINING.format(before=limit, after="pass"))
    assert trace(job).problem == "too_large"
    assert not (folder_of(job) / TRACE_FILE).exists()
    [member] = [rank.member_id for rank in job.status.ranks]
    steps = job.log(member, "stdout").count("step")
    wait_until(lambda: job.log(member, "stdout").count("step") > steps, "further steps")


def test_an_error_of_the_recording_is_told_and_the_training_goes_on(keep: Keep) -> None:
    broken = "import tidepool.recordings.flame as ours\nours._MOST_FRAMES = None\nours._MOST_SECONDS = ''\n"
    job = keep(broken + WAITING)
    answer = flame(job)
    assert (answer.problem, answer.detail.partition(":")[0]) == ("failed", "TypeError")
    assert not job.records("rank_exited")

"""Tests of the causes of ends, and of errors that come again: no process, no clock."""

import json
import signal
from pathlib import Path

import msgspec
import pytest
from tidepool.protocol import RankEnd, ShimCommand, ShimJoin
from tidepool.rank_exits import describe_end, error_key, error_words, oom_kills

from tests.runtime.coordination.test_membership import Story, member_id

ERROR = {"kind": "ValueError", "message": "bad shape", "traceback": "..."}
FAILED = RankEnd("a.0.1", 0, 1, None, True, ERROR)

ENDS = {
    "an exit code": (3, {}, True, "Exit"),
    "nothing wrong": (0, {}, False, None),
    "a crash": (-signal.SIGSEGV, {}, True, "SIGSEGV"),
    "an abort": (-signal.SIGABRT, {}, True, "SIGABRT"),
    "killed": (-signal.SIGKILL, {}, False, None),
    "terminated": (-signal.SIGTERM, {}, False, None),
    "killed for want of memory": (-signal.SIGKILL, {"oom_killed": True}, True, "OutOfMemory"),
    "killed, nobody knows what for": (-signal.SIGKILL, {"oom_killed": None}, False, "Killed"),
    "killed because it was not ready": (-signal.SIGABRT, {"late_after": 1800.0}, True, "LaunchTimeout"),
    "killed because the training stood still": (-signal.SIGABRT, {"fenced": ("Stalled", "no step")}, True, "Stalled"),
    "killed by the coordinator": (-signal.SIGKILL, {"fenced": ("Stuck", "silent"), "oom_killed": True}, False, "Stuck"),
}


WORKER_KILLED = "DataLoader worker (pid 12) is killed by signal: Killed. "


@pytest.mark.parametrize(
    "message",
    [
        WORKER_KILLED,
        "DataLoader worker (pid(s) 12) exited unexpectedly",
        "A process in the process pool was terminated abruptly while the future was running or pending.",
        "Command '['x']' died with <Signals.SIGKILL: 9>.",
    ],
)
def test_memory_is_named_where_a_process_of_the_script_was_killed_for_it(tmp_path: Path, message: str) -> None:
    (tmp_path / "error.json").write_text(json.dumps({**ERROR, "kind": "RuntimeError", "message": message}))
    starved = describe_end("a.0.1", 0, 1, tmp_path, oom_killed=True).error
    assert starved
    assert starved["kind"] == "OutOfMemory"
    assert message in starved["message"]
    other = describe_end("a.0.1", 0, 1, tmp_path, oom_killed=False).error
    assert other
    assert other["kind"] == "RuntimeError"


@pytest.mark.parametrize(
    ("message", "by_script"),
    [
        ("CUDA error: uncorrectable ECC error encountered", False),
        ("NVML: GPU is lost", False),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: device-side assert triggered", True),
    ],
)
def test_a_faulty_gpu_is_no_doing_of_the_script(tmp_path: Path, message: str, by_script: bool) -> None:
    (tmp_path / "error.json").write_text(json.dumps({**ERROR, "kind": "AcceleratorError", "message": message}))
    assert describe_end("a.0.1", 0, 1, tmp_path).by_script is by_script


def test_a_context_that_is_lost_by_a_death_is_no_doing_of_the_script(tmp_path: Path) -> None:
    message = "this rank's GPU takes no more work since another rank was killed"
    (tmp_path / "error.json").write_text(json.dumps({**ERROR, "kind": "ContextLost", "message": message}))
    assert not describe_end("a.0.1", 0, 1, tmp_path).by_script


@pytest.mark.parametrize("case", ENDS)
def test_whose_doing_an_end_was(case: str, tmp_path: Path) -> None:
    exit_code, facts, by_script, kind = ENDS[case]
    end = describe_end("a.0.1", 0, exit_code, tmp_path, **facts)
    assert (end.by_script, end.error and end.error["kind"]) == (by_script, kind)


def test_a_scripts_own_words_and_a_crashs_stacks_are_kept(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps(ERROR))
    fatal, other, current = (
        "Fatal Python error: Segmentation fault",
        "Thread 0x1 (...):\n  x",
        "Current thread 0x2 (...):\n  y",
    )
    below = '  File "<frozen runpy>", line 291 in run_path\n  File "rank_process.py", line 300 in _run_script'
    (tmp_path / "fatal").write_text(
        f"{fatal}\n\n{other}\n\n{current}\n{below}\n\nExtension modules: numpy (total: 1)\n"
    )
    assert describe_end("a.0.1", 0, 1, tmp_path).error == ERROR
    crashed = describe_end("a.0.1", 0, -signal.SIGSEGV, tmp_path).error
    assert crashed
    assert crashed["traceback"].split("\n\n") == [fatal, current, other], "the thread that crashed comes first"


@pytest.mark.parametrize(
    ("code", "said", "kind", "message"),
    [
        (2, "usage: x.py [-h]\nx.py: error: no argument --hiden\n", "UsageError", "x.py: error: no argument --hiden"),
        (2, "Usage: x.py [OPTIONS]\n\nError: No such option: -x\n", "UsageError", "Error: No such option: -x"),
        (2, "cannot open the data\n\n", "Exit", "cannot open the data"),
        (3, "10 %\r20 %\rdisk is full\r\n", "Exit", "disk is full"),
        (3, "", "Exit", "the process ended with code 3"),
        (3, "why\n[W1123 01:02:03.4 Socket.cpp:1] slow\ntidepool: saved\n", "Exit", "why"),
        (3, "2026-11-23 01:02:03,456 tidepool.shim INFO x\n[rank0]:[W1123 a", "Exit", "the process ended with code 3"),
        (1, "\x1b[31mno data\x1b[0m\n", "Exit", "no data"),
    ],
)  # fmt: skip
def test_a_script_that_ended_itself_is_quoted(tmp_path: Path, code: int, said: str, kind: str, message: str) -> None:
    (tmp_path / "stderr").write_text(said)
    error = describe_end("a.0.1", 0, code, tmp_path).error
    assert error is not None
    assert (error["kind"], error["message"], error_words(error)) == (kind, message, message)


def test_what_a_script_said_last_is_cut(tmp_path: Path) -> None:
    (tmp_path / "stderr").write_text("x" * 100_000)
    error = describe_end("a.0.1", 0, 1, tmp_path).error
    assert error is not None
    assert error["message"] == "x" * 500
    assert error_words(error) == "x" * 299 + "…"


@pytest.mark.parametrize("field", ["message", "traceback"])
def test_no_error_has_codes_of_terminals(tmp_path: Path, field: str) -> None:
    (tmp_path / "error.json").write_text(json.dumps({**ERROR, field: "load \x1b[1mfailed\x1b[0m"}))
    error = describe_end("a.0.1", 0, 1, tmp_path).error
    assert error is not None
    assert error[field] == "load failed"


WORKER = """Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
RuntimeError: unable to write to file </torch_1_2_3>: No space left on device (28)
"""


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("ValueError", "bad\n  shape", "ValueError: bad shape"),
        ("RuntimeError", WORKER, "RuntimeError: unable to write to file </torch_1_2_3>: No space left on device (28)"),
        (
            "RuntimeError",
            f"{WORKER}\nand again\n\n{WORKER}",
            "RuntimeError: unable to write to file </torch_1_2_3>: No",
        ),
        (
            "KeyError",
            "Traceback (most recent call last): is a key",
            "KeyError: Traceback (most recent call last): is a",
        ),
        ("KeyError", "y" * 2489, "KeyError: yyy"),
    ],
)
def test_a_sentence_has_the_cause_of_an_error_on_a_short_line(kind: str, message: str, words: str) -> None:
    said = error_words({"kind": kind, "message": message})
    assert said.startswith(words)
    assert len(said) <= 300


def test_the_signal_that_killed_a_loaders_worker_is_named() -> None:
    killed = "DataLoader worker (pid 12) is killed by signal: Bus error. "
    lost = "DataLoader worker (pid(s) 12) exited unexpectedly"
    error = {"kind": "RuntimeError", "message": lost, "traceback": f"RuntimeError: {killed}\n\nRuntimeError: {lost}\n"}
    assert error_words(error) == f"RuntimeError: {killed.strip()}"
    assert error_words({**error, "traceback": ""}) == f"RuntimeError: {lost}"


def test_numbers_and_addresses_do_not_make_another_error() -> None:
    one = {"kind": "OutOfMemoryError", "message": "tried to allocate 20.5 MiB at 0x7f12"}
    other = {"kind": "OutOfMemoryError", "message": "tried to allocate 21 MiB at 0x7faa"}
    assert error_key(one, 1, None) == error_key(other, 1, None)
    assert error_key(one, 1, None) != error_key({**one, "kind": "MemoryError"}, 1, None)
    assert error_key(None, 3, None) != error_key(None, 4, None)


def test_the_kernel_tells_how_often_memory_ran_out_here_or_on_the_machine() -> None:
    assert oom_kills("0::/no/such/group") is not None, "/proc/vmstat has the machine's"


# --- the coordinator's verdict ----------


def failing(*slots: int) -> Story:
    story = Story()
    story.train_on(*slots)
    return story


def fail(story: Story, slot: int, error: dict[str, str] = ERROR) -> None:
    """Close its connection, and then let its shim say why."""
    story.die(slot)
    tell(story, slot, error)


def tell(story: Story, slot: int, error: dict[str, str] = ERROR) -> None:
    living = [rank.member_id for rank in story.membership.ranks.values()]
    end = msgspec.structs.replace(FAILED, member_id=member_id(slot), slot=slot, error=error)
    story.note(story.membership.shim_joined(ShimJoin(1, 1, "a", living, [end]), story.now))


def go_on(story: Story, step: int) -> None:
    """The survivors recover, having completed `step` steps."""
    pending = story.membership.pending
    assert pending is not None
    for member in pending.plan.members:
        story.send("switched", member.slot, generation=pending.plan.generation, step=step)


def retries(story: Story) -> list[str]:
    return [action.member_id for action in story.actions if isinstance(action, ShimCommand) and action.kind == "retry"]


def alive(story: Story, slot: int, step: int) -> None:
    story.send("alive", slot, generation=story.membership.generation, step=step, operation=step)


def test_a_failed_ranks_slot_gets_another_one_once_the_step_is_made() -> None:
    story = failing(0, 1)
    fail(story, 1)
    go_on(story, 7)
    assert [record["step"] for record in story.records("rank_failed")] == [7]
    alive(story, 0, 7)
    assert retries(story) == []
    alive(story, 0, 8)
    assert retries(story) == [member_id(1)]
    alive(story, 0, 9)
    assert retries(story) == [member_id(1)], "once"


@pytest.mark.parametrize("told_first", [False, True])
def test_the_same_error_at_the_same_step_ends_the_attempt(told_first: bool) -> None:
    story = failing(0, 1, 2)
    fail(story, 1)
    go_on(story, 7)
    if told_first:
        tell(story, 2)
        story.die(2)
    else:
        fail(story, 2)
    assert not story.records("failed"), "the last one has not said yet how far it is"
    go_on(story, 7)
    [failed] = story.records("failed")
    assert (failed["member_id"], failed["step"], failed["error"]) == (member_id(2), 7, ERROR)
    assert story.records("lost")


def test_the_same_error_at_a_later_step_is_another_one() -> None:
    story = failing(0, 1, 2)
    fail(story, 1)
    go_on(story, 7)
    fail(story, 2)
    go_on(story, 8)
    assert not story.records("failed")
    assert len(story.records("rank_failed")) == 2


def test_another_error_at_the_same_step_is_another_one() -> None:
    story = failing(0, 1, 2)
    fail(story, 1)
    go_on(story, 7)
    fail(story, 2, {**ERROR, "message": "bad type"})
    go_on(story, 7)
    assert not story.records("failed")


def test_two_that_fail_together_are_one_attempt() -> None:
    story = failing(0, 1, 2)
    fail(story, 1)
    fail(story, 2)
    go_on(story, 7)
    assert len(story.records("rank_failed")) == 2
    assert not story.records("failed")
    alive(story, 0, 8)
    assert retries(story) == [member_id(1), member_id(2)]


def test_a_kill_is_no_error() -> None:
    story = failing(0, 1)
    story.die(1)
    go_on(story, 7)
    alive(story, 0, 8)
    assert not story.records("rank_failed")


def test_a_rank_that_fails_before_it_takes_part_gets_one_more_try() -> None:
    story = failing(0)
    tell(story, 1)
    alive(story, 0, 1)
    assert retries(story) == [member_id(1)]
    tell(story, 2)
    alive(story, 0, 2)
    assert retries(story) == [member_id(1)], "the same error again: its slot stays empty"
    assert len(story.records("rank_failed")) == 2
    assert not story.records("failed"), "the others train on"


def test_what_a_shim_says_again_is_no_second_time() -> None:
    story = failing(0, 1, 2)
    fail(story, 1)
    go_on(story, 7)
    tell(story, 1)
    assert len(story.records("rank_failed")) == 1


def test_the_next_coordinator_remembers() -> None:
    story = failing(0, 1)
    story.membership.failures.recall(msgspec.structs.replace(FAILED, member_id="a.5.1"), 1, 7, newcomer=False)
    fail(story, 1)
    go_on(story, 7)
    assert story.records("failed")

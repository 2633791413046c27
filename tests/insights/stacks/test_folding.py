"""Stacks in words: what ranks wait for, where they are, and equal ones folded."""

import pytest

from insights.stacks.folding import RankStack, folded, sentence_of
from insights.stacks.parsing import Frame, threads_of
from insights.stacks.places import doing_of

CODE = "/results/alice/batchworkdir/7/_submitted_code/digits"
PACKAGES = "/venv/lib/python3.11/site-packages"
DUMP = f"""Thread 0x00007f6234c006c0 (most recent call first):
  File "/app/runtime/tidepool/rank_process.py", line 254 in _end_with_shim
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f6234d00740 (most recent call first):
  File "{CODE}/dataset.py", line 41 in load
  File "{CODE}/train.py", line 30 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "/app/runtime/tidepool/rank_process.py", line 330 in _run_script
"""


def frame(file: str, line: int, function: str) -> Frame:
    return Frame(file, line, function)


TRAIN = frame(f"{CODE}/train.py", 30, "main")
ALL_REDUCE = (
    frame(f"{PACKAGES}/torch/distributed/distributed_c10d.py", 2810, "all_reduce"),
    frame(f"{PACKAGES}/torch/distributed/c10d_logger.py", 81, "wrapper"),
    TRAIN,
)
SUM = (
    frame("/app/runtime/tidepool/torch/comm/process_group.py", 175, "_wait"),
    frame("/app/runtime/tidepool/torch/comm/process_group.py", 160, "wait"),
    frame("/app/runtime/tidepool/torch/comm/reducer.py", 270, "_complete"),
    frame("/app/runtime/tidepool/torch/comm/reducer.py", 240, "finish"),
    TRAIN,
)
WORKERS = (frame(f"{PACKAGES}/torch/utils/data/dataloader.py", 1275, "_try_get_data"), TRAIN)
OWN = (frame(f"{CODE}/dataset.py", 41, "load"), TRAIN)
LIBRARY = (frame(f"{PACKAGES}/PIL/Image.py", 9, "open"), frame("/app/runtime/tidepool/torch/data.py", 8, "read"), TRAIN)


def test_frames_below_the_script_are_left_out_and_the_main_thread_comes_last() -> None:
    other, main = threads_of(DUMP)
    assert [each.function for each in main] == ["load", "<module>"]
    assert other[0].function == "_end_with_shim"


@pytest.mark.parametrize(
    "text", ["", "no stack\n" * 1000, "Thread 0x1 (most recent call first):\n  <no Python frame>\n"]
)
def test_any_text_is_taken(text: str) -> None:
    assert sum(map(len, threads_of(text))) == 0


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (ALL_REDUCE, "waits for the other ranks in all_reduce in train.py line 30, in main"),
        (SUM, "waits for the other ranks in the sum of the gradients in train.py line 30, in main"),
        (WORKERS, "waits for workers of its data loader in train.py line 30, in main"),
        (OWN, "is in dataset.py line 41, in load"),
        (LIBRARY, "is in train.py line 30, in main"),
        ((), "is in no function of Python"),
    ],
)
def test_what_a_stack_says(frames: tuple[Frame, ...], words: str) -> None:
    assert doing_of(frames, CODE).words(plural=False, code=CODE) == words


def test_equal_stacks_are_folded_and_said_in_one_sentence() -> None:
    ranks = [RankStack(str(number), "answered", ALL_REDUCE) for number in (0, 1, 3)]
    groups = folded([*ranks, RankStack("2", "answered", OWN)], CODE)
    assert [group.ranks for group in groups] == [["0", "1", "3"], ["2"]]
    assert groups[1].stack == ["dataset.py line 41, in load", "train.py line 30, in main"]
    assert sentence_of(groups) == (
        "3 ranks (0, 1, 3) wait for the other ranks in all_reduce in train.py line 30, in main; "
        "rank 2 is in dataset.py line 41, in load."
    )


def test_ranks_that_cannot_answer_are_named_with_the_cause() -> None:
    groups = folded([RankStack("0", "stopped", None), RankStack("1", "stopped", None)], CODE)
    assert sentence_of(groups) == "All 2 ranks are stopped, by SIGSTOP or a debugger."
    assert sentence_of(folded([RankStack("h.0.1", "silent", None)], CODE)) == "Rank h.0.1 has not answered within 2 s."
    assert sentence_of([]) == "No rank has answered."


def test_many_different_stacks_are_cut_short() -> None:
    ranks = [RankStack(str(line), "answered", (frame(f"{CODE}/a.py", line, "f"),)) for line in range(1, 9)]
    assert sentence_of(folded(ranks, CODE)).endswith("; 4 more do other things.")

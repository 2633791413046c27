"""Records of what libraries have saved: which checkpoints are complete, where they are, and what is half written."""

import os
from pathlib import Path

import pytest
from tidepool.own_checkpoints.progress_file import SPEED, ProgressFile
from tidepool.own_checkpoints.saves import SaveJournal, complete_checkpoints, remove_unfinished, saves_in

from workers.executor.curves.library_file import point_of_moment


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for number in (1, 2):
        (tmp_path / f"attempt-{number}" / "journal").mkdir(parents=True)
    return tmp_path


def saved(journal: SaveJournal, path: Path, step: int, *, ends: bool = True) -> None:
    path.mkdir(parents=True, exist_ok=True)
    journal.begins("transformers", 1, step, path, last_file="trainer_state.json")
    if ends:
        journal.ends("transformers", 1, step, path)


def names(job: Path) -> list[str]:
    return [checkpoint.path.name for checkpoint in complete_checkpoints(job)]


def test_the_newest_is_the_last_that_was_recorded_whatever_its_step(job: Path) -> None:
    first, second = (SaveJournal(job / f"attempt-{number}", 0, 1) for number in (1, 2))
    saved(first, job / "out" / "checkpoint-10", 10)
    saved(first, job / "out" / "checkpoint-20", 20)
    saved(second, job / "out" / "checkpoint-10", 10)
    assert names(job) == ["checkpoint-20", "checkpoint-10"]
    assert [each.step for each in complete_checkpoints(job, before=2)] == [10, 20]


def test_one_that_the_library_has_removed_does_not_count(job: Path) -> None:
    journal = SaveJournal(job / "attempt-1", 0, 1)
    saved(journal, job / "out" / "checkpoint-10", 10)
    saved(journal, job / "out" / "checkpoint-20", 20)
    (job / "out" / "checkpoint-10").rmdir()
    assert names(job) == ["checkpoint-20"]


def test_a_folder_of_checkpoints_that_has_moved_on_is_followed(job: Path) -> None:
    saved(SaveJournal(job / "attempt-1", 0, 1), job / "attempt-1/checkpoint/checkpoint-10", 10)
    (job / "attempt-1/checkpoint").rename(job / "attempt-2/checkpoint")
    for before in (None, 2):
        [checkpoint] = complete_checkpoints(job, before=before)
        assert checkpoint.path == job / "attempt-2/checkpoint/checkpoint-10"


@pytest.mark.timeout(60)
def test_a_pipe_or_a_device_in_place_of_the_last_file_keeps_nobody_waiting(job: Path) -> None:
    """The control plane looks at these files, too."""
    folder = job / "attempt-1" / "checkpoint" / "checkpoint-10"
    saved(SaveJournal(job / "attempt-1", 0, 1), folder, 10, ends=False)
    os.mkfifo(folder / "trainer_state.json")
    assert names(job) == []
    (folder / "trainer_state.json").unlink()
    (folder / "trainer_state.json").symlink_to("/dev/zero")
    assert names(job) == []


def test_what_is_half_written_is_removed_where_it_has_moved_to(job: Path) -> None:
    saved(SaveJournal(job / "attempt-1", 0, 1), job / "attempt-1/checkpoint/checkpoint-10", 10, ends=False)
    (job / "attempt-1/checkpoint").rename(job / "attempt-2/checkpoint")
    assert remove_unfinished(job, before=2) == [job / "attempt-2/checkpoint/checkpoint-10"]


def test_it_is_complete_once_all_ranks_have_written_their_part(job: Path) -> None:
    path = job / "out" / "checkpoint-10"
    saved(SaveJournal(job / "attempt-1", 0, 2), path, 10)
    assert names(job) == []
    saved(SaveJournal(job / "attempt-1", 1, 2), path, 10, ends=False)
    assert names(job) == []
    saved(SaveJournal(job / "attempt-1", 1, 2), path, 10)
    assert names(job) == ["checkpoint-10"]


def test_one_whose_last_file_is_written_is_complete_though_the_library_still_removes_others(job: Path) -> None:
    path = job / "out" / "checkpoint-10"
    saved(SaveJournal(job / "attempt-1", 0, 1), path, 10, ends=False)
    (path / "trainer_state.json").write_text('{"global_')
    assert names(job) == []
    (path / "trainer_state.json").write_text('{"global_step": 10}')
    assert names(job) == ["checkpoint-10"]


def test_what_is_half_written_is_removed_and_nothing_else(job: Path) -> None:
    journal = SaveJournal(job / "attempt-1", 0, 1)
    saved(journal, job / "out" / "checkpoint-10", 10)
    saved(journal, job / "out" / "checkpoint-20", 20, ends=False)
    saved(journal, job / "out" / "my-states", 20, ends=False)
    assert remove_unfinished(job, before=2) == [job / "out" / "checkpoint-20"]
    assert remove_unfinished(job, before=2) == []
    assert sorted(path.name for path in (job / "out").iterdir()) == ["checkpoint-10", "my-states"]


def test_one_that_is_being_written_again_is_no_longer_complete(job: Path) -> None:
    saved(SaveJournal(job / "attempt-1", 0, 1), job / "out" / "checkpoint-10", 10)
    saved(SaveJournal(job / "attempt-2", 0, 1), job / "out" / "checkpoint-10", 10, ends=False)
    assert names(job) == []


@pytest.mark.parametrize("line", [b"{", b"[]", b"7", b'{"library": 1}', b"\xff", b"[" * 100_000])
def test_other_lines_are_passed_over(job: Path, line: bytes) -> None:
    saved(SaveJournal(job / "attempt-1", 0, 1), job / "out" / "checkpoint-10", 10)
    with (job / "attempt-1/journal/saved.0.jsonl").open("ab") as file:
        file.write(line + b"\n")
    assert names(job) == ["checkpoint-10"]


def test_whether_an_attempt_has_saved(job: Path) -> None:
    journal = SaveJournal(job / "attempt-2", 0, 1)
    saved(journal, job / "out" / "checkpoint-10", 10, ends=False)
    assert not saves_in(job, 2)
    saved(journal, job / "out" / "checkpoint-10", 10)
    assert (saves_in(job, 1), saves_in(job, 2)) == (False, True)


def test_moments_tell_the_speed_once_in_a_second(tmp_path: Path) -> None:
    times = iter([0.0, 0.5, 2.0, 2.0])
    file = ProgressFile(tmp_path, lambda: next(times))
    file.note(0, epoch=0, progress=None, metrics={})
    file.note(1, epoch=0, progress=0.1, metrics={"loss": float("nan"), "kind": "text", "flag": True})
    file.note(6, epoch=0, progress=1.1, metrics={})
    assert not file.is_due()
    points = [point_of_moment(line) for line in (tmp_path / "journal/library.jsonl").read_text().splitlines()]
    assert [(point.step, point.metrics, point.progress) for point in points if point] == [
        (0, {}, None),
        (1, {"loss": None}, 0.1),
        (6, {SPEED: 3.0}, 1.0),
    ]


@pytest.mark.parametrize(
    "line", ["", "7", "{}", '{"step": -1}', '{"step": true, "epoch": 0, "progress": null, "at": 1, "metrics": {}}']
)
def test_other_lines_are_no_moments(line: str) -> None:
    assert point_of_moment(line) is None

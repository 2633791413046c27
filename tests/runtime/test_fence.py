"""The fence: the newest lead alone writes, whatever has become of the file."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from tidepool.fence import SupersededError, newest, take
from tidepool.journal import Journal, read_journal, read_numbered
from tidepool.protocol import Finished, GenerationAbandoned, LeadTaken


def test_a_newer_lead_supersedes_an_older_one(tmp_path: Path) -> None:
    first = take(tmp_path, 1)
    first.check()
    take(tmp_path, 3).check()
    with pytest.raises(SupersededError, match="lead 1 is superseded by lead 3"):
        first.check()
    with pytest.raises(SupersededError):
        take(tmp_path, 2)
    assert newest(tmp_path) == 3


def test_the_same_lead_takes_it_again_after_a_restart(tmp_path: Path) -> None:
    take(tmp_path, 2)
    take(tmp_path, 2).check()
    assert newest(tmp_path) == 2


def test_the_file_is_overwritten_in_place(tmp_path: Path) -> None:
    """A client of NFS sees a new content of the same file at once, and a new file of the name perhaps a minute late."""
    take(tmp_path, 1)
    before = (tmp_path / "lead").stat()
    take(tmp_path, 2)
    after = (tmp_path / "lead").stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size) == (before.st_ino, 64)


def test_nothing_is_written_without_a_number(tmp_path: Path) -> None:
    take(tmp_path, 0).check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", range(1, 64))
def test_a_write_that_is_cut_short_leaves_one_of_both_numbers(tmp_path: Path, torn: int) -> None:
    take(tmp_path, 4)
    before = (tmp_path / "lead").read_bytes()
    take(tmp_path, 5)
    after = (tmp_path / "lead").read_bytes()
    (tmp_path / "lead").write_bytes(after[:torn] + before[torn:])
    assert newest(tmp_path) in (4, 5)


@pytest.mark.parametrize("rubbish", [b"", b"\0" * 64, b"5\n", bytes(range(64)), b"9" * 64])
def test_the_journal_says_who_leads_where_the_file_is_rubbish(tmp_path: Path, rubbish: bytes) -> None:
    with closing(Journal(tmp_path / "plans.jsonl", 6)) as journal:
        journal.append(LeadTaken("gpu1", at=1.0))
    (tmp_path / "lead").write_bytes(rubbish)
    assert newest(tmp_path) == 6
    with pytest.raises(SupersededError):
        take(tmp_path, 5)
    take(tmp_path, 7)
    assert newest(tmp_path) == 7


def test_an_older_lead_that_took_it_at_the_same_moment_is_superseded(tmp_path: Path) -> None:
    older = take(tmp_path, 1)
    content = (tmp_path / "lead").read_bytes()
    newer = take(tmp_path, 2)
    (tmp_path / "lead").write_bytes(content)  # the older one had looked before, and writes after
    newer.check()
    with pytest.raises(SupersededError):
        older.check()


def test_no_link_of_a_script_is_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_text("mine")
    (tmp_path / "lead").symlink_to(aim)
    with pytest.raises(OSError, match="lead"):
        take(tmp_path, 1)
    assert aim.read_text() == "mine"


def test_what_an_older_lead_writes_behind_a_newer_one_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    with closing(Journal(path, 1)) as old, closing(Journal(path, 2)) as new:
        old.append(GenerationAbandoned(1, "before", at=1.0))
        new.append(LeadTaken("gpu2", at=2.0))
        old.append(GenerationAbandoned(2, "behind", at=3.0))
        new.append(Finished(9, 1, at=4.0))
    assert read_journal(path) == [
        GenerationAbandoned(1, "before", at=1.0),
        LeadTaken("gpu2", at=2.0),
        Finished(9, 1, at=4.0),
    ]
    assert [number for number, _ in read_numbered(path)] == [1, 2, 4]
    assert [json.loads(line)["lead_number"] for line in path.read_text().splitlines()] == [1, 2, 1, 2]

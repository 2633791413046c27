"""A log keeps its beginning and its end; a job has so many bytes of logs, however many ranks it has had."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ordinary_user import ordinary_folder
from tests.waiting import wait_until
from workers.executor import log_rotation
from workers.executor.log_rotation import LogRotation, log_limit, trim

LIMIT = 80_000


def _numbered(first: int, last: int) -> bytes:
    return b"".join(b"%08d\n" % number for number in range(first, last))


def _log(folder: Path, name: str = "h.0.1.h", attempt: int = 1) -> Path:
    path = folder / f"attempt-{attempt}" / "log" / name / "stdout"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _parts(path: Path) -> tuple[bytes, int, bytes]:
    """The beginning, how many bytes the log says are left out, and the end."""
    head, _, rest = path.read_bytes().partition(b"[tidepool: ")
    count, _, rest = rest.partition(b" bytes are left out here: a log keeps its beginning and its end]\n")
    return head, int(count), rest


def test_a_short_log_stays_as_it_is(tmp_path: Path) -> None:
    path = _log(tmp_path)
    path.write_bytes(b"x" * LIMIT)
    assert not trim(path, LIMIT)
    assert path.read_bytes() == b"x" * LIMIT


def test_a_long_one_keeps_whole_lines_of_its_beginning_and_end_again_and_again(tmp_path: Path) -> None:
    path, written = _log(tmp_path), 0
    for _ in range(5):
        with path.open("ab") as stream:
            stream.write(_numbered(written, written + 20_000))
        written += 20_000
        assert trim(path, LIMIT)
        head, left_out, tail = _parts(path)
        assert head == _numbered(0, len(head) // 9)
        assert tail == _numbered(written - len(tail) // 9, written)
        assert len(head) + left_out + len(tail) == 9 * written
        assert LIMIT / 10 < len(head) < len(tail) < path.stat().st_size < LIMIT * 0.6


@pytest.mark.parametrize(
    "place", ["attempt-1", "attempt-1/log", "attempt-1/log/h.0.1.h", "attempt-1/log/h.0.1.h/stdout"]
)
def test_no_link_makes_a_log_of_another_training_shorter(tmp_path: Path, place: str) -> None:
    theirs, job = _log(tmp_path / "theirs"), tmp_path / "3"
    theirs.write_bytes(b"x" * log_rotation.MOST_BYTES + b"y")
    link = job / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "theirs" / place, target_is_directory=True)
    (job / "attempt-2").mkdir()
    LogRotation("h", lambda: [str(job / "attempt-2")]).look()
    assert theirs.stat().st_size == log_rotation.MOST_BYTES + 1


def test_very_many_folders_of_logs_are_not_all_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "_MOST_LOGS", 10)
    for number in range(30):
        _log(tmp_path, f"h.0.{number}.h").write_bytes(b"x")
    assert len(log_rotation.logs_in(tmp_path)) == 10


def test_one_endless_line_is_shortened_as_well(tmp_path: Path) -> None:
    path = _log(tmp_path)
    path.write_bytes(b"\r50 %" * LIMIT)
    assert trim(path, LIMIT)
    head, left_out, tail = _parts(path)
    assert len(head) + left_out + len(tail) == 5 * LIMIT
    assert path.stat().st_size < LIMIT


@pytest.fixture
def flood(tmp_path: Path) -> Iterator[Path]:
    """A rank that prints without end, into its file as ranks do."""
    path = _log(tmp_path)
    script = "while True: print('a line of a training that prints too much')"
    with path.open("ab") as stream, subprocess.Popen([sys.executable, "-c", script], stdout=stream) as process:
        yield path
        process.kill()


def test_a_rank_that_prints_on_goes_on_at_the_end(flood: Path) -> None:
    for _ in range(3):
        wait_until(lambda: trim(flood, LIMIT), "it has printed more than it may")
    grown = flood.stat().st_size
    wait_until(lambda: flood.stat().st_size > grown, "it prints on")
    assert flood.read_bytes().count(b"[tidepool: ") == 1
    assert b"\0" not in flood.read_bytes()


def test_what_is_put_in_the_place_of_a_log_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * 2 * LIMIT)
    link, twin, folder = (_log(tmp_path, f"h.{number}.1.h") for number in range(3))
    link.symlink_to(precious)
    os.link(precious, twin)
    folder.mkdir()
    assert not any(trim(path, LIMIT) for path in (link, twin, folder, tmp_path / "nothing"))
    assert precious.stat().st_size == 2 * LIMIT


def test_a_job_has_so_many_bytes_however_many_logs() -> None:
    assert log_limit(1) == log_limit(16) == 64 * 1024**2
    for count in (17, 100, 1024):
        assert count * log_limit(count) <= log_rotation.JOB_BYTES
    assert log_limit(10**6) == 1024**2


def test_the_keeper_looks_after_all_attempts_and_leaves_other_hosts_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rotation, "LEAST_BYTES", 1000)
    monkeypatch.setattr(log_rotation, "JOB_BYTES", 4 * LIMIT)
    own, earlier, others = _log(tmp_path), _log(tmp_path, attempt=12), _log(tmp_path, "i.0.1.i")
    for path in (own, earlier, others, own.with_name("stderr"), own.with_name("model.bin")):
        path.write_bytes(_numbered(0, 20_000))
    LogRotation("h", lambda: [str(tmp_path / "attempt-12")]).look()
    shortened = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < LIMIT]
    assert sorted(shortened) == sorted([own, earlier, own.with_name("stderr")])


def test_a_folder_that_a_script_has_closed_keeps_no_log_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "LEAST_BYTES", 1000)
    monkeypatch.setattr(log_rotation, "JOB_BYTES", 4 * LIMIT)
    with ordinary_folder() as top:
        logs = [_log(top / name) for name in ("1", "2")]
        for log in logs:
            log.write_bytes(_numbered(0, 20_000))
            closed = log.parent.with_name("closed")
            closed.mkdir()
            closed.chmod(0)
        LogRotation("h", lambda: [str(log.parents[2]) for log in logs]).look()
        assert all(log.stat().st_size < 4 * LIMIT for log in logs)

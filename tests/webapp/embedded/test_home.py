from __future__ import annotations

import socket
from pathlib import Path

import pytest

from webapp.embedded import home


def test_makes_folders_that_only_this_user_reads(tmp_path: Path) -> None:
    home.prepare_home(tmp_path / "pool")
    for name in ("data", "models", "results", "logs", "run", "broker"):
        assert (tmp_path / "pool" / name).stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "pool" / "run").iterdir()) == []


def test_says_what_to_do_where_nothing_can_be_written() -> None:
    # A folder that refuses root too.
    with pytest.raises(home.HomeNotWritable, match=r"/proc/tidepool cannot be written .*: set TIDEPOOL_HOME"):
        home.prepare_home(Path("/proc/tidepool"))


def test_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    home.prepare_home(tmp_path)
    first, second = home.HomeLock(tmp_path), home.HomeLock(tmp_path)
    first.acquire("process 12 at http://127.0.0.1:8000")
    with pytest.raises(
        home.HomeInUse, match=r"already runs on .*: process 12 at http://127.0.0.1:8000\. Stop it first"
    ):
        second.acquire("process 13")
    first.release()
    second.acquire("process 13")
    second.release()


def test_makes_up_a_password_once_and_keeps_it_secret(tmp_path: Path) -> None:
    password, is_new = home.admin_password(tmp_path, "")
    assert is_new
    assert len(password) >= 16
    assert (tmp_path / "admin-password").stat().st_mode & 0o777 == 0o600
    assert home.admin_password(tmp_path, "another one") == (password, False)


def test_takes_the_password_that_is_given(tmp_path: Path) -> None:
    assert home.admin_password(tmp_path, "correct horse battery") == ("correct horse battery", True)


def test_removes_what_killed_processes_have_left(tmp_path: Path) -> None:
    home.prepare_home(tmp_path)
    (tmp_path / "run" / "host").mkdir()
    (tmp_path / "run" / "host" / "record.json").write_text("{}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "run" / "host" / "left.sock"))
    home.remove_sockets(tmp_path)
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["host", "record.json"]

import os
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError

from tests.journey.running_stack import free_port
from webapp.embedded import home


def test_makes_folders_that_only_this_user_reads(tmp_path: Path) -> None:
    home.prepare_home(tmp_path / "pool")
    for name in ("data", "models", "results", "logs", "run", "broker"):
        assert (tmp_path / "pool" / name).stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "pool" / "run").iterdir()) == []


SQLITE = {"ENGINE": "django.db.backends.sqlite3"}


def test_closes_what_was_open_to_others(tmp_path: Path) -> None:
    """A folder that somebody made beforehand, with a database that another umask made."""
    pool = tmp_path / "pool"
    pool.mkdir()
    file = pool / "tidepool.sqlite3"
    for path in (file, pool / "tidepool.sqlite3-wal", pool / "tidepool.sqlite3-shm"):
        path.touch()
        path.chmod(0o666)
    (pool / "results").mkdir()
    for folder in (pool, pool / "results"):
        folder.chmod(0o755)
    home.prepare_home(pool)
    home.close_database({**SQLITE, "NAME": str(file)})
    modes = {path.name: path.stat().st_mode & 0o777 for path in (pool, *pool.iterdir())}
    assert {mode for name, mode in modes.items() if not name.startswith("tidepool.")} == {0o700}
    assert {mode for name, mode in modes.items() if name.startswith("tidepool.")} == {0o600}


def test_a_new_database_is_this_users_alone_wherever_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.sqlite3"
    home.close_database({**SQLITE, "NAME": str(file)})
    assert file.stat().st_mode & 0o777 == 0o600


def test_refuses_a_home_that_it_cannot_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can close everything."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", _forbid)
    with pytest.raises(
        CommandError, match=r"belongs to another user and others may read it.*: make this user its owner"
    ):
        home.prepare_home(tmp_path)


def _forbid(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_says_what_to_do_where_nothing_can_be_written() -> None:
    # A folder that refuses root too.
    with pytest.raises(CommandError, match=r"/proc/tidepool cannot be written .*: set TIDEPOOL_HOME"):
        home.prepare_home(Path("/proc/tidepool"))


def test_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    home.prepare_home(tmp_path)
    first = home.lock_home(tmp_path, "process 12 at http://127.0.0.1:8000")
    with pytest.raises(CommandError, match=r"already runs on .*: process 12 at http://127.0.0.1:8000\. Stop it first"):
        home.lock_home(tmp_path, "process 13")
    first.close()
    with home.lock_home(tmp_path, "process 13"):
        assert (tmp_path / "run" / "up.lock").read_text() == "process 13"


def test_makes_up_a_password_once_and_keeps_it_secret(tmp_path: Path) -> None:
    password, is_new = home.admin_password(tmp_path, "", has_admin=False)
    assert is_new
    assert re.fullmatch("[0-9a-f]{24}", password)
    assert (tmp_path / "admin-password").stat().st_mode & 0o777 == 0o600
    assert home.admin_password(tmp_path, "another one", has_admin=False) == (password, False)


def test_keeps_no_copy_of_a_password_that_is_given(tmp_path: Path) -> None:
    given = "correct horse battery"
    assert home.admin_password(tmp_path, given, has_admin=False) == (given, False)
    assert list(tmp_path.iterdir()) == []


def test_makes_up_none_for_an_admin_who_has_one(tmp_path: Path) -> None:
    assert home.admin_password(tmp_path, "", has_admin=True) == ("", False)
    assert list(tmp_path.iterdir()) == []


def test_removes_what_killed_processes_have_left(tmp_path: Path) -> None:
    home.prepare_home(tmp_path)
    (tmp_path / "run" / "host").mkdir()
    (tmp_path / "run" / "host" / "record.json").write_text("{}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "run" / "host" / "left.sock"))
    home.remove_sockets(tmp_path)
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["host", "record.json"]


_TABLE = "CREATE TABLE webapp_auditentry (id integer)"
_RECORD = (
    "CREATE TABLE django_migrations (id integer, app text, name text, applied datetime);"
    "INSERT INTO django_migrations VALUES (1, 'webapp', '0001_squashed_0006', '2026-01-01')"
)
_LATER_RECORD = _RECORD.replace("'webapp', '0001_squashed_0006'", "'jobs', '0015_one_host_replays_and_reasons'")


@pytest.mark.parametrize(
    ("command", "statement"), [(["migrate"], _TABLE), (["fill_home"], _RECORD), (["up", "--port", "0"], _LATER_RECORD)]
)
def test_a_home_of_an_earlier_version_is_refused_and_left_as_it_is(
    tmp_path: Path, command: list[str], statement: str
) -> None:
    with sqlite3.connect(tmp_path / "tidepool.sqlite3") as database:
        database.executescript(statement)
    before = schema(tmp_path)
    command = [str(free_port()) if word == "0" else word for word in command]

    ended = subprocess.run(
        [sys.executable, "manage.py", *command],
        env={**os.environ, "TIDEPOOL_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.settings"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"CommandError: The database of the home {tmp_path} was made by an earlier version")
    assert "set TIDEPOOL_HOME to a new folder, or move the old one away." in ended.stderr
    assert schema(tmp_path) == before


def schema(folder: Path) -> list[tuple[str]]:
    with sqlite3.connect(folder / "tidepool.sqlite3") as database:
        return database.execute("SELECT sql FROM sqlite_master").fetchall()

"""The page on backups, literally, on SQLite: the commands as they stand there, in a home of their own."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.documents import commands
from tests.test_architecture import ROOT

PAGE = "backup-and-restore.md"


def run(script: str, home: Path, backup: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "TIDEPOOL_HOME": str(home), "BACKUP": str(backup)}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def documented(heading: str) -> str:
    # The page is read in a checkout after `make setup`.
    return commands(PAGE, heading).replace(".venv/bin/python", f'"{sys.executable}"')


def users(home: Path) -> list[str]:
    with sqlite3.connect(home / "tidepool.sqlite3") as database:
        return [row[0] for row in database.execute("SELECT username FROM auth_user ORDER BY id")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    setup = """
import django
from django.core.management import call_command
django.setup()
call_command("migrate", verbosity=0)
call_command("fill_home")
"""
    run(f"DJANGO_SETTINGS_MODULE=webapp.settings '{sys.executable}' -c '{setup}'", home, tmp_path)
    return home


def test_what_is_lost_comes_back_and_what_came_since_is_gone(home: Path, tmp_path: Path):
    writer = sqlite3.connect(home / "tidepool.sqlite3")  # somebody has it open, as `up` does
    key = (home / "secret-key").read_text()
    run(documented("Back up with SQLite"), home, tmp_path / "backup")
    with writer:
        writer.execute("UPDATE auth_user SET username = 'changed since'")
    writer.close()
    shutil.rmtree(home / "data")
    (home / "secret-key").unlink()

    said = run(documented("Restore with SQLite"), home, tmp_path / "backup").stdout
    assert users(home) == ["admin"]
    assert (home / "secret-key").read_text() == key
    assert list((home / "data/digits").iterdir())
    assert "0 trainings that ran wait again" in said

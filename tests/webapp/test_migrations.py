"""A database that grew step by step ends like one that was made at once."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

#: Takes the steps that were joined later, as whoever began with the first of them did, and then what is left to do.
STEP_BY_STEP = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

executor = MigrationExecutor(connection)
executor.loader.replace_migrations = False
executor.loader.build_graph()
executor.migrate([leaf for leaf in executor.loader.graph.leaf_nodes() if "squashed" not in leaf[1]])
call_command("migrate", verbosity=0)
"""
AT_ONCE = "import django; django.setup(); from django.core.management import call_command; call_command('migrate')"


@pytest.mark.long
def test_step_by_step_and_at_once_end_alike(tmp_path: Path) -> None:
    tables = {}
    for name, program in (("steps", STEP_BY_STEP), ("once", AT_ONCE)):
        home = tmp_path / name
        home.mkdir()
        environment = {**os.environ, "TIDEPOOL_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=100)
        tables[name] = schema(home / "tidepool.sqlite3")
    assert "jobs_job" in tables["once"]
    assert tables["steps"] == tables["once"]


def schema(path: Path) -> dict[str, list[str]]:
    """What the database says of each table, index and trigger; columns in any order."""
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    return {
        name: sorted(re.split(r", (?=\"\w+\" \w|CONSTRAINT)", sql.removesuffix(")").partition("(")[2]))
        for name, sql in rows
    }

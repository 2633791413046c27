"""The database of the tests is a copy, and the copy of no other migrations than those of the checkout."""

import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from tests import migrated_database
from tests.migrated_database import digest_of, fill, sources_of_migrations

_ROOT = Path(__file__).parents[1]


@pytest.mark.django_db
def test_every_migration_was_applied() -> None:
    plan = StringIO()
    call_command("showmigrations", plan=True, stdout=plan)
    lines = plan.getvalue().splitlines()
    assert len(lines) > 40
    assert [line for line in lines if line.startswith("[ ]")] == []


def test_it_depends_on_migrations_what_they_import_and_django() -> None:
    sources = sources_of_migrations()
    assert {_ROOT / "jobs/migrations/0001_initial.py", _ROOT / "core/migrations/_rules.py"} < sources
    assert _ROOT / "jobs/states.py" in sources
    assert any(source.parts[-4:-1] == ("contrib", "auth", "migrations") for source in sources)


def test_a_change_of_a_migration_makes_another_database(tmp_path: Path) -> None:
    migration = tmp_path / "0001_initial.py"
    migration.write_text("operations = []\n")
    before = digest_of([migration])
    assert digest_of([migration]) == before
    migration.write_text("operations = [1]\n")
    assert digest_of([migration]) != before


def test_the_second_one_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single table stands for all, since to migrate takes long."""
    migrations: list[Path] = []

    def make_table(database: Path) -> None:
        migrations.append(database)
        with closing(sqlite3.connect(database)) as made:
            made.execute("CREATE TABLE first (id)")

    monkeypatch.setattr(migrated_database, "migrate", make_table)
    for name in ("one", "two"):
        fill(tmp_path / name, tmp_path / "template.sqlite3")
        with closing(sqlite3.connect(tmp_path / name)) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("first",)]
    assert migrations == [tmp_path / "one"]


def test_copies_of_other_migrations_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrated_database, "migrate", lambda database: None)
    for name in ("old", "new"):
        fill(tmp_path / "database", tmp_path / f"{name}.sqlite3")
    assert [path.name for path in tmp_path.glob("*.sqlite3")] == ["new.sqlite3"]

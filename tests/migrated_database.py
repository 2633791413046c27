"""Copies of a database that is migrated once, because to migrate takes eight seconds of processor time."""

import ast
import fcntl
import hashlib
import importlib.util
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

__all__ = ["digest_of", "fill", "migrate", "migrated", "sources_of_migrations"]

_CHECKOUT = Path(__file__).parents[1]


@contextmanager
def migrated(folder: Path) -> Iterator[None]:
    """Have Django's test database made from a copy in the block; `migrate` then finds nothing to do.

    folder: of the copy, which all processes share: the first one migrates, and the others wait for its copy.
    """
    creation = connection.creation
    usual = creation._create_test_db

    def create(*arguments: Any, **options: Any) -> str:
        name: str = usual(*arguments, **options)
        fill(Path(name), folder / f"{digest_of(sources_of_migrations())}.sqlite3")
        return name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creation, "_create_test_db", create)
        yield


def fill(database: Path, template: Path) -> None:
    """Make the database from the template, and first the template if there is none."""
    with template.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if template.exists():
            _copy(template, database)
            return
        migrate(database)
        for old in template.parent.glob("*.sqlite3"):  # made by other migrations
            old.unlink()
        new = template.with_suffix(".new")
        new.unlink(missing_ok=True)
        _copy(database, new)
        new.replace(template)


def migrate(database: Path) -> None:
    usual = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(database)
    try:
        call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


def digest_of(sources: Iterable[Path]) -> str:
    """Return a name for the database that these files make with this Django and this SQLite."""
    digest = hashlib.sha256(f"{django.get_version()} {sqlite3.sqlite_version}".encode())
    for text in sorted(source.read_bytes() for source in sources):
        digest.update(text)
    return digest.hexdigest()[:16]


def sources_of_migrations() -> set[Path]:
    """Return the files of all migrations, those beside them, and those of the checkout that they import."""
    modules = {migration.__module__ for migration in MigrationLoader(None).disk_migrations.values()}
    folders = {Path(str(sys.modules[module].__file__)).parent for module in modules}
    migrations = {source for folder in folders for source in folder.glob("*.py")}
    own = {source for source in migrations if source.is_relative_to(_CHECKOUT)}
    return migrations | {source for migration in own for source in _imported_by(migration)}


def _imported_by(source: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(source.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            spec = importlib.util.find_spec(name)
            if spec and spec.origin and Path(spec.origin).is_relative_to(_CHECKOUT / name.partition(".")[0]):
                yield Path(spec.origin)

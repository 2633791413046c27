"""$TIDEPOOL_HOME: its folders, its lock against a second `up`, the check of its version, and the first password.

Problems raise CommandError, whose message says what to change.
"""

import fcntl
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.core.management import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

__all__ = ["admin_password", "close_database", "lock_home", "prepare_home", "refuse_earlier_home", "remove_sockets"]

_FOLDERS = ("data", "models", "results", "logs", "run", "broker")


def lock_home(home: Path, holder: str) -> IO[str]:
    """Lock the home until the file is closed or this process ends. The file names the holder."""
    file = (home / "run" / "up.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            other = file.read().strip() or "another process"
        raise CommandError(
            f"Tidepool already runs on {home}: {other}. Stop it first, or give this one a home of its own with "
            "TIDEPOOL_HOME."
        ) from None
    file.truncate(0)
    file.write(holder)
    file.flush()
    return file


def prepare_home(home: Path) -> None:
    """Create the folders, make them (and existing ones) readable by this user only, and check that they are
    writable."""
    try:
        for folder in (home, *(home / name for name in _FOLDERS)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _close_to_others(folder)
        trial = home / "run" / f"trial.{os.getpid()}"
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise CommandError(
            f"{home} cannot be written ({error.strerror}): set TIDEPOOL_HOME to a folder of your own."
        ) from None


def _close_to_others(path: Path) -> None:
    if not path.stat().st_mode & 0o077:
        return
    try:
        path.chmod(path.stat().st_mode & 0o700)
    except PermissionError:
        raise CommandError(
            f"{path} belongs to another user and others may read it, and so the database: make this user its owner."
        ) from None


def close_database(database: Mapping[str, Any]) -> None:
    """Make SQLite's file, and the files that SQLite creates next to it, readable by this user only."""
    if database["ENGINE"] != "django.db.backends.sqlite3":
        return
    file = Path(database["NAME"])
    os.close(os.open(file, os.O_RDONLY | os.O_CREAT, 0o600))
    for path in (file, *file.parent.glob(f"{file.name}-*")):
        _close_to_others(path)


def refuse_earlier_home(database: str = "default") -> None:
    """Refuse a database that the migrations cannot upgrade.

    Such a database records migrations that no longer exist, because each app's were squashed into one. The first
    versions had tables of the app `webapp`, which has none now.
    """
    connection = connections[database]
    tables = connection.introspection.table_names()
    present = MigrationLoader(None).disk_migrations.keys()
    ours = {app.label for app in apps.get_app_configs() if Path(app.path).parent == settings.BASE_DIR}
    recorded = {key for key in MigrationRecorder(connection).applied_migrations() if key[0] in ours}
    if any(table.startswith("webapp_") for table in tables) or recorded - present:
        raise CommandError(
            f"The database of the home {settings.TIDEPOOL_HOME} was made by an earlier version of Tidepool, which this "
            "one does not continue: set TIDEPOOL_HOME to a new folder, or move the old one away."
        )


def remove_sockets(home: Path) -> None:
    """Remove sockets left by killed processes. While this process holds the lock and has started nothing, none is in
    use."""
    for path in (home / "run").rglob("*"):
        if path.is_socket():
            path.unlink()


def admin_password(home: Path, given: str, *, has_admin: bool) -> tuple[str, bool]:
    """Return the admin's first password, and whether it was generated just now; "" where the site has an admin already.

    A generated one is kept in a file that this user alone can read. A given one is kept nowhere: other hosts may mount
    the home.
    """
    if has_admin:
        return "", False
    file = home / "admin-password"
    if file.exists():
        return file.read_text().strip(), False
    if given:
        return given, False
    # Hexadecimal, because a password that begins with a dash would be read as an option on a command line.
    password = secrets.token_hex(12)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(f"{password}\n")
    return password, True

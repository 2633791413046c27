"""$TIDEPOOL_HOME: its folders, its lock against a second `up`, the check of its version, and the first password."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from django.conf import settings
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

__all__ = [
    "EarlierHome",
    "HomeInUse",
    "HomeLock",
    "HomeNotWritable",
    "admin_password",
    "prepare_home",
    "refuse_earlier_home",
    "remove_sockets",
]

_FOLDERS = ("data", "models", "results", "logs", "run", "broker")


class HomeNotWritable(OSError):
    """The sentence says what to change."""


class EarlierHome(RuntimeError):
    """The database was laid out by a version that this one does not continue."""


class HomeInUse(RuntimeError):
    """Another `up` runs on this home."""


class HomeLock:
    """Held until this process ends, however it ends. The file says who holds it."""

    def __init__(self, home: Path) -> None:
        self._path = home / "run" / "up.lock"
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self, holder: str) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            other = self._path.read_text().strip() or "another process"
            raise HomeInUse(
                f"Tidepool already runs on {self._path.parent.parent}: {other}. Stop it first, or give this one a home "
                "of its own with TIDEPOOL_HOME."
            ) from None
        os.truncate(descriptor, 0)
        os.write(descriptor, holder.encode())
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.truncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def prepare_home(home: Path) -> None:
    """Make the folders, readable by this user only, and try whether they can be written."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _FOLDERS:
            (home / name).mkdir(mode=0o700, exist_ok=True)
        trial = home / "run" / f"trial.{os.getpid()}"
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise HomeNotWritable(
            f"{home} cannot be written ({error.strerror}): set TIDEPOOL_HOME to a folder of your own."
        ) from None


def refuse_earlier_home(database: str = "default") -> None:
    """Raise EarlierHome for a database whose tables no migration here can change.

    Every such version had tables and migrations of the app `webapp`, which has had none since.
    """
    connection = connections[database]
    tables = connection.introspection.table_names()
    recorded = MigrationRecorder(connection).applied_migrations()
    if any(table.startswith("webapp_") for table in tables) or any(app == "webapp" for app, _ in recorded):
        raise EarlierHome(
            f"The database of the home {settings.TIDEPOOL_HOME} was made by an earlier version of Tidepool, which this "
            "one does not continue: set TIDEPOOL_HOME to a new folder, or move the old one away."
        )


def remove_sockets(home: Path) -> None:
    """Remove what killed processes have left. While the lock is ours and nothing is started, nobody listens there."""
    for path in (home / "run").rglob("*"):
        if path.is_socket():
            path.unlink()


def admin_password(home: Path, given: str) -> tuple[str, bool]:
    """The admin's password, and whether it was made up just now. The file is readable by this user only."""
    file = home / "admin-password"
    if file.exists():
        return file.read_text().strip(), False
    password = given or secrets.token_urlsafe(12)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(f"{password}\n")
    return password, True

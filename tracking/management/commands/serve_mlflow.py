"""Becomes MLflow's server, in the environment that `make setup-mlflow` makes."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from tracking.launch import artifact_root, auth_config, launch_input, storage_folder, store_uri

_BRIDGE = Path(__file__).resolve().parents[2] / "server" / "bridge.py"
#: Not for a server that has no use for them.
_KEPT = ("PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE")


class Command(BaseCommand):
    help = "Run MLflow's server on TIDEPOOL_MLFLOW_SOCKET; the site's proxy alone speaks to it."

    def handle(self, *args: Any, **options: Any) -> None:
        python = Path(settings.TIDEPOOL_MLFLOW_PYTHON)
        if not settings.TIDEPOOL_MLFLOW_SOCKET:
            raise CommandError("Set TIDEPOOL_MLFLOW_SOCKET to the path of the socket that MLflow is to listen on.")
        if not python.exists():
            raise CommandError(f"{python} is not there: run `make setup-mlflow`.")
        socket = Path(settings.TIDEPOOL_MLFLOW_SOCKET)
        for folder in (storage_folder(), artifact_root(), socket.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(socket.parent, 0o700)
        socket.unlink(missing_ok=True)
        database = settings.DATABASES["default"]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("CREATE SCHEMA IF NOT EXISTS mlflow")
        uri = store_uri(database, storage_folder() / "mlflow.sqlite3")
        config = storage_folder() / "auth.ini"
        descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(auth_config(store_uri(database, storage_folder() / "auth.sqlite3")))
        self._become(python, launch_input(socket, uri, config))

    def _become(self, python: Path, text: str) -> None:
        """Replace this process; standard input holds `text`, which is less than a pipe takes at once."""
        reading, writing = os.pipe()
        os.write(writing, text.encode())
        os.close(writing)
        os.dup2(reading, 0)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        os.umask(0o077)
        command = [str(python), "-W", "ignore", str(_BRIDGE)]
        os.execve(python, command, {**environment, "PYTHONUNBUFFERED": "1"})  # noqa: S606 - no shell is wanted

"""Helpers of tests and benchmarks that start processes of their own over the test's database."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from django.conf import settings
from django.db import connection

from tests.waiting import wait_until
from webapp.embedded.broker import broker_command, find_broker, is_answering, socket_url

__all__ = ["NO_CHROMIUM", "broker", "collect_static_files", "database_url", "find_chromium", "web_process"]

_FINDS_CHROMIUM = Path(__file__).parents[1] / "scripts" / "chromium"
NO_CHROMIUM = "Chromium is missing: scripts/chromium says why."


def find_chromium() -> str | None:
    found = subprocess.run([_FINDS_CHROMIUM], stdout=subprocess.PIPE, text=True, check=False)
    return found.stdout.strip() or None


def database_url() -> str:
    """TIDEPOOL_DATABASE_URL for a process that shall see the test's rows."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    login = f"{quote(values['USER'])}:{quote(values['PASSWORD'])}@{values['HOST']}:{values['PORT'] or 5432}"
    return f"postgres://{login}/{values['NAME']}"


@contextmanager
def broker() -> Iterator[str]:
    """Address of a broker that ends with the block."""
    # Not below pytest's own folder: the path of a unix socket may have 100 bytes.
    with tempfile.TemporaryDirectory(prefix="tp-broker-") as folder:
        path = Path(folder, "broker.sock")
        command = broker_command(find_broker("auto"), path, Path(folder))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
            try:
                wait_until(lambda: is_answering(path), "the broker answers")
                yield socket_url(path)
            finally:
                process.terminate()


@contextmanager
def web_process(broker_url: str, log: Path, **more: str) -> Iterator[str]:
    """Address of a web process over the test's database, with `more` variables in its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TIDEPOOL_HOME": str(settings.TIDEPOOL_HOME),
        "TIDEPOOL_BROKER_URL": broker_url,
        "TIDEPOOL_EXECUTOR_BROKER_URL": settings.TIDEPOOL_EXECUTOR_BROKER_URL,
        "TIDEPOOL_DATABASE_URL": database_url(),
        **more,
    }
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(f"http://127.0.0.1:{port}/login/"), "web is up")
            assert process.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            print(log.read_text())


def collect_static_files(root: Path) -> None:
    """Into this folder, which a web process is told of by TIDEPOOL_STATIC_ROOT."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.settings", "TIDEPOOL_STATIC_ROOT": str(root)}
    command = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity", "0"]
    subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False

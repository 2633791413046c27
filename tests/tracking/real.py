"""MLflow's real server, and the proxy before it, in a test's own process."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from django.conf import settings
from django.db import connection

from tests.tracking.clients import ROOT, SERVER_PYTHON
from tests.waiting import PATIENCE_SECONDS, wait_until
from tracking.launch import artifact_root, auth_config, launch_input, storage_folder, store_uri
from tracking.proxy import TrackingProxy

__all__ = ["proxy", "real_server"]


@contextmanager
def real_server() -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server on the socket that the settings name, over a database of its own."""
    path = Path(settings.TIDEPOOL_MLFLOW_SOCKET)
    for folder in (path.parent, storage_folder(), artifact_root()):
        folder.mkdir(parents=True, exist_ok=True)
    config = storage_folder() / "auth.ini"
    config.write_text(auth_config(_store("auth.sqlite3")))
    text = launch_input(path, _store("mlflow.sqlite3"), config)
    log = storage_folder() / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [SERVER_PYTHON, "-W", "ignore", ROOT / "tracking/server/bridge.py"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env={"PATH": os.environ["PATH"]},
        )
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.close()
    try:
        wait_until(lambda: _answers(path) or process.poll() is not None, lambda: log.read_text()[-3000:])
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        process.kill()
        process.wait()


def _store(name: str) -> str:
    """Beside the database of the tests where that is PostgreSQL, else a file."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS mlflow")
    return store_uri(connection.settings_dict, storage_folder() / name)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextmanager
def proxy() -> Iterator[str]:
    """The proxy on a port of this machine; its address."""
    server = uvicorn.Server(uvicorn.Config(_Site(), port=0, lifespan="on", log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the proxy listens")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


class _Site:
    """Nothing but the proxy, over a connection that is closed in the end."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._proxy(scope, receive, send)
            return
        transport = httpx.AsyncHTTPTransport(uds=settings.TIDEPOOL_MLFLOW_SOCKET)
        self._proxy = TrackingProxy(_nothing, transport)
        for moment in ("startup", "shutdown"):
            await receive()
            if moment == "shutdown":
                await transport.aclose()
            await send({"type": f"lifespan.{moment}.complete"})


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})

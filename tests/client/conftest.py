"""The client against the site itself, in this process: every request is one to the real views and their database."""

from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from tidepool.cli.app import run
from tidepool.client import api
from tidepool.client.api import Client
from tidepool.client.config import Profile, profiles
from tidepool.client.http import Connection
from tidepool.client.wire import NeverSent, Request, Response, Transport, TransportError

from accounts.tokens import make_token
from tests.scene import Scene

URL = "http://testserver"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_login_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("URL", "TOKEN", "PROFILE", "CA_FILE"):
        monkeypatch.delenv(f"TIDEPOOL_{name}", raising=False)


def over(transport: httpx.BaseTransport) -> Transport:
    """Requests of the client by one of httpx's transports, which can call a site in this process, or play one."""
    sender = httpx.Client(transport=transport)

    def send(request: Request) -> Response:
        headers, content = dict(request.headers), None
        if request.body is not None:
            content = b"".join(request.body.pieces())
            assert len(content) == request.body.length
            headers = {"Content-Type": request.body.media_type, **headers}
        try:
            answer = sender.request(request.method, URL + request.target, headers=headers, content=content)
        except httpx.ConnectError as error:
            raise NeverSent(str(error)) from error
        except httpx.TransportError as error:
            raise TransportError(str(error)) from error
        return Response(answer.status_code, answer.reason_phrase, answer.headers, BytesIO(answer.content), lambda _: 0)

    return send


def over_wsgi() -> Transport:
    transport: Any = httpx.WSGITransport(app=WSGIHandler(), raise_app_exceptions=True)
    return over(transport)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A request would close the connection to the database, with the test's transaction.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    monkeypatch.setattr(api, "Connection", partial(Connection, transport=over_wsgi(), tries_for=0.0))
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def client_of(in_process: None) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def client(user: User, scope: str = "full") -> Client:
        made.append(Client(URL, make_token(user, f"test-{len(made)}", None, scope).text))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture
def alices(scene: Scene, client_of: Callable[..., Client]) -> Client:
    return client_of(scene.alice)


@pytest.fixture
def tidepool(capsys: pytest.CaptureFixture[str]) -> Call:
    """Exit code, stdout and stderr of a call."""

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(word) for word in words])
        return int(code), *capsys.readouterr()

    return call


@pytest.fixture
def logged_in(scene: Scene, in_process: None) -> Scene:
    profiles().keep("default", Profile(URL, make_token(scene.alice, "cli", None).text))
    return scene


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "hello.py"
    file.write_text("print('hello')\n")
    return file

"""Under ASGI, as the product runs: large bodies are read from whoever is known, and from nobody else."""

import asyncio
import base64
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client

from accounts.body_limits import STRANGERS_BYTES, LimitedBodies
from accounts.tokens import create_token
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

PIECE = 256 * 1024
MUCH = 3 * STRANGERS_BYTES


class Exchange:
    """A request in pieces, the application behind the limit, and what the client was answered."""

    def __init__(self, size: int, *, announces: bool = True, **headers: str) -> None:
        self.left = size
        self.read = 0
        self.cut_off = False
        self.sent: list[dict[str, Any]] = []
        length = {"content-length": str(size)} if announces else {"transfer-encoding": "chunked"}
        named = {"host": "localhost", **length, **headers}
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/anywhere",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "client": ("127.0.0.1", 1),
        }

    async def _receive(self) -> dict[str, Any]:
        piece = min(PIECE, self.left)
        self.left -= piece
        return {"type": "http.request", "body": b"x" * piece, "more_body": self.left > 0}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def _application(self, _: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.cut_off = True
                return
            self.read += len(message["body"])
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                return

    async def go(self) -> "Exchange":
        await asyncio.wait_for(LimitedBodies(self._application)(self.scope, self._receive, self._send), 30)
        return self

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None


def basic(password: str = PASSWORD) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"alice:{password}".encode()).decode()}


@sync_to_async
def credentials(way: str) -> dict[str, str]:
    alice = UserFactory(username="alice")
    if way == "basic":
        return basic()
    if way == "session":
        client = Client()
        client.force_login(alice)
        return {"cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"}
    token = create_token(alice)
    return {"authorization": f"Bearer {token}"} if way == "bearer" else {"x-auth-token": token}


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("way", ["basic", "session", "bearer", "x-auth-token"])
async def test_who_is_known_sends_much(way: str, announces: bool) -> None:
    exchange = await Exchange(MUCH, announces=announces, **await credentials(way)).go()
    assert (exchange.status, exchange.read) == (200, MUCH)


WRONG = [{}, basic("wrong"), {"authorization": "Bearer made-up"}, {"x-auth-token": "made-up"}]
WRONG.append({"cookie": f"{settings.SESSION_COOKIE_NAME}=made-up"})


@pytest.mark.parametrize("headers", WRONG)
async def test_who_is_not_is_refused_before_anything_is_read(headers: dict[str, str]) -> None:
    exchange = await Exchange(MUCH, **headers).go()
    assert (exchange.status, exchange.read, exchange.left) == (401, 0, MUCH)
    assert exchange.sent[1]["body"] == b"Error 401: Log in before sending more than 1 MiB.\n"
    assert (b"www-authenticate", b'Bearer realm="api"') in exchange.sent[0]["headers"]


@pytest.mark.parametrize("headers", WRONG)
async def test_or_cut_off_where_nothing_was_announced(headers: dict[str, str]) -> None:
    exchange = await Exchange(MUCH, announces=False, **headers).go()
    assert (exchange.cut_off, exchange.read, exchange.status) == (True, STRANGERS_BYTES, 401)


async def test_a_stranger_may_send_little() -> None:
    assert (await Exchange(STRANGERS_BYTES).go()).status == 200


async def test_nobody_sends_more_than_an_upload_may_have(settings: Any) -> None:
    settings.TIDEPOOL_UPLOAD_MAX_BYTES = 1024**2
    known = await credentials("basic")
    assert (await Exchange(2 * 1024**2, **known).go()).status == 200
    refused = await Exchange(2 * 1024**2 + 1, **known).go()
    assert (refused.status, refused.read) == (413, 0)
    assert refused.sent[1]["body"].startswith(b"Error 413: A request may have at most 2 MiB. Send a large file")
    unannounced = await Exchange(2 * 1024**2 + 1, announces=False, **known).go()
    assert (unannounced.cut_off, unannounced.read, unannounced.status) == (True, 2 * 1024**2, 413)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        *((f"multipart/form-data; boundary=a; charset={name}", 400) for name in ("zlib", "undefined", "utf-16")),
        ("text/plain; charset=zlib", 400),
        ("text/plain; name*=nosuch''x", 400),
        ("application/json; charset=UTF-8", 200),
        ('text/html; charset="utf-8"', 200),
        ("multipart/form-data; boundary=a", 200),
        ("\xff", 200),
    ],
)
async def test_what_no_browser_sends_a_form_in_is_refused_before_django_reads_it(kind: str, status: int) -> None:
    """Python knows charsets that decode no text: Django failed at them, for whoever asked."""
    assert (await Exchange(3, **{"content-type": kind}).go()).status == status

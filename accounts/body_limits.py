"""Limits on the body of a request: the size of an upload for users, 1 MiB for everybody else, and a known charset.

Django writes the whole body to disk before it authenticates the request, and fails at a charset that Python
knows but that is not a text encoding.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.utils.http import parse_header_parameters
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from tidepool.units import size_words

from accounts.authentication import REALM, BasicLogin, BearerToken, XAuthToken
from core.errors import TooMany

__all__ = ["CHARSETS", "STRANGERS_BYTES", "LimitedBodies", "announced_bytes", "largest_body"]

#: Largest body in bytes without a log-in: more than any form without a file.
STRANGERS_BYTES = 1024**2
#: Charsets that are accepted. In any other, Django would decode forms and query strings.
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1"})
#: Bytes of a multipart request in addition to its files.
_AROUND_FILES = 1024**2

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def largest_body() -> int:
    """Return the largest size in bytes of a request from a user: the files and the parts around them."""
    return int(settings.TIDEPOOL_UPLOAD_MAX_BYTES) + _AROUND_FILES


class LimitedBodies:
    """ASGI middleware that refuses a body announced as too large, and stops reading one that becomes too large."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _charset(scope) not in CHARSETS:
            await _answer(send, 400, "The charset of the request is not supported: send UTF-8.")
            return
        body = _Body(scope, receive)
        if await body.fits(announced_bytes(scope)):
            answered = await self._ask(scope, body, send)
            if answered or not body.cut_off:
                return
        await _refuse(send, known=body.known)

    async def _ask(self, scope: Scope, body: "_Body", send: Send) -> bool:
        """Return whether the application answered. Django does not answer a body that ends too early."""
        answered = False

        async def tell(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self._application(scope, body.read, tell)
        return answered


class _Body:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._read = 0
        #: Whether a user sends the request; looked up only for a large body.
        self.known = False
        self.cut_off = False

    async def fits(self, count: int) -> bool:
        """Return whether the client may send that many bytes."""
        self.known = self.known or (count > STRANGERS_BYTES and await _is_known(self._scope))
        return count <= (largest_body() if self.known else STRANGERS_BYTES)

    async def read(self) -> Message:
        """Return the next part of the body, or a disconnect once the body is too large."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self.cut_off = self.cut_off or not await self.fits(self._read)
        return {"type": "http.disconnect"} if self.cut_off else message


def announced_bytes(scope: Scope) -> int:
    """Return the Content-Length of the body; 0 if there is none."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length[:19]) if length.isdigit() else 0


def _charset(scope: Scope) -> str:
    """Return the charset as Django reads it, from one header or several."""
    kinds = b",".join(value for name, value in scope["headers"] if name == b"content-type")
    try:
        return parse_header_parameters(kinds.decode("latin-1"))[1].get("charset", "utf-8").lower()
    except ValueError:  # a parameter in an unknown encoding
        return ""


@sync_to_async
def _is_known(scope: Scope) -> bool:
    """Return whether the request carries valid credentials of any kind."""
    request = ASGIRequest(scope, BytesIO())
    sessions = import_module(settings.SESSION_ENGINE)
    request.session = sessions.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    if get_user(request).is_authenticated:
        return True
    api_request = Request(request)
    try:
        return any(kind().authenticate(api_request) is not None for kind in (BearerToken, XAuthToken, BasicLogin))
    except (APIException, TooMany):
        return False


async def _refuse(send: Send, *, known: bool) -> None:
    status, sentence = 401, f"Log in before sending more than {size_words(STRANGERS_BYTES)}."
    if known:
        most = f"A request may have at most {size_words(largest_body())}."
        status, sentence = 413, f"{most} Send a large file in pieces: /api/v1/uploads/."
    await _answer(send, status, sentence, *([] if known else [(b"www-authenticate", REALM.encode())]))


async def _answer(send: Send, status: int, sentence: str, *more: tuple[bytes, bytes]) -> None:
    body = f"Error {status}: {sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

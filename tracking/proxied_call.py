"""One request and its answer, as the parts of the proxy pass them on."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from django.http import parse_cookie
from tidepool.units import size_words

__all__ = ["Answered", "Exchange", "Header", "Receive", "Scope", "Send", "TooLarge", "error_of"]

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Header = tuple[bytes, bytes]

#: Largest body of a call: MLflow's clients send 1 MB at most.
_MAX_BODY_BYTES = 16 * 1024**2
_CODES = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
}
#: Policy for MLflow's pages: only their own scripts run; they set styles by attributes, and carry a font in a sheet.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_OUR_HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


class Answered(Exception):
    """The request is answered by this status and sentence, as MLflow's clients read them."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class TooLarge(Answered):
    def __init__(self) -> None:
        super().__init__(413, f"A request to MLflow may have at most {size_words(_MAX_BODY_BYTES)}.")


def error_of(status: int, sentence: str) -> dict[str, str]:
    """Return the error in the shape that MLflow's clients read."""
    code = _CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    return {"error_code": code, "message": sentence}


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.method = str(scope["method"])
        self.path = str(scope["path"])
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.has_begun = False

    def question(self, name: str) -> str:
        """Return a value of the address; "": it is not there, or more than once."""
        values = parse_qs(self.scope["query_string"].decode("latin-1")).get(name, [])
        return values[0] if len(values) == 1 else ""

    def cookie(self, name: str) -> str:
        """Return a cookie that the browser sent; "": it did not."""
        return parse_cookie(self.headers.get(b"cookie", b"").decode("latin-1")).get(name, "")

    async def body(self) -> bytes:
        """Return the whole body. Raises TooLarge; Answered if it ends early."""
        pieces: list[bytes] = []
        size = 0
        while True:
            piece, has_more = await self.piece()
            size += len(piece)
            if size > _MAX_BODY_BYTES:
                raise TooLarge
            pieces.append(piece)
            if not has_more:
                return b"".join(pieces)

    async def piece(self) -> tuple[bytes, bool]:
        """Return the next piece of the body, and whether more follow."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Answered(400, "The request ended before its end.")
        return message.get("body", b""), message.get("more_body", False)

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        self.has_begun = True
        kept = [(name, value) for name, value in headers if name.lower() not in _OUR_HEADERS]
        if not any(name.lower() == b"cache-control" for name, _ in kept):
            kept.append((b"cache-control", b"private, no-store"))
        await self._send({"type": "http.response.start", "status": status, "headers": [*kept, *_OUR_HEADERS.items()]})

    async def write(self, piece: bytes, *, has_more: bool) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": has_more})

    async def answer(self, status: int, body: bytes, kind: bytes = b"application/json", *more: Header) -> None:
        await self.begin(status, [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more])
        await self.write(body, has_more=False)

    async def answer_json(self, values: Any, status: int = 200) -> None:
        await self.answer(status, json.dumps(values).encode())

    async def refuse(self, status: int, sentence: str) -> None:
        """Return the refusal as MLflow's clients read it, or as a page for a person's browser."""
        more = [(b"www-authenticate", b'Bearer realm="mlflow"')] if status == 401 else []
        if b"text/html" in self.headers.get(b"accept", b""):
            await self.answer(status, sentence.encode(), b"text/plain; charset=utf-8", *more)
            return
        await self.answer(status, json.dumps(error_of(status, sentence)).encode(), b"application/json", *more)

"""HTTP client based on the standard library: importing httpx would double the time of `tidepool ps`.

Connections are reused. Several threads may send at the same time.
"""

import json
import os
import select
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.parse import unquote, urlencode, urlsplit

from tidepool.client.config import proxy_of

__all__ = ["Body", "NeverSent", "Request", "Response", "Transport", "TransportError", "Wire", "body_of"]

CONNECT_SECONDS, READ_SECONDS, WRITE_SECONDS = 5.0, 30.0, 120.0
_PIECE_BYTES = 64 * 1024

#: (name, its content, media type), as one sends it.
File = tuple[str, IO[bytes], str]


class TransportError(Exception):
    """There was no response, or only a part of it."""


class NeverSent(TransportError):
    """The request was not sent at all."""


@dataclass(frozen=True)
class Body:
    media_type: str
    length: int
    #: From the beginning, each time.
    pieces: Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    method: str
    #: Path and question, as in the first line.
    target: str
    headers: Mapping[str, str]
    body: Body | None = None
    #: Timeout in seconds without a byte of the response.
    seconds: float | None = None


class Response:
    """A response whose body is read on demand. headers: case-insensitive."""

    def __init__(
        self, status_code: int, reason: str, headers: Any, body: IO[bytes], ended: Callable[[bool], object]
    ) -> None:
        self.status_code, self.reason, self.headers = status_code, reason, headers
        self._body, self._ended = body, ended
        self._content: bytes | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def content(self) -> bytes:
        return self.read()

    def read(self) -> bytes:
        """Read the whole body, and release the connection."""
        if self._content is None:
            self._content = b"".join(self.iter_bytes())
            self.close(is_whole=True)
        return self._content

    def json(self) -> Any:
        return json.loads(self.read())

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield bytes as they arrive. Raise TransportError if the connection breaks."""
        while piece := self._piece():
            yield piece

    def _piece(self) -> bytes:
        try:
            return self._body.read1(_PIECE_BYTES)  # type: ignore[attr-defined, no-any-return]
        except (OSError, HTTPException, ValueError) as error:
            raise TransportError(str(error) or type(error).__name__) from error

    def close(self, *, is_whole: bool = False) -> None:
        self._ended(is_whole)


Transport = Callable[[Request], Response]


def body_of(
    content: bytes | None = None,
    json: Any = None,
    data: Mapping[str, Any] | None = None,
    files: Mapping[str, File] | None = None,
) -> Body | None:
    """Return the body for bytes, JSON, a form, or a form with files."""
    if files is not None:
        return _form(data or {}, files)
    if json is not None:
        return _plain("application/json", _encoded(json))
    if data is not None:
        return _plain("application/x-www-form-urlencoded", urlencode(dict(data)).encode())
    return None if content is None else _plain("application/octet-stream", content)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _plain(media_type: str, content: bytes) -> Body:
    return Body(media_type, len(content), lambda: (content,))


def _form(data: Mapping[str, Any], files: Mapping[str, File]) -> Body:
    edge = os.urandom(16).hex()
    head = b"".join(_part(edge, name) + str(value).encode() + b"\r\n" for name, value in data.items())
    parts = [(_part(edge, name, file[0], file[2]), file[1]) for name, file in files.items()]
    end = f"--{edge}--\r\n".encode()

    def pieces() -> Iterator[bytes]:
        yield head
        for before, file in parts:
            yield before
            file.seek(0)
            while piece := file.read(_PIECE_BYTES):
                yield piece
            yield b"\r\n"
        yield end

    length = len(head) + sum(len(before) + file.seek(0, 2) + 2 for before, file in parts) + len(end)
    return Body(f"multipart/form-data; boundary={edge}", length, pieces)


def _part(edge: str, name: str, file: str | None = None, media_type: str = "") -> bytes:
    shown = "" if file is None else f'; filename="{_quoted(file)}"\r\nContent-Type: {media_type}'
    return f'--{edge}\r\nContent-Disposition: form-data; name="{_quoted(name)}"{shown}\r\n\r\n'.encode()


def _quoted(text: str) -> str:
    """Quote a name as browsers do."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


class Wire:
    """The connections to one site; a call sends a request. certificates: called for an https site.

    seconds: timeout of each step of a request, instead of those above.
    """

    def __init__(self, url: str, certificates: Callable[[], ssl.SSLContext], *, seconds: float | None = None) -> None:
        self._parts = urlsplit(url)
        self._proxy = proxy_of(url)
        self._certificates = certificates
        self._context: ssl.SSLContext | None = None
        self._seconds = seconds
        self._idle: list[HTTPConnection] = []

    def __call__(self, request: Request) -> Response:
        """Send the request. Raise TransportError, or its subclass NeverSent."""
        connection = self._connected()
        try:
            answer = self._exchanged(connection, request)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError | HTTPException):
                raise TransportError(str(error) or type(error).__name__) from error
            raise

        def ended(is_whole: bool) -> None:
            answer.close()
            if is_whole and not answer.will_close:
                self._idle.append(connection)
            else:
                connection.close()

        return Response(answer.status, answer.reason, answer.headers, answer, ended)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connected(self) -> HTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            # An idle connection that is readable was closed by the site.
            if connection.sock and not select.select([connection.sock], [], [], 0)[0]:
                return connection
            connection.close()
        connection = self._fresh()
        try:
            connection.connect()
        except (OSError, HTTPException) as error:
            connection.close()
            raise NeverSent(str(error) or type(error).__name__) from error
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _fresh(self) -> HTTPConnection:
        host, is_tls = self._parts.hostname or "", self._parts.scheme == "https"
        to = urlsplit(self._proxy) if self._proxy else self._parts
        seconds = self._seconds or CONNECT_SECONDS
        if not is_tls:
            # Without a port, http.client would read one from the end of an IPv6 address.
            return HTTPConnection(to.hostname or "", to.port or 80, timeout=seconds)
        self._context = self._context or self._certificates()
        connection = HTTPSConnection(to.hostname or "", to.port or 443, timeout=seconds, context=self._context)
        if self._proxy:
            connection.set_tunnel(host, self._parts.port or 443, headers=_proxy_login(self._proxy))
        return connection

    def _exchanged(self, connection: HTTPConnection, request: Request) -> HTTPResponse:
        sock, body, target, headers = connection.sock, request.body, request.target, dict(request.headers)
        if self._proxy and self._parts.scheme == "http":
            target = f"http://{self._parts.netloc}{target}"
            headers |= _proxy_login(self._proxy)
        if body is not None:
            headers = {"Content-Type": body.media_type, **headers, "Content-Length": str(body.length)}
        elif request.method not in ("GET", "HEAD"):
            headers["Content-Length"] = "0"
        sock.settimeout(self._seconds or WRITE_SECONDS)
        # A site that refuses a large body responds before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, target, body=body.pieces() if body else None, headers=headers)
        sock.settimeout(request.seconds or self._seconds or READ_SECONDS)
        return connection.getresponse()


def _proxy_login(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}

"""Limits on the waiting time and memory of a connection: uvicorn limits neither.

`HEAD_SECONDS`, `HEAD_BYTES` and `HEAD_FIELDS` limit the head of a request, and a minimum rate limits its body. The
number of connections that have not completed a head is limited: beyond `OWING_OF_ADDRESS` or `OWING`, the oldest is
closed, so complete requests are served however many connections are slow. A websocket's unread messages and pings are
limited, too, and a client that does not read is disconnected.
"""

import asyncio
from collections import defaultdict
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

__all__ = ["HEAD_BYTES", "HEAD_FIELDS", "HEAD_SECONDS", "OWING", "OWING_OF_ADDRESS", "LimitedHttp", "LimitedWebsocket"]

HEAD_SECONDS = 10.0
#: A log-in of WMLA's clients sends a web token of 1 KiB, a browser its cookies.
HEAD_BYTES = 32 * 1024
HEAD_FIELDS = 100
OWING_OF_ADDRESS = 100
#: Seconds for which a new connection only counts for `OWING`: a burst of connections is accepted before any is read.
OWING_SECONDS = 1.0
OWING = 2000
#: Seconds between checks of a body's rate, and the bytes that must arrive in between.
BODY_SECONDS = 20.0
BODY_BYTES = 10_000
#: Messages of a websocket that wait for the consumer; see `jobs` and `live.js`: a page has a few topics.
WEBSOCKET_QUESTIONS = 256
#: Seconds after the last sent data until a lost or slow browser is disconnected.
WEBSOCKET_CLOSE_SECONDS = 10.0


class _Owing:
    """Connections that owe a head, in the order in which they began to."""

    def __init__(self) -> None:
        #: Time since which each has owed a head, by the loop's clock.
        self._all: dict[LimitedHttp, float] = {}
        self._by_address: defaultdict[str, dict[LimitedHttp, float]] = defaultdict(dict)

    def add(self, connection: "LimitedHttp") -> None:
        mine, now = self._by_address[connection.address], connection.loop.time()
        for rows, most, seconds in ((mine, OWING_OF_ADDRESS, OWING_SECONDS), (self._all, OWING, 0.0)):
            oldest = next(iter(rows)) if len(rows) >= most else None
            if oldest is not None and rows[oldest] <= now - seconds:
                oldest.give_up(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests are being sent slowly.")
        self._all[connection] = self._by_address[connection.address][connection] = now

    def discard(self, connection: "LimitedHttp") -> None:
        self._all.pop(connection, None)
        mine = self._by_address[connection.address]
        mine.pop(connection, None)
        if not mine:
            del self._by_address[connection.address]


class LimitedHttp(HttpToolsProtocol):
    """Limits for one process: all its ports count together."""

    owing = _Owing()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self._owes_head = False
        self._head_bytes = self._field_bytes = self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        self._body_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._owes_head:
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()
        elif self._timer is None and self._owes_body():
            self._await_body()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._field_bytes = 0
        if not self._owes_head:  # the next request of a connection that is kept
            self._settle()
            self._await_head(begun=1)

    def on_url(self, url: bytes) -> None:
        self._take(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEAD_FIELDS:
            raise ValueError("too many fields")  # the parser's error: 400
        self._take(len(name) + len(value))
        super().on_header(name, value)

    def _take(self, size: int) -> None:
        """Count a part of the head: a whole one may come at once, with a body behind it."""
        self._field_bytes += size
        if self._field_bytes > HEAD_BYTES:
            raise ValueError("too many bytes")

    def send_400_response(self, msg: str) -> None:
        if self._field_bytes > HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        sentence = f"A request's head may have {HEAD_BYTES} bytes."
        self.give_up(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)

    def on_headers_complete(self) -> None:
        self._settle()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._settle()
        super().on_message_complete()

    def give_up(self, status: HTTPStatus, sentence: str) -> None:
        """Close the connection, with an error response if the client has started to send. (Browsers preconnect without
        sending.)"""
        self._settle()
        if self._head_bytes and not self.transport.is_closing():
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            body = f"{sentence}\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        self.transport.close()

    def _await_head(self, begun: int = 0) -> None:
        """begun: bytes that are here."""
        self.owing.add(self)
        self._owes_head, self._head_bytes = True, begun
        late = HTTPStatus.REQUEST_TIMEOUT, f"A request's head has to come within {HEAD_SECONDS:g} seconds."
        self._timer = self.loop.call_later(HEAD_SECONDS, self.give_up, *late)

    def _await_body(self) -> None:
        self._body_bytes = 0
        self._timer = self.loop.call_later(BODY_SECONDS, self._check_body)

    def _check_body(self) -> None:
        self._timer = None
        if not self._owes_body():
            return
        # While reading is paused, the site itself takes its time.
        if self._body_bytes < BODY_BYTES and not self.flow.read_paused:
            self.transport.abort()
        else:
            self._await_body()

    def _owes_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete

    def _settle(self) -> None:
        """Owe nothing for now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._owes_head:
            self._owes_head = False
            self.owing.discard(self)


class LimitedWebsocket(WebSocketsSansIOProtocol):
    def handle_ping(self) -> None:
        """Answer it, unless the answers to earlier ones are not read."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._cut_off()

    def handle_text(self, event: Frame) -> None:
        if self.queue.qsize() < WEBSOCKET_QUESTIONS:
            super().handle_text(event)
        else:
            self._cut_off()

    def handle_bytes(self, event: Frame) -> None:
        self.handle_text(event)  # binary messages are not supported: rejected as invalid JSON, like other text

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_off()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.close":
            self.loop.call_later(WEBSOCKET_CLOSE_SECONDS, self._cut_off)

    def _cut_off(self) -> None:
        """Abort the connection: an orderly close would wait until all data is read."""
        self.transport.abort()

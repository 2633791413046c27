"""The server of `up` beside connections that are slow, send without end, or do not read: a real one, over sockets."""

import asyncio
import base64
import os
import resource
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest

from webapp.embedded import connection_limits, serve
from webapp.embedded.connection_limits import HEAD_BYTES, HEAD_FIELDS, OWING_OF_ADDRESS

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
WEBSOCKET = (
    HEAD
    + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    + base64.b64encode(os.urandom(16))
    + b"\r\n\r\n"
)
#: Seconds to wait for an answer: many, because the test keeps the machine busy.
PATIENCE_SECONDS = 30.0


async def _application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers a request with its body; takes a websocket, and reads nothing of it."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.Event().wait()
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Port of a server as `up` starts it, but for what it serves."""
    config = serve._config(None)
    config.app = _application
    server = serve._Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = server.force_exit = True
    for task_ in list(server.server_state.tasks):
        task_.cancel()
    await task


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connection(port: int, *pieces: bytes) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    return reader, writer


async def _status(streams: Streams) -> int | None:
    """Return the status of the answer; None: it was closed without one."""
    reader, writer = streams
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await reader.readline()
    except ConnectionError:
        return None
    finally:
        writer.close()
    return int(line.split()[1]) if line else None


async def _flood(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_head_that_does_not_end_is_refused_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.05)
    silent, slow = await _connection(port), await _connection(port, HEAD)
    assert await _status(silent) is None
    assert await _status(slow) == HTTPStatus.REQUEST_TIMEOUT


async def test_the_next_request_of_a_connection_has_as_long(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = await _connection(port, HEAD + b"\r\n")
    assert await streams[0].readuntil(b"\r\n\r\n0\r\n\r\n")
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.05)
    streams[1].write(HEAD)
    assert await _status(streams) == HTTPStatus.REQUEST_TIMEOUT


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"X: " + b"a" * 2 * HEAD_BYTES, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"X: " + b"a" * 2 * HEAD_BYTES + b"\r\n\r\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"X: a\r\n" * (HEAD_FIELDS + 1), HTTPStatus.BAD_REQUEST),
    ],
)
async def test_a_head_takes_little_memory(port: int, head: bytes, status: HTTPStatus) -> None:
    assert await _status(await _connection(port, HEAD, head)) == status


async def test_many_that_come_at_once_are_all_let_in(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server accepts all connections before it reads any. Opening them one by one may take longer than a second."""
    monkeypatch.setattr(connection_limits, "OWING_SECONDS", PATIENCE_SECONDS)
    come = [await _connection(port) for _ in range(2 * OWING_OF_ADDRESS)]
    for _, writer in come:
        writer.write(HEAD + b"\r\n")
    assert {await _status(streams) for streams in come} == {HTTPStatus.OK}


async def test_who_has_owed_a_head_longest_makes_room(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "OWING_SECONDS", 0.0)
    slow = [await _connection(port, HEAD) for _ in range(OWING_OF_ADDRESS)]
    assert await _status(await _connection(port, HEAD + b"\r\n")) == HTTPStatus.OK
    newer = [await _connection(port, HEAD) for _ in range(5)]
    assert {await _status(streams) for streams in slow[:5]} == {HTTPStatus.SERVICE_UNAVAILABLE}
    for reader, writer in (*slow[5:], *newer):
        writer.write(b"\r\n")
        assert await _status((reader, writer)) == HTTPStatus.OK


async def test_a_body_keeps_a_pace(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(connection_limits, "BODY_BYTES", 2)
    length = b"Content-Length: 1000000\r\n\r\n"
    assert await _status(await _connection(port, HEAD + length, b"a")) is None
    body = b"a" * 1_000_000
    assert await _status(await _connection(port, HEAD + length, body)) == HTTPStatus.OK


@pytest.mark.parametrize("opcode", [1, 2, 9], ids=["text", "bytes", "ping"])
async def test_a_websocket_that_floods_or_does_not_read_is_cut_off(port: int, opcode: int) -> None:
    reader, writer = await _connection(port, WEBSOCKET)
    assert (await reader.readline()).startswith(b"HTTP/1.1 101")
    transport = writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]
    frame = bytes([0x80 | opcode, 0x80 | 125]) + bytes(4) + b"a" * 125
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(_flood(writer, frame * 1000), PATIENCE_SECONDS)


def test_the_server_may_open_more_files_than_is_usual() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        serve.raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, serve.OPEN_FILES), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_websocket_has_no_compression_of_its_own(port: int) -> None:
    offer = WEBSOCKET.replace(b"Upgrade: w", b"Sec-WebSocket-Extensions: permessage-deflate\r\nUpgrade: w")
    reader, writer = await _connection(port, offer)
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert b" 101 " in head
    assert b"permessage-deflate" not in head.lower()

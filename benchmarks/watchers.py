"""Many websocket clients in one process, for `benchmarks.websockets`. They report when an event reached all of them.

    python -m benchmarks.watchers PORT COUNT COOKIE AT_ONCE

Writes "connected SECONDS" once the server has answered what all subscribe to, and then a line of JSON per event: the
milliseconds from its `sent` to each client. The clients are as thin as can be, for they share the machine with what is
measured.
"""

import asyncio
import base64
import json
import os
import re
import resource
import struct
import sys
import time

import uvloop

SENT = re.compile(rb'"sent": ([0-9.]+)')
TEXT, PING, PONG = 1, 9, 10
#: Marker in place of a frame's length: the two bytes that follow hold it.
LONGER = 126
SUBSCRIBE = json.dumps({"subscribe": "cluster", "after": 0}).encode()


class Watcher(asyncio.Protocol):
    def __init__(self, handshake: bytes, arrivals: "Arrivals") -> None:
        self.handshake = handshake
        self.arrivals = arrivals
        #: Until the server has answered the first subscription.
        self.heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = False
        self.head = self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        self.transport.write(self.handshake)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            self.head += data
            if b"\r\n\r\n" not in self.head:
                return
            assert self.head.startswith(b"HTTP/1.1 101"), self.head[:200]
            self.transport.write(masked(SUBSCRIBE))
            self.is_open = True
            data = self.head.partition(b"\r\n\r\n")[2]
        self.rest += data
        while frame := self._next_frame():
            opcode, payload = frame
            if opcode == PING:
                self.transport.write(masked(payload, PONG))
            elif opcode == TEXT and not self.heard.done():
                self.heard.set_result(None)
            for sent in SENT.findall(payload):
                self.arrivals.add(sent)

    def _next_frame(self) -> tuple[int, bytes] | None:
        """Frames of a server: not masked, and here never longer than 65,535 bytes."""
        if len(self.rest) < 4:
            return None
        length, start = self.rest[1], 2
        if length == LONGER:
            length, start = int.from_bytes(self.rest[2:4]), 4
        if len(self.rest) < start + length:
            return None
        opcode, payload = self.rest[0] & 15, self.rest[start : start + length]
        self.rest = self.rest[start + length :]
        return opcode, payload

    def connection_lost(self, error: Exception | None) -> None:
        if not self.arrivals.over:
            print(f"the server closed a connection: {error}", file=sys.stderr, flush=True)
            os._exit(1)  # the loop would only log it


class Arrivals:
    """Latencies of each event, by the moment at which it was sent, until it has come to all."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.over = False
        self.latencies: dict[bytes, list[float]] = {}

    def add(self, sent: bytes) -> None:
        row = self.latencies.setdefault(sent, [])
        row.append(1000 * (time.time() - float(sent)))
        if len(row) == self.clients:
            print(json.dumps(self.latencies.pop(sent)), flush=True)


def masked(payload: bytes, opcode: int = TEXT) -> bytes:
    """A short frame as clients send it; a mask of zeros leaves the payload as it is."""
    return struct.pack("!BB", 0x80 | opcode, 0x80 | len(payload)) + bytes(4) + payload


def handshake(port: int, cookie: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /ws/live/ HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Origin: http://127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        f"Cookie: {cookie}",
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


async def watch(port: int, count: int, cookie: str, at_once: int) -> None:
    loop, arrivals, gate = asyncio.get_running_loop(), Arrivals(count), asyncio.Semaphore(at_once)
    begun = loop.time()

    async def connect() -> None:
        async with gate:
            _, watcher = await loop.create_connection(
                lambda: Watcher(handshake(port, cookie), arrivals), "127.0.0.1", port
            )
            await watcher.heard

    await asyncio.gather(*(connect() for _ in range(count)))
    print("connected", loop.time() - begun, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the benchmark closes it
    arrivals.over = True


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    uvloop.run(watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))

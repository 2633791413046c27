"""Strangers who reach the ports of a training: what they forge, and what becomes of it.

    python -m tests.runtime.strangers forge ADDRESS PORT...      a JSON object: message -> port -> what became of it
    python -m tests.runtime.strangers crowd ADDRESS PORT COUNT   opens so many connections, says so, keeps them

They know all but the secret: job 1, attempt 1, the names of hosts and ranks.
"""

import json
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from tidepool.handshake import Caller, HandshakeError
from tidepool.protocol import (
    AskFirst,
    Join,
    MemberMessage,
    Retire,
    ShimJoin,
    StoreRequest,
    encode,
)

#: Seconds that a stranger waits for a connection, and for an answer.
_SECONDS = 1.0
_JOIN = Join(1, 1, "gpu2.0.1", "gpu2", 0, 4711, generation=0, ready=True, lead_number=9)
#: What each of them sends as its first bytes.
FORGED: dict[str, bytes] = {
    "retire": encode(Retire(1, 1, retire=True)),
    "shim's join, all ranks dead": encode(ShimJoin(1, 1, "gpu2", [])),
    "rank's join": encode(_JOIN),
    "rank's join, and the end": encode(_JOIN) + encode(MemberMessage("finished", 1, 100)),
    "rank's join, and a broken collective": encode(_JOIN) + encode(MemberMessage("broken", 1)),
    "question who is first": encode(AskFirst(1, 1, asks_first="gpu2.0.1")),
    "key in the store": msgspec.json.encode(StoreRequest("set", ["1/2/place/0"], [b"10.0.0.1 1 1 cpu x"])) + b"\n",
    "key in a TCPStore": bytes([0, *(4).to_bytes(4, "little")]),
    "state": (2).to_bytes(8, "big") + b"{}\x01",
    "line without an end": b"x" * 5_000_000,
    "zeros": bytes(5000),
}


def forge(address: str, ports: Sequence[int]) -> dict[str, dict[int, str]]:
    """Send each message to each port. Return what became of it, "answered" if it was taken for the training's."""
    found = {name: {port: _sent(address, port, message) for port in ports} for name, message in FORGED.items()}
    for name, secret in (("handshake with another secret", "another"), ("handshake with an empty secret", "")):
        found[name] = {port: _shaken(address, port, secret) for port in ports}
    return found


def crowd(address: str, port: int, count: int) -> list[socket.socket]:
    """Open connections and say nothing."""
    return [socket.create_connection((address, port), 30.0) for _ in range(count)]


def _sent(address: str, port: int, message: bytes) -> str:
    def send(connection: socket.socket) -> str:
        connection.sendall(message)
        return "answered" if connection.recv(4096) else "closed"

    return _said(address, port, send)


def _said(address: str, port: int, say: Callable[[socket.socket], str]) -> str:
    """Return what `say` returns, or in one or two words why it could not say it."""
    try:
        connection = socket.create_connection((address, port), _SECONDS)
    except TimeoutError:
        return "kept out"
    except OSError:
        return "refused"
    with connection:
        try:
            return say(connection)
        except TimeoutError:
            return "unread"
        except OSError:
            return "closed"


def _shaken(address: str, port: int, secret: str) -> str:
    """Try a handshake and go on whatever the listener proves."""

    def shake(connection: socket.socket) -> str:
        caller = Caller(secret, "coordinator")
        connection.sendall(caller.hello)
        proof = connection.recv(4096)
        with suppress(HandshakeError):
            caller.feed(proof)
            return "answered" if proof else "closed"
        connection.sendall(b"0" * 64 + b"\n" + FORGED["retire"])
        return "answered" if connection.recv(4096) else "closed"

    return _said(address, port, shake)


def _main(what: str, address: str, *numbers: str) -> None:
    if what == "forge":
        sys.stdout.write(json.dumps(forge(address, [*map(int, numbers)])))
        return
    held = crowd(address, int(numbers[0]), int(numbers[1]))
    sys.stdout.write(f"{len(held)} connections\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _main(*sys.argv[1:])

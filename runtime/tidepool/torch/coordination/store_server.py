"""The store in which the ranks of an attempt meet, held by its coordinator.

A key lives as long as the connection that wrote it last: ranks keep theirs as long as the group that they have met for.
"""

import logging
import selectors
import socket
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tidepool.json_sockets import Lines, send_line
from tidepool.protocol import StoreAnswer, StoreRequest

__all__ = ["KeyValues", "StoreServer"]

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoreRequest).decode


@dataclass(frozen=True)
class _Waiting:
    caller: int
    request: StoreRequest


class KeyValues:
    """Keys and values of several callers, which numbers tell apart; without sockets."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._writers: dict[str, int] = {}
        self._waiting: list[_Waiting] = []

    def answer(self, caller: int, request: StoreRequest) -> list[tuple[int, StoreAnswer]]:
        """Carry a request out, and return the answers that can be given now, each with its caller."""
        if request.op == "get":
            if not self._has(request.keys):
                self._waiting.append(_Waiting(caller, request))
                return []
            return [(caller, self._found(request))]
        answer, written = self._carried_out(request)
        for key in written:
            self._writers[key] = caller
        return [(caller, answer), *(self._answered() if written else [])]

    def forget(self, caller: int) -> None:
        """Remove what the caller waits for, and the keys that it was the last to write."""
        self._waiting = [waiting for waiting in self._waiting if waiting.caller != caller]
        for key in [key for key, writer in self._writers.items() if writer == caller]:
            del self.values[key], self._writers[key]

    def _has(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def _found(self, request: StoreRequest) -> StoreAnswer:
        return StoreAnswer([self.values[key] for key in request.keys])

    def _answered(self) -> list[tuple[int, StoreAnswer]]:
        """Return the answers to requests whose keys have come meanwhile."""
        ready = [waiting for waiting in self._waiting if self._has(waiting.request.keys)]
        if ready:
            self._waiting = [waiting for waiting in self._waiting if waiting not in ready]
        return [(waiting.caller, self._found(waiting.request)) for waiting in ready]

    def _carried_out(self, request: StoreRequest) -> tuple[StoreAnswer, list[str]]:
        """Return the answer to a request that waits for nothing, and the keys that it has written."""
        keys, values = request.keys, request.values
        if request.op == "check":
            return StoreAnswer(number=int(self._has(keys))), []
        if request.op == "count":
            return StoreAnswer(number=len(self.values)), []
        if request.op == "delete":
            self._writers.pop(keys[0], None)
            return StoreAnswer(number=int(self.values.pop(keys[0], None) is not None)), []
        if request.op == "add":
            number = int(self.values.get(keys[0], b"0")) + request.number
            self.values[keys[0]] = str(number).encode()
            return StoreAnswer(number=number), keys
        if request.op == "compare_set":
            return self._compared(keys[0], *values)
        for key, value in zip(keys, values, strict=True):
            self.values[key] = self.values.get(key, b"") + value if request.op == "append" else value
        return StoreAnswer(), keys

    def _compared(self, key: str, expected: bytes, wanted: bytes) -> tuple[StoreAnswer, list[str]]:
        """Set the key if it has the expected value, or is missing and none is expected, as a TCPStore does."""
        present = self.values.get(key)
        if present == expected or (present is None and not expected):
            self.values[key] = wanted
            return StoreAnswer([wanted]), [key]
        return StoreAnswer([expected if present is None else present]), []


@dataclass
class _Client:
    connection: socket.socket
    lines: Lines = field(default_factory=Lines)


class StoreServer:
    """Serves ranks that have proven themselves, in the loop of their coordinator. The selector's data are callbacks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._keys = KeyValues()
        self._clients: dict[int, _Client] = {}
        self._number = 0

    def admit(self, connection: socket.socket) -> None:
        """Serve a rank from now on."""
        connection.setblocking(False)
        self._number += 1
        number = self._number
        self._clients[number] = _Client(connection)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._read, number))

    def _read(self, number: int) -> None:
        client = self._clients.get(number)
        if client is None:
            return
        lines = client.lines.receive(client.connection)
        if lines is None:
            self._drop(number)
        else:
            self._serve(number, lines)

    def _serve(self, number: int, lines: list[bytes]) -> None:
        for line in lines:
            try:
                answers = self._keys.answer(number, _decode(line))
            except (msgspec.DecodeError, ValueError, LookupError, TypeError) as error:
                answers = [(number, StoreAnswer(error=f"the store refuses a request: {error}"))]
            for caller, answer in answers:
                client = self._clients.get(caller)
                if client is not None and not send_line(client.connection, _encode(answer) + b"\n"):
                    self._drop(caller)

    def _drop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._keys.forget(number)
        self._selector.unregister(client.connection)
        client.connection.close()

"""A rank's connection to the store of its training, as torch's process groups use one."""

import socket
import threading
from datetime import timedelta

import msgspec
from torch._C._distributed_c10d import Store

from tidepool.handshake import introduce
from tidepool.json_sockets import Lines, PeerError, connect_tcp, set_tcp_options
from tidepool.protocol import StoreAnswer, StoreRequest

__all__ = ["JobStore"]

_CONNECT_SECONDS = 5.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoreAnswer).decode


class JobStore(Store):
    """A store at the coordinator's address, which proves that it is the training's, as does this rank.

    Requests raise RuntimeError, as a TCPStore's do, when the coordinator has gone, or a key does not come in time; the
    store cannot be used any longer then.
    """

    def __init__(self, address: str, port: int, secret: str, timeout: timedelta) -> None:
        """Connect. Raises OSError."""
        super().__init__()
        self._place = address, port, secret, timeout
        #: Nothing in torch keeps the Python part of a clone.
        self._clones: list[JobStore] = []
        self._timeout_seconds = timeout.total_seconds()
        self._lock = threading.Lock()
        self._lines = Lines()
        #: Value that came with the answer to the last request, if that was to wait: gloo asks for it next.
        self._waited: dict[str, bytes] = {}
        self._connection: socket.socket = connect_tcp((address, port), _CONNECT_SECONDS)
        try:
            introduce(self._connection, secret, "store")
            set_tcp_options(self._connection)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()
        for clone in self._clones:
            clone.close()

    # The names and arguments of the methods are torch's.

    def get(self, key: str) -> bytes:
        waited = self._waited.pop(key, None)
        return self._ask(StoreRequest("get", [key])).values[0] if waited is None else waited

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._ask(StoreRequest("get", keys)).values

    def set(self, key: str, value: bytes | str) -> None:
        self._ask(StoreRequest("set", [key], [_bytes(value)]))

    def multi_set(self, keys: list[str], values: list[bytes | str]) -> None:
        self._ask(StoreRequest("set", keys, [*map(_bytes, values)]))

    def append(self, key: str, value: bytes | str) -> None:
        self._ask(StoreRequest("append", [key], [_bytes(value)]))

    def add(self, key: str, amount: int) -> int:
        return self._ask(StoreRequest("add", [key], number=amount)).number

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        return self._ask(StoreRequest("compare_set", [key], [_bytes(expected), _bytes(desired)])).values[0]

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(StoreRequest("check", keys)).number)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = None if timeout is None else timeout.total_seconds()
        values = self._ask(StoreRequest("get", keys), seconds).values
        self._waited = dict(zip(keys, values, strict=True))

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(StoreRequest("delete", [key])).number)

    def num_keys(self) -> int:
        return self._ask(StoreRequest("count")).number

    def clone(self) -> "JobStore":
        """Return another connection to the store, which closes with this one."""
        try:
            self._clones.append(JobStore(*self._place))
        except OSError as error:
            raise RuntimeError(f"the training's store takes no other connection: {error}") from error
        return self._clones[-1]

    def has_extended_api(self) -> bool:
        return True

    def _ask(self, request: StoreRequest, seconds: float | None = None) -> StoreAnswer:
        with self._lock:
            self._waited = {}
            try:
                self._connection.settimeout(self._timeout_seconds if seconds is None else seconds)
                self._connection.sendall(_encode(request) + b"\n")
                answer = _decode(self._next_line())
            except (OSError, PeerError) as error:
                self.close()  # an answer that comes later would be taken for that to another request
                raise RuntimeError(f"the training's store does not answer to {request.op}: {error}") from error
        if answer.error:
            raise RuntimeError(answer.error)
        return answer

    def _next_line(self) -> bytes:
        while True:
            received = self._connection.recv(65536)
            if not received:
                raise ConnectionResetError("the coordinator has gone")
            if lines := self._lines.feed(received):
                return lines[0]


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()

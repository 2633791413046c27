"""Sockets between Tidepool's processes, with JSON lines: unix sockets on one host, TCP between hosts."""

import hashlib
import os
import selectors
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Lines",
    "PeerError",
    "Subscribers",
    "connect",
    "connect_tcp",
    "is_connected_to_itself",
    "is_out_of_sight",
    "listen",
    "request",
    "send_line",
    "set_tcp_options",
    "socket_path",
    "socket_remover",
    "tcp_sockets",
]

#: The kernel's limit is 107; the rest is room for a temporary suffix.
_PATH_LIMIT_BYTES = 100
_LINE_LIMIT_BYTES = 4 * 1024 * 1024
#: Seconds of silence after which TCP probes a peer: a host without power or network closes no connection.
_PROBE_AFTER_SECONDS = 2
_PROBE_EVERY_SECONDS = 1
#: Seconds without a response after which the connection counts as lost. Kernels respond even if their processes are
#: busy.
_SILENCE_SECONDS = 6


class PeerError(RuntimeError):
    """The peer sent an invalid line, or disconnected within a response."""


def socket_path(path: Path) -> Path:
    """Return `path` or, if it is too long for a unix socket, a substitute in a private temporary folder."""
    if len(os.fsencode(path)) <= _PATH_LIMIT_BYTES:
        return path
    folder = Path(tempfile.gettempdir()) / f"tidepool-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or folder.is_symlink():
        raise PeerError(f"{folder} is not private: remove it, or use a shorter TIDEPOOL_HOME")
    return folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:24]}.sock"


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`, accessible to this user only; an older one is replaced atomically."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = f"{path}.new"
    Path(fresh).unlink(missing_ok=True)
    before = os.umask(0o077)
    try:
        listener.bind(fresh)
    finally:
        os.umask(before)
    listener.listen(16)
    os.rename(fresh, path)
    return listener


def socket_remover(path: Path) -> Callable[[], None]:
    """Return a function that removes the socket at `path`, unless another one has replaced it.

    A process behind a wall cannot: the executor does it for that one.
    """
    made = path.stat().st_ino

    def remove() -> None:
        with suppress(FileNotFoundError, PermissionError):
            if path.stat().st_ino == made:
                path.unlink()

    return remove


def connect(path: Path, timeout_seconds: float = 5.0) -> socket.socket:
    """Connect to a unix socket. Raise OSError (FileNotFoundError, ConnectionRefusedError) if nothing listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_seconds)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def request(path: Path, line: bytes, timeout_seconds: float = 5.0) -> bytes:
    """Send one line and return the line that answers it."""
    lines = Lines()
    with connect(path, timeout_seconds) as connection:
        connection.sendall(line)
        while True:
            received = connection.recv(65536)
            if not received:
                raise PeerError(f"{path}: closed without an answer")
            answers = lines.feed(received)
            if answers:
                return answers[0]


def connect_tcp(address: tuple[str, int], timeout_seconds: float) -> socket.socket:
    """Return a TCP connection. Raise OSError if nothing listens."""
    connection = socket.create_connection(address, timeout_seconds)
    if is_connected_to_itself(connection):
        connection.close()
        raise ConnectionRefusedError(f"nobody listens at {address}")
    return connection


def is_connected_to_itself(connection: socket.socket) -> bool:
    """Return whether TCP has connected the socket with itself, which can happen if nothing listens."""
    return bool(connection.getsockname() == connection.getpeername())


def is_out_of_sight(connection: socket.socket) -> bool:
    """Return whether the peer of a unix socket is in a PID namespace whose processes this process cannot see."""
    credentials = struct.Struct("3i")  # pid, in this process's namespace or 0; uid; gid
    pid, _, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return bool(pid == 0)


def set_tcp_options(connection: socket.socket) -> None:
    """Disable Nagle's algorithm, and detect a lost peer host within seconds instead of hours."""
    tcp = socket.IPPROTO_TCP
    connection.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_EVERY_SECONDS)
    connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE_SECONDS)


def tcp_sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield every TCP socket of this process: its descriptor, and a duplicate that is closed after the iteration."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, like the listing's own descriptor
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as duplicate:
                    if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM:
                        yield int(name), duplicate


def send_line(connection: socket.socket, line: bytes) -> bool:
    """Send without blocking. False: incomplete, and the client that does not read is to be dropped."""
    try:
        return connection.send(line) == len(line)
    except OSError:
        return False


class Lines:
    """Cuts a byte stream into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > _LINE_LIMIT_BYTES:
            raise PeerError(f"a line of more than {_LINE_LIMIT_BYTES} bytes")
        return lines

    def receive(self, connection: socket.socket) -> list[bytes] | None:
        """Read the arrived lines. None: the peer has disconnected, or sends no lines."""
        try:
            received = connection.recv(65536)
            lines = self.feed(received)
        except (OSError, PeerError):
            return None
        return lines if received else None


@dataclass
class _Client:
    connection: socket.socket
    lines: Lines = field(default_factory=Lines)


class Subscribers:
    """Clients of a listening socket: each receives every change and may send lines.

    first_line: for a new client. on_line: gets each line that a client sends. The selector's data are callbacks.
    """

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        first_line: Callable[[], bytes],
        on_line: Callable[[bytes], None],
    ) -> None:
        self._listener = listener
        self._selector = selector
        self._first_line = first_line
        self._on_line = on_line
        self._clients: list[_Client] = []
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def send(self, line: bytes) -> None:
        for client in [*self._clients]:
            self._send(client, line)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        client = _Client(connection)
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(client))
        self._send(client, self._first_line())

    def _receive(self, client: _Client) -> None:
        lines = client.lines.receive(client.connection)
        if lines is None:
            self._forget(client)
        for line in lines or []:
            self._on_line(line)

    def _send(self, client: _Client, line: bytes) -> None:
        """Send to a client, and drop one that does not read; it can connect again."""
        if not send_line(client.connection, line):
            self._forget(client)

    def _forget(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.connection)
            client.connection.close()

"""The executor's ends of the sockets of shims and coordinators. Nothing here waits for the other side."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from tidepool import link
from tidepool.protocol import DesiredJob, DesiredMembership, ProtocolError, ShimStatus, decode, encode

__all__ = ["CoordinatorLink", "ShimLink", "connect_coordinator", "connect_shim"]

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0


class _Link:
    """A connection that sends each desired state once."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.open = True
        self._lines = link.Lines()
        self._sent: bytes | None = None

    def close(self) -> None:
        self.open = False
        self.connection.close()

    def _send_once(self, line: bytes) -> None:
        if line == self._sent or not self.open:
            return
        try:
            complete = self.connection.send(line) == len(line)
        except OSError:
            complete = False
        if complete:
            self._sent = line
        else:
            self.close()

    def _receive(self) -> list[bytes]:
        """Whole lines that have arrived; closes at the end of the stream."""
        lines: list[bytes] = []
        while self.open:
            try:
                received = self.connection.recv(65536)
                lines += self._lines.feed(received)
            except BlockingIOError:
                break
            except (OSError, link.LinkError):
                received = b""
            if not received:
                self.close()
        return lines


class ShimLink(_Link):
    #: What the shim said last; None until it has spoken.
    status: ShimStatus | None = None

    def tell(self, desired: DesiredJob) -> None:
        self._send_once(encode(desired))

    def hear(self) -> bool:
        """Whether the status changed."""
        before = self.status
        for line in self._receive():
            try:
                self.status = decode(ShimStatus, line)
            except ProtocolError as error:
                logger.warning("a shim is not understood: %s", error)
        return self.status != before

    def carries_out(self, desired: DesiredJob) -> bool:
        status = self.status
        return (
            status is not None and status.target_revision >= desired.target_revision and status.stopping == desired.stop
        )


class CoordinatorLink(_Link):
    def tell(self, desired: DesiredMembership) -> None:
        self._send_once(encode(desired))

    def hear(self) -> None:
        """Notice whether it is gone."""
        self._receive()


def connect_shim(path: Path) -> ShimLink | None:
    """None where no shim listens."""
    connection = _connect(path)
    return None if connection is None else ShimLink(connection)


def connect_coordinator(path: Path) -> CoordinatorLink | None:
    connection = _connect(path)
    return None if connection is None else CoordinatorLink(connection)


def _connect(path: Path) -> socket.socket | None:
    try:
        return link.connect(path, _CONNECT_SECONDS)
    except (FileNotFoundError, ConnectionRefusedError):
        return None

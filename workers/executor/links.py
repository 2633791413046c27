"""Executor ends of the sockets of shims and coordinators. Nothing here waits for the other side."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Self

from tidepool import link
from tidepool.protocol import DesiredJob, DesiredMembership, ProtocolError, ShimStatus, decode, encode

__all__ = ["CoordinatorLink", "ShimLink"]

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0


class _Link:
    """A connection that sends each desired state once."""

    @classmethod
    def connect(cls, path: Path) -> Self | None:
        """None where nobody listens."""
        try:
            return cls(link.connect(path, _CONNECT_SECONDS))
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.open = True
        self._lines = link.Lines()
        self._sent: bytes | None = None

    def close(self) -> None:
        self.open = False
        self.connection.close()

    def send(self, desired: DesiredJob | DesiredMembership) -> None:
        line = encode(desired)
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

    def _receive_lines(self) -> list[bytes]:
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
    #: The newest status from the shim; None before the first.
    status: ShimStatus | None = None

    def receive(self) -> None:
        for line in self._receive_lines():
            try:
                self.status = decode(ShimStatus, line)
            except ProtocolError as error:
                logger.warning("a shim is not understood: %s", error)

    def carries_out(self, desired: DesiredJob) -> bool:
        status = self.status
        return (
            status is not None and status.target_revision >= desired.target_revision and status.stopping == desired.stop
        )


class CoordinatorLink(_Link):
    def receive(self) -> None:
        """Notice whether the coordinator is gone; it sends nothing."""
        self._receive_lines()

"""Connections of the executor to the shims and coordinators of this host."""

import logging
import socket
import time
from pathlib import Path
from typing import Self

from tidepool import json_sockets
from tidepool.protocol import DesiredJob, DesiredMembership, ProtocolError, ShimStatus, decode, encode

from workers.executor.saved_state import JobKey

__all__ = ["Link"]

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0


class Link:
    """Connection to a shim or a coordinator. It sends each desired state once."""

    #: Newest status of a shim; None before the first. A coordinator sends none.
    status: ShimStatus | None = None

    @classmethod
    def connect(cls, path: Path, job: JobKey) -> Self | None:
        """Connect; return None if no process listens. job: job and attempt of the process."""
        try:
            return cls(json_sockets.connect(path, _CONNECT_SECONDS), job)
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    def __init__(self, connection: socket.socket, job: JobKey) -> None:
        self._job = job
        #: Monotonic time since which its process has had time for a first status.
        self.silent_since = time.monotonic()
        connection.setblocking(False)
        self.connection = connection
        self.open = True
        self._lines = json_sockets.Lines()
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

    def receive(self) -> None:
        """Read the messages that have arrived; close at the end of the stream."""
        while self.open:
            try:
                received = self.connection.recv(65536)
                lines = self._lines.feed(received)
            except BlockingIOError:
                break
            except (OSError, json_sockets.PeerError):
                received, lines = b"", []
            for line in lines:
                self._take(line)
            if not received:
                self.close()

    def _take(self, line: bytes) -> None:
        """Take a status, unless it is about another training: a script can have its guardian say anything."""
        try:
            status = decode(ShimStatus, line)
        except ProtocolError as error:
            logger.warning("job=%s attempt=%s: invalid message of a shim: %s", *self._job, error)
            return
        others = {(rank.job, rank.attempt) for rank in status.ranks} - {self._job}
        if (status.job, status.attempt) == self._job and not others:
            self.status = status
        else:
            logger.warning("job=%s attempt=%s: a status about another training was dropped", *self._job)

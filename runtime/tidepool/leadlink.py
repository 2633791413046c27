"""A shim's connection to its job's coordinator, which has it kill ranks that no longer respond.

The coordinator may be on another host, and be replaced at any time: `coordinator.json` in the job's folder says where
it is. Nothing here ever waits: the shim's loop calls `turn`, and what it selects on calls the rest.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tidepool.backoff import Backoff
from tidepool.link import Lines, LinkError, between_hosts
from tidepool.protocol import ProtocolError, ShimCommand, ShimJoin, decode, encode

__all__ = ["LeadLink"]

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0


class LeadLink:
    def __init__(
        self,
        folder: Path,
        selector: selectors.BaseSelector,
        join: Callable[[], ShimJoin],
        on_command: Callable[[ShimCommand], None],
    ) -> None:
        self._place = folder / "coordinator.json"
        self._selector = selector
        self._join, self._on_command = join, on_command
        self._link: socket.socket | None = None
        self._connected = False
        self._lines = Lines()
        self._backoff = Backoff(first_seconds=0.1, longest_seconds=2.0)
        #: Monotonic time of the next attempt, or of giving the present one up; None: connected.
        self.next_attempt_at: float | None = time.monotonic()

    def turn(self) -> None:
        if self.next_attempt_at is None or self.next_attempt_at > time.monotonic():
            return
        self._drop()
        self._connect()

    def send_join(self) -> None:
        """Send the join message, also again whenever its content has changed."""
        if self._link is None or not self._connected:
            return
        line = encode(self._join())
        try:
            sent = self._link.send(line)
        except OSError:
            sent = 0
        if sent < len(line):
            self._drop()

    def _connect(self) -> None:
        self._backoff.add(time.monotonic())
        self.next_attempt_at = self._backoff.until
        try:
            place = json.loads(self._place.read_text())
            address = str(place["address"]), int(place["port"])
        except (OSError, ValueError, KeyError, TypeError):  # not there yet, or being replaced
            return
        if place.get("ended"):
            return
        self._link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._link.setblocking(False)
        if self._link.connect_ex(address) in (0, errno.EINPROGRESS):
            self.next_attempt_at = time.monotonic() + _CONNECT_SECONDS
            self._selector.register(self._link, selectors.EVENT_WRITE, self._begin)
        else:
            self._link.close()
            self._link = None

    def _begin(self) -> None:
        """The attempt has come to its end, well or not."""
        if self._link is None:
            return
        failed = self._link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # Where nobody listens on this machine, TCP may have met itself.
        if failed or self._link.getsockname() == self._link.getpeername():
            logger.debug("no coordinator: %s", os.strerror(failed))
            self._drop()
            return
        self._selector.modify(self._link, selectors.EVENT_READ, self._read)
        between_hosts(self._link)
        self._connected, self._lines = True, Lines()
        self.next_attempt_at = None
        self._backoff.reset()
        self.send_join()

    def _read(self) -> None:
        if self._link is None:
            return
        try:
            received = self._link.recv(65536)
            lines = self._lines.feed(received)
        except (OSError, LinkError):
            received, lines = b"", []
        if not received:
            self._drop()
        for line in lines:
            try:
                self._on_command(decode(ShimCommand, line))
            except ProtocolError as error:
                logger.warning("dropped a coordinator's line: %s", error)

    def _drop(self) -> None:
        if self._link is None:
            return
        self._selector.unregister(self._link)
        self._link.close()
        self._link, self._connected = None, False
        self.next_attempt_at = time.monotonic() + (self._backoff.pause_seconds or self._backoff.first_seconds)

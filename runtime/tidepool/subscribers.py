"""Clients of a shim's socket: each receives every change and may send lines."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from tidepool.link import Lines, LinkError

__all__ = ["Subscribers"]


@dataclass
class _Client:
    link: socket.socket
    lines: Lines = field(default_factory=Lines)


class Subscribers:
    """Callbacks for a selector. first_line: what a new client is sent. on_line: gets each line that a client sends."""

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
        link, _ = self._listener.accept()
        link.setblocking(False)
        client = _Client(link)
        self._clients.append(client)
        self._selector.register(link, selectors.EVENT_READ, lambda: self._receive(client))
        self._send(client, self._first_line())

    def _receive(self, client: _Client) -> None:
        try:
            received = client.link.recv(65536)
            lines = client.lines.feed(received)
        except (OSError, LinkError):
            received, lines = b"", []
        for line in lines:
            self._on_line(line)
        if not received:
            self._forget(client)

    def _send(self, client: _Client, line: bytes) -> None:
        """A client that does not read is dropped; it can connect again."""
        try:
            sent = client.link.send(line)
        except OSError:
            sent = 0
        if sent < len(line):
            self._forget(client)

    def _forget(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.link)
            client.link.close()

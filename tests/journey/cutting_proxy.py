"""A TCP proxy that passes everything in pieces of 1 kB, and cuts the connections of streams, each a piece later."""

import socket
import threading
from contextlib import suppress
from types import TracebackType

__all__ = ["CuttingProxy"]

_PIECE_BYTES = 1024
#: Number of pieces of the first stream that pass: the headers and the job's first state.
_FIRST_PIECES = 4


class CuttingProxy:
    """On a port of its own before a site on this machine. `cuts`: streams whose connection it has ended."""

    def __init__(self, port: int) -> None:
        self._site = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._streams = self.cuts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "CuttingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        site = socket.create_connection(self._site)
        is_stream = threading.Event()
        threading.Thread(target=self._ask, args=(client, site, is_stream), daemon=True).start()
        with suppress(OSError):  # either side has gone
            self._answer(site, client, is_stream)

    def _ask(self, client: socket.socket, site: socket.socket, is_stream: threading.Event) -> None:
        with suppress(OSError):  # cut by `_answer`, or by the site
            while asked := client.recv(_PIECE_BYTES):
                if b"/stream/" in asked:
                    is_stream.set()
                site.sendall(asked)
            site.shutdown(socket.SHUT_WR)

    def _answer(self, site: socket.socket, client: socket.socket, is_stream: threading.Event) -> None:
        left = None
        with site, client:
            try:
                while left != 0 and (piece := site.recv(_PIECE_BYTES)):
                    if left is None and is_stream.is_set():
                        left = self._pieces_of_a_stream()
                    client.sendall(piece)
                    left = None if left is None else left - 1
            finally:
                self._end(site, client)
        with self._lock:
            self.cuts += left == 0

    def _pieces_of_a_stream(self) -> int:
        with self._lock:
            self._streams += 1
            return _FIRST_PIECES + self._streams

    def _end(self, *both: socket.socket) -> None:
        """At once, also where the other thread is reading."""
        for each in both:
            with suppress(OSError):  # the peer has closed
                each.shutdown(socket.SHUT_RDWR)

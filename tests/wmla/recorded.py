"""An HTTP server that answers as it was told to and remembers what it was asked."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["BASE", "Answer", "Asked", "RecordedServer", "recorded_server"]

BASE = "/platform/rest/deeplearning/v1"


@dataclass(frozen=True)
class Answer:
    content: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        if self.content is None or isinstance(self.content, bytes):
            return self.content or b""
        return self.content.encode() if isinstance(self.content, str) else json.dumps(self.content).encode()


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class RecordedServer(ThreadingHTTPServer):
    #: (method, path) -> the answer; of a list one after the other, the last again and again.
    answers: dict[tuple[str, str], Answer | list[Answer]]
    asked: list[Asked]
    scheme = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def calls(self) -> list[tuple[str, str]]:
        """Without the question by which a client finds the server."""
        return [(asked.method, asked.path) for asked in self.asked if asked.path != f"{BASE}/conf"]

    def answer_to(self, method: str, path: str) -> Answer:
        answer = self.answers.get((method, path), Answer("Error 404: no such thing.\n", 404))
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer


class _Handler(BaseHTTPRequestHandler):
    server: RecordedServer

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, parts.path, parse_qs(parts.query), dict(self.headers), body)
        self.server.asked.append(asked)
        answer = self.server.answer_to(asked.method, asked.path)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def recorded_server(
    answers: dict[tuple[str, str], Answer | list[Answer]], *, certificate: Path | None = None
) -> Iterator[RecordedServer]:
    """`certificate`: a PEM file with certificate and key; without one it speaks plain HTTP."""
    server = RecordedServer(("127.0.0.1", 0), _Handler)
    server.answers, server.asked = {("GET", f"{BASE}/conf"): Answer({}), **answers}, []
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

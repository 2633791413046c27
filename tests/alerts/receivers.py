"""Receivers of alerts on this machine: a web server and a mail server that keep what they are sent."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Hook", "mail_server", "web_receiver"]


@dataclass
class Hook:
    url: str = ""
    #: Answers in turn; the last one stays. A status, or an address to send the client on to.
    answers: list[int | str] = field(default_factory=lambda: [200])
    #: (path, headers, body) of each request.
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.requests]


@contextmanager
def web_receiver() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            answer = hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0]
            self.send_response(answer if isinstance(answer, int) else 302)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments: Any) -> None:
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        hook.url = f"http://127.0.0.1:{port}/hook"
        yield hook


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """Yield the server's port and its received envelopes and messages, line by line."""
    lines: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            is_data = False
            for raw in self.rfile:
                line = raw.decode().rstrip("\r\n")
                lines.append(line)
                if is_data and line != ".":
                    continue
                is_data = line.upper() == "DATA"
                self.wfile.write(b"354 go on\r\n" if is_data else b"250 fine\r\n")
                if line.upper() == "QUIT":
                    return

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        yield port, lines


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Requests over real sockets: what is sent, which connections are used again, and what breaks."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import pytest
from tidepool.client.config import Profile
from tidepool.client.errors import InvalidRequest, Unreachable
from tidepool.client.http import Connection
from tidepool.client.wire import NeverSent, Request, TransportError, Wire, body_of

from tests.journey.running_stack import free_port


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        #: Addresses of the connections that requests came by.
        self.callers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        self.server.callers.append(self.client_address[1])
        if self.path.endswith("/cut"):
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
            return
        if self.path.endswith("/closing"):
            self.close_connection = True  # unannounced, as after a time without requests
        said = b'{"id": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_CONNECT = _answer

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        yield site
        site.shutdown()
        thread.join()


def connection(url: str, token: str = "secret") -> Connection:
    return Connection(Profile(url, token), tries_for=0.0)


def test_a_connection_is_used_again_and_one_that_was_closed_is_not(site: Site) -> None:
    ours = connection(site.url)
    for path in ("me/", "closing", "me/", "me/"):
        assert ours.get(path) == {"id": 1}
    ours.close()
    first, second, third, fourth = site.callers
    assert (first, third) == (second, fourth)
    assert first != third


def test_files_are_sent_with_their_form_each_time_from_the_beginning(site: Site) -> None:
    content = bytes(range(256)) * 1000
    file = BytesIO(content)
    ours = connection(site.url)
    for _ in range(2):
        ours.json("POST", "scripts/", files={"file": ('a"b.zip', file, "application/zip")}, data={"name": "ä"})
    ours.close()
    for _, _, headers, body in site.seen:
        assert content in body
        assert "ä".encode() in body
        assert b'filename="a%22b.zip"' in body
        assert body.rstrip().endswith(headers["Content-Type"].partition("boundary=")[2].encode() + b"--")


def test_words_of_a_question_and_of_a_path_are_escaped(site: Site) -> None:
    ours = connection(f"{site.url}/below")
    ours.get("datasets/ä b/", name="a&b", empty=None, yes=True)
    ours.json("GET", "http://elsewhere/below/api/v1/jobs/?after=2")
    ours.close()
    assert [seen[1] for seen in site.seen] == [
        "/below/api/v1/datasets/%C3%A4%20b/?name=a%26b&yes=true",
        "/below/api/v1/jobs/?after=2",
    ]
    assert site.seen[1][2]["Host"] == f"127.0.0.1:{site.server_port}"  # the token goes nowhere else


def test_what_breaks_off_is_no_answer(site: Site) -> None:
    ours = connection(site.url)
    with pytest.raises(Unreachable):
        ours.get("cut")
    ours.close()


def test_where_nobody_listens_nothing_was_sent() -> None:
    wire = Wire(f"http://127.0.0.1:{free_port()}", lambda: pytest.fail("no https"))
    with pytest.raises(NeverSent):
        wire(Request("GET", "/", {}))


@pytest.mark.parametrize(("url", "port"), [("http://[fd00::1]", 80), ("http://[fd00::1]:8000/below", 8000)])
def test_an_ipv6_address_is_read_whole(url: str, port: int) -> None:
    to = Wire(url, lambda: pytest.fail("no https"))._fresh()
    assert (to.host, to.port) == ("fd00::1", port)


def test_a_proxy_is_asked_for_the_whole_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{site.server_port}")
    monkeypatch.setenv("no_proxy", "inside.example.org")
    ours = connection("http://site.example.org")
    ours.get("me/")
    ours.close()
    assert site.seen[0][1] == "http://site.example.org/api/v1/me/"
    assert site.seen[0][2]["Proxy-Authorization"] == "Basic bWU6cEBzcw=="
    with pytest.raises((NeverSent, TransportError)):
        Wire("http://inside.example.org:1", lambda: pytest.fail("no https"), seconds=1)(Request("GET", "/", {}))


def test_certificates_that_cannot_be_read_are_named() -> None:
    ours = Connection(Profile("https://127.0.0.1:1", "", ca_file="/nowhere.pem"), tries_for=0.0)
    with pytest.raises(InvalidRequest, match="--ca-file"):
        ours.get("me/")


def test_bodies_of_each_kind() -> None:
    assert body_of() is None
    assert body_of(json={"a": 1}).media_type == "application/json"  # type: ignore[union-attr]
    assert list(body_of(data={"a": "b c"}).pieces()) == [b"a=b+c"]  # type: ignore[union-attr]
    assert list(body_of(content=b"x").pieces()) == [b"x"]  # type: ignore[union-attr]

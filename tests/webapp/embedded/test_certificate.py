"""The certificate of `up --wmla-ports`: made once, kept while it serves, trusted by strict clients."""

import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from webapp.embedded.certificate import CertificateFiles, certificate_names, ensure_certificate

NOW = datetime.now(UTC)
NAMES = ["localhost", "127.0.0.1", "gpus.example.org"]


def serial(files: CertificateFiles) -> int:
    return x509.load_pem_x509_certificate(files.public.read_bytes()).serial_number


def test_it_is_made_once_and_its_key_is_for_the_owner_only(tmp_path: Path) -> None:
    first = ensure_certificate(tmp_path, NAMES, NOW)
    made, key = serial(first), first.server.read_bytes()
    assert stat.S_IMODE(first.server.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700
    assert b"PRIVATE KEY" in key
    assert b"PRIVATE KEY" not in first.public.read_bytes()
    again = ensure_certificate(tmp_path, NAMES[:2], NOW + timedelta(days=300))
    assert (serial(again), again.server.read_bytes()) == (made, key)
    assert sorted(file.name for file in first.folder.iterdir()) == ["certificate.pem", "server.pem"]


def test_it_has_the_names_and_is_no_authority(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    certificate = x509.load_pem_x509_certificate(files.public.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["localhost", "gpus.example.org"]
    assert [str(address) for address in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("days", [370, 400, -2])
def test_one_that_is_over_ends_soon_or_is_not_valid_yet_is_renewed(tmp_path: Path, days: int) -> None:
    old = serial(ensure_certificate(tmp_path, NAMES, NOW))
    assert serial(ensure_certificate(tmp_path, NAMES, NOW + timedelta(days=days))) != old


def test_a_further_name_needs_another_one(tmp_path: Path) -> None:
    old = serial(ensure_certificate(tmp_path, NAMES, NOW))
    assert serial(ensure_certificate(tmp_path, [*NAMES, "10.0.0.5"], NOW)) != old


@pytest.mark.parametrize("damage", ["cut", "another key", "text"])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: str) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    other = tmp_path / "another home"
    other.mkdir()
    content, foreign = files.server.read_bytes(), ensure_certificate(other, NAMES, NOW).server.read_bytes()
    certificate = content[content.index(b"-----BEGIN CERTIFICATE") :]
    damaged = {
        "cut": content[: len(content) // 2],
        "another key": foreign[: foreign.index(b"-----BEGIN CERTIFICATE")] + certificate,
        "text": b"hello",
    }
    old = serial(files)
    files.server.write_bytes(damaged[damage])
    assert serial(ensure_certificate(tmp_path, NAMES, NOW)) != old
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(files.server)


def test_the_names_are_those_under_which_the_site_is_opened() -> None:
    names = certificate_names("10.0.0.5", ["gpus.example.org", "[::1]", ".example.org", "*", "", "gpü.example.org"])
    assert names[:3] == ["localhost", "127.0.0.1", "::1"]
    assert names[4:] == ["10.0.0.5", "gpus.example.org", "example.org"]
    assert "0.0.0.0" not in certificate_names("0.0.0.0", [])


def test_a_strict_client_trusts_it_and_no_other(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    trusting = ssl.create_default_context(cafile=str(files.public))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    with serving(files) as port:
        for host in ("localhost", "127.0.0.1"):
            assert httpx.get(f"https://{host}:{port}/", verify=trusting, trust_env=False).text == "hello"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://localhost:{port}/", trust_env=False)


@contextmanager
def serving(files: CertificateFiles) -> Iterator[int]:
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            return

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server)
    with HTTPServer(("127.0.0.1", 0), Hello) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()

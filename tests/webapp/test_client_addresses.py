"""Check that the connection or a named web server in front says who asks; no header of anybody else does."""

from pathlib import Path

import pytest
import yaml
from django.conf import settings as project
from django.test import Client

from core.parameters import as_scalar
from webapp.client_addresses import TrustedProxies
from webapp.consumers import _parsed
from webapp.embedded import serve

PROXIES = ["10.0.0.4", "172.18.0.0/16"]


async def _told(client, headers, proxies=PROXIES, kind="http"):
    seen = []

    async def application(scope, receive, send):
        seen.append(scope)

    scope = {"type": kind, "scheme": "ws" if kind == "websocket" else "http", "client": client, "headers": headers}
    await TrustedProxies(application, proxies)(scope, None, None)
    [told] = seen
    return told


def _forwarded(text):
    return [(b"host", b"pool"), (b"x-forwarded-for", text.encode()), (b"x-forwarded-proto", b"https")]


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.0.0.5", "192.0.2.1"])
@pytest.mark.parametrize("proxies", [[], PROXIES])
async def test_nobody_else_is_believed(peer, proxies):
    for name in (b"x-forwarded-for", b"X-Forwarded-For", b"forwarded", b"x-real-ip", b"x-forwarded-host"):
        told = await _told((peer, 5), [(b"host", b"pool"), (name, b"203.0.113.9")], proxies)
        assert (told["client"][0], told["headers"]) == (peer, [(b"host", b"pool")])
    assert (await _told((peer, 5), _forwarded("203.0.113.9"), proxies))["scheme"] == "http"


@pytest.mark.parametrize("peer", ["10.0.0.4", "172.18.3.1"])
@pytest.mark.parametrize(
    ("said", "who"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8::7", "2001:db8::7"),
        # Addresses that the browser invented stand left of those that the server added.
        ("127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9, 172.18.0.9", "203.0.113.9"),
    ],
)
async def test_a_named_server_is(peer, said, who):
    told = await _told((peer, 5), _forwarded(said))
    assert (told["client"][0], told["scheme"], told["headers"]) == (who, "https", [(b"host", b"pool")])


@pytest.mark.parametrize("said", ["unknown", "", "nobody, ", "'; drop table", "203.0.113.9\0"])
async def test_what_is_no_address_leaves_the_servers_own(said):
    assert (await _told(("10.0.0.4", 5), _forwarded(said)))["client"][0] == "10.0.0.4"


@pytest.mark.parametrize(("kind", "scheme"), [("http", "https"), ("websocket", "wss")])
async def test_with_tls_in_front_everything_is_tls(settings, kind, scheme):
    settings.TIDEPOOL_HTTPS = True
    assert (await _told(("10.0.0.4", 5), [(b"x-forwarded-proto", b"http")], kind=kind))["scheme"] == scheme


@pytest.mark.django_db
def test_guessing_is_counted_by_address_whatever_the_headers_say(alice):
    for number in range(10):
        headers = {"x-forwarded-for": f"203.0.113.{number}", "forwarded": f"for=203.0.113.{number}"}
        Client().post("/login/", {"username": "alice", "password": "wrong"}, headers=headers)
    right = {"username": "alice", "password": "correct horse battery"}
    assert Client().post("/login/", right).status_code == 429
    assert Client(REMOTE_ADDR="203.0.113.3").post("/login/", right).status_code == 302


def test_our_servers_leave_the_headers_to_the_site():
    """uvicorn by itself believes every process of its machine."""
    assert serve._config(None).proxy_headers is False
    compose = yaml.safe_load((Path(project.BASE_DIR) / "docker-compose.yml").read_text())
    assert compose["services"]["web"]["command"][:3] == ["python", "-m", serve.__name__]


def test_what_a_websocket_may_send_has_a_limit():
    assert serve._config(None).ws_max_size == 16_384


@pytest.mark.parametrize("text", ["[" * 15_000, '{"a":' * 3_000, "nonsense", None])
def test_deep_json_is_no_mistake_of_ours(text):
    assert _parsed(text) is None


def test_a_parameter_may_look_like_deep_json():
    assert as_scalar("[" * 200_000) == "[" * 200_000

"""Only our own pages may open the websocket, and send anything."""

from base64 import b64encode

import pytest
from django.test import Client

from tests.factories import PASSWORD
from webapp.consumers import FullOrigin


async def _opens(origin: str | None, host: str) -> bool:
    opened = []

    async def application(scope, receive, send):
        opened.append(scope)

    async def send(message):
        assert message == {"type": "websocket.close", "code": 4403}

    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin is not None else [])
    await FullOrigin(application)({"type": "websocket", "headers": headers}, None, send)
    return bool(opened)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8123", "[::1]:8000"])
async def test_a_page_of_this_site_may(host):
    assert await _opens(f"http://{host}", host)


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "",
        "null",
        "http://evil.example",
        "http://127.0.0.1:8001",
        "https://127.0.0.1:8000",
        "http://127.0.0.1",
        "http://127.0.0.1:8000@evil.example",
        "http://127.0.0.1:8000.evil.example",
    ],
)
async def test_others_may_not(origin):
    assert not await _opens(origin, "127.0.0.1:8000")


async def test_a_foreign_host_name_does_not_help():
    assert not await _opens("http://evil.example", "evil.example")


async def test_an_origin_from_the_settings_may(settings):
    settings.TIDEPOOL_ORIGINS = ["https://pool.example"]
    assert await _opens("https://pool.example", "127.0.0.1:8000")


FOREIGN = ["http://testserver:8001", "https://testserver", "http://evil.example", "null", "", "http://testserver.evil"]
ADDRESSES = [
    "/platform/rest/deeplearning/v1/execs",
    "/api/v1/jobs/",
    "/platform/rest/conductor/v1/instances",
    "/login/",
]


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
@pytest.mark.parametrize("address", [*ADDRESSES, "/nothing/here/"])
def test_what_another_sites_page_sends_is_refused_with_the_cookie_and_with_a_password(carol, address, method):
    """Browsers add both to what any page sends; another port of this host gets the same cookies."""
    browser = Client()
    browser.force_login(carol)
    basic = browser.generic(method, address, headers={"origin": FOREIGN[0], "authorization": _basic(carol)})
    for answer in [basic, *(browser.generic(method, address, headers={"origin": origin}) for origin in FOREIGN)]:
        assert answer.status_code == 403
        assert b"another site" in answer.content


@pytest.mark.django_db
@pytest.mark.parametrize("origin", [None, "http://testserver", "https://pool.example"])
def test_own_pages_and_programs_are_let_in(carol_api, settings, origin):
    settings.TIDEPOOL_ORIGINS = ["https://pool.example"]
    answer = carol_api.post(ADDRESSES[0], headers={} if origin is None else {"origin": origin})
    assert answer.status_code == 400


@pytest.mark.django_db
def test_behind_tls_the_site_is_known_by_https_alone(carol_api, settings):
    settings.TIDEPOOL_HTTPS = True
    answers = [
        carol_api.post(ADDRESSES[0], headers={"origin": f"{scheme}://testserver"}) for scheme in ("http", "https")
    ]
    assert [answer.status_code for answer in answers] == [403, 400]


@pytest.mark.django_db
def test_links_from_elsewhere_may_be_followed(carol_api):
    assert carol_api.get("/api/v1/jobs/", headers={"origin": "http://evil.example"}).status_code == 200


def _basic(user):
    return "Basic " + b64encode(f"{user.username}:{PASSWORD}".encode()).decode()

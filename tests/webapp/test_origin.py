"""Only our own pages may open the websocket."""

import pytest

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

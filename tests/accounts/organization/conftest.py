"""A provider in a process of its own, and the site with it, on loopback; browsers are HTTP clients with cookies."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from accounts.organization import oidc
from accounts.organization.config import OidcConfig
from accounts.organization.group_table import parse_group_table
from tests.accounts.organization.oidc_provider import CLIENT_ID, CLIENT_SECRET
from tests.accounts.organization.running_provider import ADA, TABLE, RunningProvider, running_provider


@pytest.fixture(scope="session")
def provider_process() -> Iterator[RunningProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def provider(provider_process: RunningProvider, settings: Any) -> RunningProvider:
    """The site's provider, whose person is Ada."""
    settings.LOGIN_GROUPS = parse_group_table(TABLE)
    settings.OIDC = OidcConfig(
        issuer=provider_process.issuer,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        name="Acme",
        scopes="openid profile email",
        username_claim="preferred_username",
        groups_claim="groups",
    )
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    oidc._provider.cache_clear()
    provider_process.set(person=ADA)
    return provider_process


@pytest.fixture
def browser(live_server: Any) -> Iterator[Callable[[], httpx.Client]]:
    """Open a browser, which follows redirects between site and provider."""
    opened: list[httpx.Client] = []

    def open_browser() -> httpx.Client:
        opened.append(httpx.Client(base_url=live_server.url, follow_redirects=True, timeout=30))
        return opened[-1]

    yield open_browser
    for each in opened:
        each.close()

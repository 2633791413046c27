"""Log-out at the provider, which the provider tells the site itself, with a token that only it can sign."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from accounts.models import ProviderSession
from accounts.organization import arrivals
from tests.accounts.organization.oidc_provider import LOGOUT_EVENT
from tests.accounts.organization.running_provider import ADA, RunningProvider
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

Browser = Callable[[], httpx.Client]
FAULTS = (
    "a stranger's signature",
    "unsigned",
    "signed with the client's secret",
    "another audience",
    "another issuer",
    "expired",
    "no end",
    "from the future",
    "no subject",
)
#: Claims that make a logout token another thing.
NO_LOGOUT: tuple[dict[str, Any], ...] = (
    {"events": {}},
    {"events": {LOGOUT_EVENT: "yes"}},
    {"events": [LOGOUT_EVENT]},
    {"nonce": "an ID token has one"},
    {"jti": None},
    {"iat": None},
    {"sub": None},
    {"sub": None, "sid": ""},
    {"sub": 4711},
    {"sub": ["4711"], "sid": "session-1"},
    {"sub": None, "sid": {"$ne": ""}},
)


def logged_in(browser: Browser) -> httpx.Client:
    opened = browser()
    opened.get("/login/oidc/")
    assert is_in(opened)
    return opened


def is_in(browser: httpx.Client) -> bool:
    return browser.get("/api/v1/me/").status_code == 200


def test_the_session_that_the_token_names_ends(provider: RunningProvider, browser: Browser, live_server: Any) -> None:
    first = logged_in(browser)
    provider.set(person={**ADA, "sid": "session-2"})
    second = logged_in(browser)

    answer = provider.sign_out(live_server.url, sub="4711", sid="session-1")

    assert (answer["status"], answer["body"]) == (200, "")
    assert "no-store" in answer["cache"]
    assert (is_in(first), is_in(second)) == (False, True)
    assert ProviderSession.objects.count() == Session.objects.filter(provider_session__isnull=False).count() == 1


def test_all_sessions_of_a_person_end_but_no_others(
    provider: RunningProvider, browser: Browser, live_server: Any
) -> None:
    hers = [logged_in(browser), logged_in(browser)]
    provider.set(person={**ADA, "sub": "4712", "preferred_username": "grace", "sid": "session-3"})
    grace = logged_in(browser)

    assert provider.sign_out(live_server.url, sub="4711")["status"] == 200

    assert [is_in(each) for each in (*hers, grace)] == [False, False, True]
    assert provider.sign_out(live_server.url, sid="session-3")["status"] == 200
    assert not is_in(grace)


def test_a_session_by_password_is_none_of_the_providers(
    provider: RunningProvider, browser: Browser, live_server: Any
) -> None:
    admin = UserFactory(username="admin", is_staff=True)
    arrivals.connect(admin, provider.issuer, "4711")
    by_password = browser()
    by_password.get("/login/")
    form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": by_password.cookies["tidepool_csrf"]}
    by_password.post("/login/", data=form)

    assert provider.sign_out(live_server.url, sub="4711")["status"] == 200
    assert is_in(by_password)


def test_who_was_never_here_is_logged_out_as_well(provider: RunningProvider, live_server: Any) -> None:
    assert provider.sign_out(live_server.url, sub="nobody")["status"] == 200


def test_a_token_that_proves_nothing_ends_nothing(
    provider: RunningProvider, browser: Browser, live_server: Any
) -> None:
    ada = logged_in(browser)
    for fault in FAULTS:
        provider.set(person=ADA, fault=fault)
        answer = provider.sign_out(live_server.url, sub="4711")
        assert (fault, answer["status"]) == (fault, 400)
        assert '"error": "invalid_request"' in answer["body"]
    assert is_in(ada)


def test_a_token_that_is_no_logout_token_ends_nothing(
    provider: RunningProvider, browser: Browser, live_server: Any
) -> None:
    ada = logged_in(browser)
    for claims in NO_LOGOUT:
        assert (claims, provider.sign_out(live_server.url, **{"sub": "4711", **claims})["status"]) == (claims, 400)
    assert is_in(ada)


def test_an_old_token_is_not_taken_again(provider: RunningProvider, browser: Browser, live_server: Any) -> None:
    ada = logged_in(browser)
    assert provider.sign_out(live_server.url, sub="4711", iat=1_700_000_000)["status"] == 400
    assert is_in(ada)


def test_what_is_no_token_is_refused_in_words(provider: RunningProvider, live_server: Any) -> None:
    for form in ({}, {"logout_token": ""}, {"logout_token": "a.b.c"}, {"logout_token": "x" * 100_000}):
        answer = httpx.post(f"{live_server.url}/login/oidc/logout/", data=form)
        assert answer.status_code == 400
        assert answer.json()["error_description"].startswith("The answer of Acme was not accepted")


def test_a_provider_whose_keys_are_away_is_to_try_again(
    provider: RunningProvider, live_server: Any, settings: Any
) -> None:
    settings.OIDC = type(settings.OIDC)(**{**settings.OIDC.__dict__, "issuer": "http://127.0.0.1:9"})
    assert provider.sign_out(live_server.url, sub="4711")["status"] == 503


def test_a_site_without_a_provider_takes_no_word_of_one(client: Any) -> None:
    answer = client.post("/login/oidc/logout/", {"logout_token": "a.b.c"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert not User.objects.exists()

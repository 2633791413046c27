"""Log-in with a provider in another process, through the redirects that a browser follows."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.core.management.base import CommandError

from accounts import actions
from accounts.models import ApiToken, Identity
from accounts.organization import arrivals, oidc
from accounts.sessions import SessionStore
from accounts.tokens import make_token
from core.models import AuditEntry
from core.roles import Role, role_of
from tests.accounts.organization.running_provider import ADA, RunningProvider
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

Browser = Callable[[], httpx.Client]
NOT_ACCEPTED = "The answer of Acme was not accepted: log in again."
FAULTS_OF_TOKENS = (
    "a stranger's signature",
    "unsigned",
    "signed with the client's secret",
    "another audience",
    "another audience, azp ours",
    "another issuer",
    "expired",
    "no end",
    "from the future",
    "another nonce",
    "no nonce",
    "no subject",
    "no ID token",
    "wrong access token",
)
#: Mistake of the provider -> status and sentence of the page.
FAULTS_OF_PROVIDERS = (
    ("denied", 403, "Acme has refused the login (The person said &lt;b&gt;no&lt;/b&gt;.): log in again, or"),
    ("another issuer's answer", 403, "The answer is not from Acme: log in again."),
    ("another issuer's description", 503, "Acme gives no answer that this site understands: tell an administrator."),
    ("description without an address", 503, "Acme gives no answer that this site understands"),
    ("no keys", 503, "Acme gives no answer that this site understands"),
    ("token endpoint broken", 503, "Acme does not answer: try again in a minute, or log in with a password"),
    ("token endpoint answers a page", 503, "Acme gives no answer that this site understands"),
)
UNUSABLE_CLAIMS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"preferred_username": None}, "Acme does not say your user name (claim preferred_username), so you cannot"),
    ({"preferred_username": 7}, "Acme does not say your user name (claim preferred_username), so you cannot"),
    ({"groups": None}, "Acme does not say the list of your groups (claim groups), so you cannot log in with it"),
    ({"groups": [{"name": "vision"}]}, "Acme does not say the list of your groups (claim groups)"),
    ({"groups": []}, "None of your groups at Acme may use this site: ask an administrator to add you to one."),
    ({"groups": ["Vision", "vision "]}, "None of your groups at Acme may use this site"),
    ({"preferred_username": "../ada"}, "Your user name at Acme, ../ada, cannot be used here: The name must not"),
    ({"preferred_username": "ada <script>"}, "Your user name at Acme, ada &lt;script&gt;, cannot be used here: Use"),
    ({"preferred_username": "a" * 151}, "Your user name at Acme, aaa"),
    ({"sub": "s" * 256}, "Acme does not say who you are: tell an administrator."),
)


def alert(answer: httpx.Response) -> str:
    found = re.search(r'role="alert">\s*(.*?)\s*</div>', answer.text, re.DOTALL)
    return found[1] if found else ""


def test_a_person_logs_in_and_gets_to_the_page_that_was_asked_for(provider: RunningProvider, browser: Browser) -> None:
    ada = browser()
    page = ada.get("/account/?x=1")
    assert "Log in with Acme" in page.text
    link = re.search(r'href="(/login/oidc/[^"]*)"', page.text)
    assert link is not None

    answer = ada.get(link[1].replace("&amp;", "&"))

    assert (answer.status_code, urlsplit(str(answer.url)).path) == (200, "/account/")
    assert ada.get("/api/v1/me/").json()["username"] == "ada"
    user = User.objects.get(username="ada")
    assert role_of(user) == Role.DATA_SCIENTIST
    assert not user.has_usable_password()
    assert (user.identity.provider, user.identity.subject) == (provider.issuer, "4711")
    entry = AuditEntry.objects.get(kind="user")
    assert (entry.actor, entry.verb, entry.after) == (
        "Tidepool",
        "created at a login with Acme",
        {"role": "data scientist", "state": "active"},
    )


def test_the_site_asks_for_what_protects_the_log_in(provider: RunningProvider, browser: Browser) -> None:
    """The provider refuses a request without PKCE, state or nonce; here they are different each time."""
    asked = []
    for _ in range(2):
        redirect = browser().get("/login/oidc/", follow_redirects=False)
        asked.append(
            {name: values[0] for name, values in parse_qs(urlsplit(redirect.headers["Location"]).query).items()}
        )
        cookie = redirect.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Path=/login/oidc/" in cookie
        assert "code_verifier" not in redirect.headers["Location"]

    for name in ("state", "nonce", "code_challenge"):
        assert len({each[name] for each in asked}) == 2
        assert len(asked[0][name]) >= 20


def test_the_subject_is_the_person_whatever_the_name(provider: RunningProvider, browser: Browser) -> None:
    browser().get("/login/oidc/")
    provider.set(person={**ADA, "preferred_username": "ada.lovelace"})

    answer = browser().get("/login/oidc/")

    assert answer.status_code == 200
    assert [user.username for user in User.objects.all()] == ["ada"]


def test_the_session_ends_when_the_provider_is_to_decide_again(
    provider: RunningProvider, browser: Browser, settings: Any
) -> None:
    settings.PROVIDER_SESSION_SECONDS = 3600
    ada = browser()
    ada.get("/login/oidc/")
    [cookie] = [cookie for cookie in ada.cookies.jar if cookie.name == "tidepool_session"]
    session = Session.objects.get(session_key=cookie.value)
    end = session.provider_session.started_at + timedelta(hours=1)
    assert abs(session.expire_date - end) < timedelta(seconds=1)

    store = SessionStore(cookie.value)
    store["changed"] = "later"
    store.save()
    session.refresh_from_db()
    assert abs(session.expire_date - end) < timedelta(seconds=1), "use does not prolong it"


def test_a_token_that_proves_nothing_is_refused(provider: RunningProvider, browser: Browser) -> None:
    got_in = {}
    for fault in FAULTS_OF_TOKENS:
        provider.set(person=ADA, fault=fault)
        answer = browser().get("/login/oidc/")
        if (answer.status_code, alert(answer)[: len(NOT_ACCEPTED)]) != (403, NOT_ACCEPTED):
            got_in[fault] = answer.status_code
    assert got_in == {}
    assert not User.objects.exists()


def test_a_provider_that_does_not_do_its_part_is_said(provider: RunningProvider, browser: Browser) -> None:
    for fault, status, sentence in FAULTS_OF_PROVIDERS:
        oidc._provider.cache_clear()
        provider.set(person=ADA, fault=fault)
        answer = browser().get("/login/oidc/")
        assert (fault, answer.status_code, alert(answer)[: len(sentence)]) == (fault, status, sentence)
    assert not User.objects.exists()


def test_a_provider_that_is_away_is_said_and_passwords_still_do(
    provider: RunningProvider, browser: Browser, settings: Any
) -> None:
    UserFactory(username="admin", is_staff=True)
    settings.OIDC = type(settings.OIDC)(**{**settings.OIDC.__dict__, "issuer": "http://127.0.0.1:9"})
    admin = browser()
    answer = admin.get("/login/oidc/?next=/users/")
    assert answer.status_code == 503
    assert alert(answer) == "Acme does not answer: try again in a minute, or log in with a password if you have one."

    assert '<form method="post" action="/login/"' in answer.text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]*)"', answer.text)
    assert token is not None
    form = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": PASSWORD, "next": "/users/"}
    inside = admin.post("/login/", data=form, headers={"Origin": str(admin.base_url).rstrip("/")})
    assert (inside.status_code, urlsplit(str(inside.url)).path) == (200, "/users/")


def test_claims_that_make_no_user_are_said(provider: RunningProvider, browser: Browser) -> None:
    for claims, sentence in UNUSABLE_CLAIMS:
        provider.set(person={**ADA, **claims})
        answer = browser().get("/login/oidc/")
        assert (claims, answer.status_code, alert(answer)[: len(sentence)]) == (claims, 403, sentence)
    assert not User.objects.exists()


def test_a_name_that_a_local_account_has_is_refused_until_both_are_connected(
    provider: RunningProvider, browser: Browser
) -> None:
    UserFactory(username="Ada")
    answer = browser().get("/login/oidc/")
    assert answer.status_code == 409
    assert alert(answer) == (
        "Your user name at Acme is ada, and another account of this site already has that name. Ask an administrator "
        "to connect the two."
    )
    assert not Identity.objects.exists()

    call_command("connect_login", "Ada", "4711")
    with pytest.raises(CommandError, match="Ada already logs in with a provider"):
        call_command("connect_login", "Ada", "4712")
    with pytest.raises(CommandError, match="This person logs in as Ada: deactivate that account, or keep it"):
        call_command("connect_login", UserFactory().username, "4711")
    with pytest.raises(CommandError, match="User not found"):
        call_command("connect_login", "nobody", "4711")

    ada = browser()
    ada.get("/login/oidc/")
    assert ada.get("/api/v1/me/").json()["username"] == "Ada"
    assert User.objects.get(username="Ada").check_password(PASSWORD)


def test_many_groups_and_one_group_by_name_do(provider: RunningProvider, browser: Browser) -> None:
    provider.set(person={**ADA, "groups": [f"group-{number}" for number in range(5000)] + ["guests"]})
    browser().get("/login/oidc/")
    assert role_of(User.objects.get()) == Role.VIEWER
    provider.set(person={**ADA, "groups": "gpu-admins"})
    browser().get("/login/oidc/")
    assert role_of(User.objects.get()) == Role.CLUSTER_ADMIN


def test_too_many_groups_for_a_token_are_said(provider: RunningProvider, browser: Browser) -> None:
    provider.set(person={**ADA, "groups": [f"group-{number}" for number in range(10_000)]})
    answer = browser().get("/login/oidc/")
    assert answer.status_code == 403
    assert alert(answer).startswith("Acme says too much about you, such as very many groups")


def test_userinfo_says_what_the_token_lacks(provider: RunningProvider, browser: Browser) -> None:
    person = {"sub": "4711", "preferred_username": "ada"}
    provider.set(person=person, userinfo={"groups": ["vision"], "preferred_username": "mallory"})
    assert browser().get("/login/oidc/").status_code == 200
    assert User.objects.get().username == "ada", "the token is believed first"

    provider.set(person=person, userinfo={"sub": "4712", "groups": ["gpu-admins"]})
    assert browser().get("/login/oidc/").status_code == 403
    assert role_of(User.objects.get()) == Role.DATA_SCIENTIST


def test_another_browser_cannot_finish_a_log_in(provider: RunningProvider, browser: Browser) -> None:
    """An attacker's link that ends in the attacker's own account, and a stolen one, both lack the cookie."""
    attacker, victim = browser(), browser()
    to_provider = attacker.get("/login/oidc/", follow_redirects=False).headers["Location"]
    back = httpx.get(to_provider, follow_redirects=False).headers["Location"]

    without = victim.get(back)
    victim.get("/login/oidc/", follow_redirects=False)
    with_another = victim.get(back)

    assert without.status_code == with_another.status_code == 403
    assert alert(without) == "This browser has not begun a login in the last 10 minutes: log in again, in one go."
    assert alert(with_another) == "This browser has begun another login since then: log in with Acme again."
    assert not User.objects.exists()


def test_a_code_opens_nothing_twice(provider: RunningProvider, browser: Browser) -> None:
    ada = browser()
    to_provider = ada.get("/login/oidc/", follow_redirects=False).headers["Location"]
    back = httpx.get(to_provider, follow_redirects=False).headers["Location"]
    cookies = dict(ada.cookies)
    assert ada.get(back, follow_redirects=False).status_code == 302

    again = browser()
    again.cookies.update(cookies)
    assert again.get(back).status_code == 403


def test_a_new_key_of_the_provider_is_fetched(
    provider: RunningProvider, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser().get("/login/oidc/")
    provider.set(person=ADA, **{"new key": True})
    assert browser().get("/login/oidc/").status_code == 403, "its keys were fetched seconds ago"
    monkeypatch.setattr(oidc, "KEYS_SECONDS", 0)
    assert browser().get("/login/oidc/").status_code == 200


def test_no_log_in_leads_to_another_site(provider: RunningProvider, browser: Browser) -> None:
    for foreign in ("https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"):
        answer = browser().get("/login/oidc/", params={"next": foreign})
        assert (answer.status_code, urlsplit(str(answer.url)).path) == (200, "/")


def test_who_has_no_allowed_group_any_more_loses_sessions_and_tokens(
    provider: RunningProvider, browser: Browser
) -> None:
    ada = browser()
    ada.get("/login/oidc/")
    token = make_token(User.objects.get(), "nightly", None, "full").text
    program = browser()
    program.headers["Authorization"] = f"Bearer {token}"
    assert ada.get("/api/v1/me/").status_code == program.get("/api/v1/me/").status_code == 200

    provider.set(person={**ADA, "groups": ["former-staff"]})
    refused = browser().get("/login/oidc/")

    assert refused.status_code == 403
    assert ada.get("/api/v1/me/").status_code == 401
    assert program.get("/api/v1/me/").status_code == 401
    assert not ApiToken.objects.exists()
    assert AuditEntry.objects.filter(verb="locked out by the provider's groups:").count() == 1


def test_a_deactivated_user_stays_out_until_an_administrator_says_otherwise(
    provider: RunningProvider, browser: Browser
) -> None:
    carol = UserFactory(username="carol", is_staff=True)
    browser().get("/login/oidc/")
    actions.deactivate(carol, User.objects.get(username="ada").pk)
    answer = browser().get("/login/oidc/")
    assert answer.status_code == 403
    assert alert(answer) == "The account ada is deactivated: ask an administrator to activate it."


def test_the_last_administrator_with_a_password_is_not_demoted(provider: RunningProvider, browser: Browser) -> None:
    admin = UserFactory(username="admin", is_staff=True)
    arrivals.connect(admin, provider.issuer, "4711")
    for groups in (["vision"], []):
        provider.set(person={**ADA, "groups": groups})
        answer = browser().get("/login/oidc/")
        assert answer.status_code == 409
        assert alert(answer) == "admin is the last administrator: make another user an administrator first."
    UserFactory(username="second", is_staff=True)
    provider.set(person={**ADA, "groups": ["vision"]})
    assert browser().get("/login/oidc/").status_code == 200
    assert role_of(User.objects.get(username="admin")) == Role.DATA_SCIENTIST


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/login/oidc/", "This site has no provider for logins: log in with a user name and a password."),
        ("/login/oidc/callback/?code=1&state=2", "This site has no provider for logins"),
    ],
)
def test_a_site_without_a_provider_says_so(client: Any, address: str, sentence: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 400
    assert sentence in answer.content.decode()
    assert "Log in with" not in client.get("/login/").content.decode()

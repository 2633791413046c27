"""Rows of the specification about logging on: Conductor's session, Cloud Pak's token, and what ends them."""

import base64
from datetime import timedelta
from http.cookies import Morsel
from typing import Any

import jwt
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounts import actions
from accounts.models import ApiToken
from accounts.tokens import MAX_LOGONS, log_on, make_token
from jobs.models import InstanceGroup, Job
from tests.factories import PASSWORD
from tests.wmla.conftest import Submit
from wmla.identifiers import identities

pytestmark = pytest.mark.django_db

CONDUCTOR = "/platform/rest/conductor/v1/auth/logon"
EGO = "/platform/rest/ego/v1/auth/logon"
FRAMEWORKS = "/platform/rest/deeplearning/v1/execs/frameworks"
LOGON, LOGOFF = "/auth/v1/logon", "/auth/v1/logoff"
VALIDATE = "/v1/preauth/validateAuth"


def basic(name: str = "alice", password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def reached(headers: dict[str, str]) -> int:
    return Client().get(FRAMEWORKS, headers=headers).status_code


@pytest.mark.parametrize("address", [CONDUCTOR, EGO])
def test_conductors_log_on_gives_a_token_and_a_cookie_for_every_port(alice: User, address: str) -> None:
    client = Client()
    answer = client.get(address, headers={**basic(), "Accept": "application/json"})

    assert answer.status_code == 200
    assert answer.json()["csrftoken"]
    cookie: Morsel[str] = answer.cookies["tidepool_session"]
    assert (cookie["path"], cookie["domain"], cookie["samesite"]) == ("/", "", "Lax")
    assert cookie["max-age"] == 8 * 3600
    assert client.get(FRAMEWORKS).status_code == 200


@pytest.mark.parametrize("address", [CONDUCTOR, EGO])
def test_its_token_allows_changes_with_the_cookie(carol: User, group: InstanceGroup, address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    token = client.get(address, headers=basic("carol")).json()["csrftoken"]
    stop = f"/platform/rest/conductor/v1/instances/{identities().group_id(group.pk)}/stop"
    assert client.put(stop).status_code == 403
    assert client.put(stop, headers={"csrftoken": token}).status_code == 200


def test_a_script_logs_on_at_conductor_and_submits_elsewhere_with_the_cookie_alone(alice: User, submit: Submit) -> None:
    client = Client(enforce_csrf_checks=True, SERVER_PORT="8643")
    assert client.get(CONDUCTOR, headers=basic()).status_code == 200

    client.defaults["SERVER_PORT"] = "9243"
    given = submit(client=client)
    assert given.status_code == 200
    assert Job.objects.get().owner == alice
    assert client.get(f"/platform/rest/deeplearning/v1/execs/{given.json()['id']}").json()["state"] == "SUBMITTED"


def test_basic_alone_opens_every_address(alice: User) -> None:
    assert reached(basic()) == 200
    assert reached(basic(password="wrong")) == 401
    for address in ("conductor/v1/instances", "ego/v1/hosts", "deeplearning/v1/conf"):
        assert Client().get(f"/platform/rest/{address}", headers=basic()).status_code == 200


def test_basic_changes_what_conductor_has_without_any_csrf_token(carol: User, group: InstanceGroup) -> None:
    address = f"/platform/rest/conductor/v1/instances/{identities().group_id(group.pk)}/stop"
    assert Client(enforce_csrf_checks=True).put(address, headers=basic("carol")).status_code == 200
    group.refresh_from_db()
    assert group.state == InstanceGroup.State.STOPPED


def test_cloud_paks_probe_gives_a_token_for_the_same_credentials(alice: User) -> None:
    text = Client().get(VALIDATE, headers=basic()).json()["accessToken"]
    assert reached({"Authorization": f"Bearer {text}"}) == 200


@pytest.mark.parametrize("headers", [{}, basic(password="wrong"), {"Authorization": "Basic !"}])
@pytest.mark.parametrize("address", [CONDUCTOR, EGO, LOGON, VALIDATE])
def test_a_log_on_that_fails_is_401_in_text(alice: User, address: str, headers: dict[str, str]) -> None:
    answer = Client().get(address, headers=headers)
    assert (answer.status_code, answer.content[:11]) == (401, b"Error 401: ")


def test_a_cookie_makes_no_token(alice_client: Client) -> None:
    assert alice_client.get(LOGON).status_code == 401
    assert alice_client.get(CONDUCTOR).status_code == 401


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("way", ["basic", "body", "both"])
def test_cloud_paks_log_on_gives_a_web_token(alice: User, method: str, way: str) -> None:
    body = b"" if way == "basic" else f'{{"username": "alice", "password": "{PASSWORD}"}}'.encode()
    answer = Client().generic(
        method, LOGON, body, content_type="application/json", headers={} if way == "body" else basic()
    )
    assert answer.status_code == 200
    text = answer.json()["accessToken"]
    claims = jwt.decode(text, options={"verify_signature": False})
    assert (claims["username"], claims["sub"]) == ("alice", "alice")
    assert claims["exp"] - claims["iat"] == 12 * 3600
    for headers in ({"X-Auth-Token": text}, {"Authorization": f"Bearer {text}"}):
        assert reached(headers) == 200


@pytest.mark.parametrize(
    "body", ["", "{", "[]", '{"username": 1, "password": 2}', '{"username": "a\\u0000", "password": "x"}']
)
def test_a_body_without_credentials_is_401(alice: User, body: str) -> None:
    answer = Client().generic("POST", LOGON, body.encode(), content_type="application/json")
    assert answer.status_code == 401


def test_logging_off_ends_that_token_alone(alice: User) -> None:
    first, second = log_on(alice).text, log_on(alice).text
    assert Client().post(LOGOFF, headers={"X-Auth-Token": first}).status_code == 204
    assert (reached({"X-Auth-Token": first}), reached({"X-Auth-Token": second})) == (401, 200)


def test_logging_off_leaves_tokens_made_by_hand(alice: User) -> None:
    text = make_token(alice, "ci", None).text
    assert Client().post(LOGOFF, headers={"X-Auth-Token": text}).status_code == 204
    assert reached({"X-Auth-Token": text}) == 200


def test_a_token_ends_with_the_password_the_account_and_its_time(alice: User, carol: User) -> None:
    text = log_on(alice).text
    kept = User.objects.get(pk=alice.pk).password
    alice.set_password("another long password")
    alice.save(update_fields=["password"])
    assert reached({"X-Auth-Token": text}) == 401

    User.objects.filter(pk=alice.pk).update(password=kept)
    assert reached({"X-Auth-Token": text}) == 200
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert reached({"X-Auth-Token": text}) == 401

    other = log_on(User.objects.get(pk=alice.pk)).text
    actions.deactivate(carol, alice.pk)
    assert reached({"X-Auth-Token": other}) == 401
    assert not alice.api_tokens.exists()


def test_what_a_token_says_about_itself_is_never_believed(alice: User) -> None:
    good = log_on(alice).text
    claims = jwt.decode(good, options={"verify_signature": False})
    for forged in (
        jwt.encode(claims, None, algorithm="none"),
        jwt.encode({**claims, "sub": "carol"}, "guessed" * 8, algorithm="HS256"),
        good.rsplit(".", 1)[0] + ".",
        good + "=",
    ):
        assert reached({"X-Auth-Token": forged}) == 401
        assert reached({"Authorization": f"Bearer {forged}"}) == 401


def test_a_notebook_that_logs_on_again_and_again_pushes_out_its_oldest(alice: User) -> None:
    texts = [log_on(alice).text for _ in range(MAX_LOGONS + 2)]
    assert alice.api_tokens.count() == MAX_LOGONS
    assert [reached({"X-Auth-Token": text}) for text in (texts[0], texts[1], texts[2], texts[-1])] == [
        401,
        401,
        200,
        200,
    ]


def test_wrong_passwords_are_throttled_everywhere(alice: User, settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    wrong = [Client().get(address, headers=basic(password="wrong")) for address in (CONDUCTOR, LOGON, FRAMEWORKS)]
    assert [answer.status_code for answer in wrong] == [401, 401, 429]
    for answer in (wrong[-1], Client().get(LOGON, headers=basic())):
        assert (answer.status_code, answer.content[:11]) == (429, b"Error 429: ")
    body = f'{{"username": "alice", "password": "{PASSWORD}"}}'
    assert Client().generic("POST", LOGON, body.encode(), content_type="application/json").status_code == 429

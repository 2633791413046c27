"""A program asks for a token, a user confirms in a browser, the program fetches it once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounts import device_login
from accounts.models import ApiToken, DeviceGrant
from accounts.verification_limits import verifying
from core.roles import viewers

pytestmark = pytest.mark.django_db

OpenAs = Callable[[User], Client]


def _ask(**given: str) -> dict[str, Any]:
    answer = Client().post("/api/v1/device/", {"machine": "laptop", **given}, "application/json")
    assert answer.status_code == 201
    return answer.json()


def _fetch(asked: dict[str, Any]) -> Any:
    return Client().post("/api/v1/device/token/", {"device": asked["device"]}, "application/json")


def test_a_confirmed_program_gets_its_token_once(alice: User, open_as: OpenAs) -> None:
    asked = _ask(scope="read")
    assert _fetch(asked).status_code == 202
    shown = open_as(alice).get("/device/", {"code": asked["code"].lower().replace("-", " ")})
    assert (shown.status_code, shown.context["grant"].machine) == (200, "laptop")

    open_as(alice).post("/device/", {"code": asked["code"], "answer": "yes"})

    given = _fetch(asked).json()
    assert (given["username"], given["scope"]) == ("alice", "read")
    assert Client().get("/api/v1/me/", headers={"authorization": f"Bearer {given['token']}"}).status_code == 200
    assert _fetch(asked).status_code == 404
    ends = ApiToken.objects.get(name="tidepool on laptop").expires_at
    assert timedelta(days=89) < ends - timezone.now() <= timedelta(days=device_login.TOKEN_DAYS)


def test_neither_secret_nor_code_is_stored(alice: User) -> None:
    asked = _ask()
    stored = str(DeviceGrant.objects.values())
    assert asked["device"] not in stored
    assert asked["code"].replace("-", "") not in stored


def test_the_same_machine_has_one_token(alice: User, open_as: OpenAs) -> None:
    for _ in range(2):
        asked = _ask()
        open_as(alice).post("/device/", {"code": asked["code"], "answer": "yes"})
        assert _fetch(asked).status_code == 201
    assert ApiToken.objects.filter(user=alice).count() == 1


def test_a_refused_one_gets_nothing(alice: User, open_as: OpenAs) -> None:
    asked = _ask()
    open_as(alice).post("/device/", {"code": asked["code"], "answer": "no"})
    assert _fetch(asked).status_code == 404
    assert not ApiToken.objects.exists()


def test_one_that_is_over_cannot_be_confirmed(alice: User, open_as: OpenAs) -> None:
    asked = _ask()
    DeviceGrant.objects.update(expires_at=timezone.now())
    answer = open_as(alice).post("/device/", {"code": asked["code"], "answer": "yes"})
    assert (answer.status_code, _fetch(asked).status_code) == (404, 404)


def test_a_viewer_confirms_none(alice: User, open_as: OpenAs) -> None:
    alice.groups.add(viewers())
    asked = _ask()
    assert open_as(alice).post("/device/", {"code": asked["code"], "answer": "yes"}).status_code == 403
    assert _fetch(asked).status_code == 202


def test_the_account_may_be_closed_in_between(alice: User, open_as: OpenAs) -> None:
    asked = _ask()
    open_as(alice).post("/device/", {"code": asked["code"], "answer": "yes"})
    User.objects.update(is_active=False)
    assert _fetch(asked).status_code == 404


def test_codes_cannot_be_guessed_for_long(alice: User, open_as: OpenAs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "clock", lambda: 1000.0)
    browser = open_as(alice)
    statuses = [browser.get("/device/", {"code": f"WXYZ-{n:04}"}).status_code for n in range(32)]
    assert (statuses[0], statuses[-1]) == (404, 429)


@pytest.mark.parametrize("given", [{"machine": ""}, {"machine": "a/b"}, {"scope": "all"}, {"scope": "job:1"}])
def test_says_what_does_not_fit(given: dict[str, str]) -> None:
    answer = Client().post("/api/v1/device/", {"machine": "laptop", **given}, "application/json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, list(given))


def test_one_address_cannot_ask_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_login, "_MOST_OF_ADDRESS", 1)
    _ask()
    assert Client().post("/api/v1/device/", {"machine": "x"}, "application/json").status_code == 429

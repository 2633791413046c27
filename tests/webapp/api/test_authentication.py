"""Scripts log in by token or Basic; what is wrong is refused, and nobody can guess for long."""

import base64
import time

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from accounts import authentication
from accounts.models import ApiToken
from tests.factories import PASSWORD

pytestmark = pytest.mark.django_db


def _basic(username: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()}


def _me(headers: dict[str, str]):
    return APIClient().get("/api/v1/me/", headers=headers)


@pytest.fixture
def checked_passwords(monkeypatch):
    """Count the password hashes that were computed."""
    checked = []
    verify = User.check_password

    def count(self: User, password: str) -> bool:
        checked.append(self.username)
        return verify(self, password)

    monkeypatch.setattr(User, "check_password", count)
    return checked


def test_a_token_is_shown_once_and_works(alice_api, alice):
    assert alice_api.get("/api/v1/me/token/").json() == {"created_at": None}
    token = alice_api.post("/api/v1/me/token/").json()["token"]
    answer = _me({"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["username"]) == (200, "alice")
    assert token not in str(ApiToken.objects.values())
    assert "token" not in alice_api.get("/api/v1/me/token/").json()


def test_a_new_token_ends_the_earlier_one(alice_api):
    first = alice_api.post("/api/v1/me/token/").json()["token"]
    alice_api.post("/api/v1/me/token/")
    assert _me({"Authorization": f"Bearer {first}"}).status_code == 401


def test_a_withdrawn_token_and_a_disabled_user_are_refused(alice_api, alice):
    token = alice_api.post("/api/v1/me/token/").json()["token"]
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert _me({"Authorization": f"Bearer {token}"}).status_code == 401
    User.objects.filter(pk=alice.pk).update(is_active=True)
    assert _me({"Authorization": f"Bearer {token}"}).status_code == 200
    APIClient().delete("/api/v1/me/token/", headers={"Authorization": f"Bearer {token}"})
    assert _me({"Authorization": f"Bearer {token}"}).status_code == 401


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer a b", "Bearer nonsense", "Bearer \xff", "Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Digest x"],
)
def test_a_header_that_proves_nothing_is_refused(header):
    answer = _me({"Authorization": header})
    assert answer.status_code == 401
    assert set(answer.json()) == {"error", "code", "fields"}


def test_basic_credentials_are_checked_once_a_minute(alice, checked_passwords, monkeypatch):
    clock = [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    for _ in range(3):
        assert _me(_basic("alice", PASSWORD)).status_code == 200
    assert checked_passwords == ["alice"]
    clock[0] += authentication.CACHE_SECONDS + 1
    assert _me(_basic("alice", PASSWORD)).status_code == 200
    assert checked_passwords == ["alice", "alice"]


def test_a_wrong_password_is_never_remembered(alice):
    assert _me(_basic("alice", PASSWORD)).status_code == 200
    assert _me(_basic("alice", "wrong")).status_code == 401
    assert _me(_basic("nobody", PASSWORD)).status_code == 401


def test_a_changed_password_ends_the_old_one_at_once(alice):
    assert _me(_basic("alice", PASSWORD)).status_code == 200
    alice.set_password("another long password")
    alice.save(update_fields=["password"])
    assert _me(_basic("alice", PASSWORD)).status_code == 401
    assert _me(_basic("alice", "another long password")).status_code == 200


def test_a_disabled_user_is_refused_at_once(alice):
    assert _me(_basic("alice", PASSWORD)).status_code == 200
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert _me(_basic("alice", PASSWORD)).status_code == 401


def test_guessing_is_slowed_down_and_right_log_ins_are_not(alice, bob):
    for _ in range(30):
        assert _me(_basic("bob", PASSWORD)).status_code == 200
    for _ in range(10):
        _me(_basic("alice", "wrong"))
    answer = _me(_basic("alice", PASSWORD))
    assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
    assert _me(_basic("bob", PASSWORD)).status_code == 200


def test_a_session_without_a_csrf_token_changes_nothing(alice):
    api = APIClient(enforce_csrf_checks=True)
    api.force_login(alice)
    answer = api.post("/api/v1/me/token/")
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    assert not ApiToken.objects.exists()

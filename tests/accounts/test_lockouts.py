import base64

import pytest
from django.contrib.auth.models import User
from django.test import Client

from accounts import actions
from core.models import AuditEntry
from tests.factories import PASSWORD

pytestmark = pytest.mark.django_db


def log_in(name: str, password: str) -> int:
    return Client().post("/login/", {"username": name, "password": password}).status_code


def test_a_lockout_leaves_one_line_however_long_the_guessing_goes_on(alice: User) -> None:
    for _ in range(15):
        log_in("alice", "wrong")
        headers = {"authorization": "Basic " + base64.b64encode(b"alice:wrong").decode()}
        Client().get("/api/v1/me/", headers=headers)

    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.kind, entry.name) == ("Tidepool", "paused", "login", "alice")
    assert entry.after == {"from": "127.0.0.1", "failures": 10}


def test_hostile_names_are_written_down_as_well() -> None:
    headers = {"authorization": "Basic " + base64.b64encode(("x" * 300 + "\0:wrong").encode()).decode()}
    for _ in range(12):
        assert Client().get("/api/v1/me/", headers=headers).status_code in {400, 401, 429}


def test_a_reset_lets_the_user_in_again_at_once(alice: User, carol: User) -> None:
    for _ in range(10):
        log_in("alice", "wrong")
    assert log_in("alice", PASSWORD) == 429

    path = actions.reset_password(carol, alice.pk).path
    Client().post(path, {"password": "seven green turtles", "again": "seven green turtles"})

    assert log_in("alice", "seven green turtles") == 302

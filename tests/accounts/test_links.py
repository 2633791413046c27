"""A one-time link opens one account once, for a while, and nothing else."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounts import actions
from accounts.models import OneTimeLink
from accounts.passwords import Handout
from core.models import AuditEntry
from core.roles import Role

pytestmark = pytest.mark.django_db

GOOD = {"password": "seven green turtles", "again": "seven green turtles"}


@pytest.fixture
def invitation(carol: User) -> Handout:
    return actions.invite(carol, "erin", Role.DATA_SCIENTIST)


def test_sets_a_password_and_logs_in_once(invitation: Handout) -> None:
    browser = Client(enforce_csrf_checks=True)
    shown = browser.get(invitation.path)
    token = shown.context["csrf_token"]

    answer = browser.post(invitation.path, {**GOOD, "csrfmiddlewaretoken": str(token)})

    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert browser.get("/").status_code == 200
    assert User.objects.get(username="erin").check_password(GOOD["password"])
    assert Client().get(invitation.path).status_code == 404
    assert Client().post(invitation.path, GOOD).status_code == 404
    assert AuditEntry.objects.filter(actor="erin", verb="used a one-time link to set the password of").exists()


def test_needs_a_csrf_token(invitation: Handout) -> None:
    assert Client(enforce_csrf_checks=True).post(invitation.path, GOOD).status_code == 403
    assert OneTimeLink.objects.exists()


def test_opening_it_changes_nothing(invitation: Handout) -> None:
    """Chats and mail programs open links by themselves."""
    for method in ("get", "head", "get"):
        assert getattr(Client(), method)(invitation.path).status_code == 200


def test_is_not_cached_and_not_told_to_other_sites(invitation: Handout) -> None:
    headers = Client().get(invitation.path).headers

    assert "no-store" in headers["Cache-Control"]
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"password": "short", "again": "short"}, "too short"),
        ({"password": "1234567890", "again": "1234567890"}, "entirely numeric"),
        ({"password": "erin erin erin", "again": "something else"}, "differ"),
        ({"password": "", "again": ""}, "required"),
        ({"password": "x" * 5000, "again": "x" * 5000}, "at most"),
    ],
)
def test_a_password_that_is_none_leaves_the_link(invitation: Handout, given: dict[str, str], sentence: str) -> None:
    answer = Client().post(invitation.path, given)

    assert answer.status_code == 200
    assert sentence in answer.content.decode()
    assert OneTimeLink.objects.exists()
    assert not User.objects.get(username="erin").has_usable_password()


@pytest.mark.parametrize(
    "change", [lambda path: path[:-2] + "x/", lambda path: path.replace("/welcome/", "/welcome/9")]
)
def test_a_wrong_one_opens_nothing(invitation: Handout, change: Callable[[str], str]) -> None:
    wrong = change(invitation.path)

    assert Client().get(wrong).status_code == 404
    assert Client().post(wrong, GOOD).status_code == 404
    assert "erin" not in Client().get(wrong).content.decode()


@pytest.mark.parametrize("path", [f"/welcome/{2**63}/x/", "/welcome/1/\udcff/", "/welcome/1/%00/"])
def test_hostile_addresses_are_not_found(invitation: Handout, path: str) -> None:
    assert Client().get(path.encode("utf-8", "surrogatepass").decode("latin-1")).status_code == 404


def test_ends_by_itself(invitation: Handout) -> None:
    OneTimeLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert Client().get(invitation.path).status_code == 404
    assert Client().post(invitation.path, GOOD).status_code == 404


def test_guessing_is_slowed_down(invitation: Handout) -> None:
    for _ in range(9):
        assert Client().get("/welcome/1/guess/").status_code == 404

    assert Client().get("/welcome/1/guess/").status_code == 429
    assert Client().get(invitation.path).status_code == 429


def test_takes_over_no_session_that_somebody_prepared(invitation: Handout, alice: User) -> None:
    """Neither an anonymous session's key nor anything that another user left in it lives on."""
    browser = Client()
    session = browser.session
    session["planted"] = "yes"
    session.save()
    before = session.session_key

    browser.post(invitation.path, GOOD)
    assert browser.session.session_key != before

    again = actions.reset_password(User.objects.get(username="carol"), alice.pk)
    browser.session["of erin"] = "yes"
    browser.post(again.path, GOOD)
    assert browser.session["_auth_user_id"] == str(alice.pk)
    assert "of erin" not in browser.session


def test_a_new_link_ends_the_earlier_one(invitation: Handout, carol: User) -> None:
    newer = actions.reset_password(carol, invitation.user.pk)

    assert Client().get(invitation.path).status_code == 404
    assert Client().get(newer.path).status_code == 200
    assert OneTimeLink.objects.count() == 1

"""Everybody's own account: tokens and the password, on the page and by the API."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.models import ApiToken
from accounts.tokens import make_token
from core.models import AuditEntry
from core.roles import viewers
from tests.factories import PASSWORD, JobFactory

pytestmark = pytest.mark.django_db

OpenAs = Callable[[User], Client]
NEW = "seven green turtles"


def with_token(token: str) -> int:
    return Client().get("/api/v1/me/", headers={"authorization": f"Bearer {token}"}).status_code


def shown_token(content: str) -> str:
    found = re.search(r'value="(tide_[^"]+)"', content)
    assert found
    return found[1]


class TestTokens:
    def test_a_token_is_shown_to_its_user_in_this_browser(self, alice: User, open_as: OpenAs) -> None:
        browser = open_as(alice)

        sent = {"name": "nightly", "days": "90", "scope": "read"}
        answer = browser.post("/account/tokens/", sent, follow=True)

        token = shown_token(answer.content.decode())
        assert answer["Cache-Control"] == "private, no-store"
        assert with_token(token) == 200
        assert token not in open_as(alice).get("/account/").content.decode()
        assert timedelta(days=89) < ApiToken.objects.get().expires_at - timezone.now() < timedelta(days=91)
        assert AuditEntry.objects.get().name == "nightly of alice"
        assert ApiToken.objects.get().scope == "read"

    def test_one_training_of_ones_own(self, alice: User, bob: User, open_as: OpenAs) -> None:
        mine, others = JobFactory(owner=alice), JobFactory(owner=bob)
        sent = {"name": "watch", "days": "30", "scope": "job"}
        browser = open_as(alice)

        refused = [browser.post("/account/tokens/", {**sent, "job": job}) for job in ("", "0", others.pk)]
        browser.post("/account/tokens/", {**sent, "job": mine.pk})

        assert [answer.status_code for answer in refused] == [400, 400, 400]
        assert ApiToken.objects.get().scope == f"job:{mine.pk}"

    def test_a_scope_that_is_none_cannot_be_stored(self, alice: User) -> None:
        with pytest.raises(IntegrityError):
            ApiToken.objects.create(user=alice, name="odd", digest="0", scope="everything")

    def test_many_each_withdrawn_alone(self, alice: User, open_as: OpenAs) -> None:
        first, second = (make_token(alice, name, None).text for name in ("one", "two"))

        open_as(alice).post(f"/account/tokens/{ApiToken.objects.get(name='one').pk}/withdraw/")

        assert (with_token(first), with_token(second)) == (401, 200)

    @pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a/b", "\u202e", "a\0b", "taken"])
    def test_a_name_that_cannot_be_one_is_kept_in_the_form(self, alice: User, open_as: OpenAs, name: str) -> None:
        make_token(alice, "taken", None)

        answer = open_as(alice).post("/account/tokens/", {"name": name, "days": "30", "scope": "full"})

        assert answer.status_code == 400
        assert answer.context["token_form"].errors["name"]
        assert ApiToken.objects.count() == 1

    def test_an_expired_token_opens_nothing(self, alice: User) -> None:
        made = make_token(alice, "ci", timezone.now() + timedelta(days=1))
        ApiToken.objects.update(expires_at=timezone.now())

        answer = Client().get("/api/v1/me/", headers={"authorization": f"Bearer {made.text}"})

        assert answer.status_code == 401
        assert "has expired" in answer.json()["error"]

    def test_says_when_it_was_used_without_writing_each_time(
        self, alice: User, django_assert_max_num_queries: Callable[[int], object]
    ) -> None:
        made = make_token(alice, "ci", None)
        with_token(made.text)
        used = ApiToken.objects.get().last_used_at
        assert timezone.now() - used < timedelta(minutes=1)

        with_token(made.text)
        assert ApiToken.objects.get().last_used_at == used
        ApiToken.objects.update(last_used_at=used - timedelta(minutes=2))
        with_token(made.text)
        assert ApiToken.objects.get().last_used_at >= used

    def test_others_tokens_are_not_found(self, alice: User, bob: User, open_as: OpenAs) -> None:
        number = make_token(alice, "ci", None).row.pk

        assert open_as(bob).post(f"/account/tokens/{number}/withdraw/").status_code == 404
        assert open_as(bob).delete(f"/api/v1/me/tokens/{number}/").status_code == 404
        assert ApiToken.objects.exists()

    def test_there_is_an_end_to_them(self, alice: User, open_as: OpenAs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tokens, "MAX_TOKENS", 1)
        make_token(alice, "one", None)

        answer = open_as(alice).post("/api/v1/me/tokens/", {"name": "two"}, "application/json")

        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")

    def test_by_the_api(self, alice: User, open_as: OpenAs) -> None:
        api, soon = open_as(alice), (timezone.now() + timedelta(days=3)).isoformat()

        made = api.post("/api/v1/me/tokens/", {"name": "ci", "expires_at": soon, "scope": "submit"}, "application/json")

        assert made.status_code == 201
        assert with_token(made.json()["token"]) == 200
        [listed] = api.get("/api/v1/me/tokens/").json()["results"]
        assert (listed["name"], listed["scope"]) == ("ci", "submit")
        assert "token" not in listed
        assert api.delete(f"/api/v1/me/tokens/{listed['id']}/").status_code == 204
        assert with_token(made.json()["token"]) == 401

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"name": 3.5, "expires_at": "yesterday"},
            {"name": "ci", "expires_at": "2020-01-01T00:00Z"},
            {"name": "x", "scope": "all"},
        ],
    )
    def test_the_api_says_what_does_not_fit(self, alice: User, open_as: OpenAs, given: dict[str, object]) -> None:
        answer = open_as(alice).post("/api/v1/me/tokens/", given, "application/json")

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
        assert answer.json()["fields"]

    def test_a_viewer_withdraws_and_makes_none(self, alice: User, open_as: OpenAs) -> None:
        number = make_token(alice, "ci", None).row.pk
        alice.groups.add(viewers())
        browser = open_as(alice)

        assert browser.post("/account/tokens/", {"name": "new", "days": ""}).status_code == 403
        assert "Create token" not in browser.get("/account/").content.decode()
        assert browser.post(f"/account/tokens/{number}/withdraw/").status_code == 302
        assert not ApiToken.objects.exists()


class TestPassword:
    def test_ends_other_sessions_and_keeps_this_one(self, alice: User, open_as: OpenAs) -> None:
        here, elsewhere = open_as(alice), open_as(alice)
        key = here.session.session_key
        token = make_token(alice, "ci", None).text

        answer = here.post("/account/password/", {"old_password": PASSWORD, "password": NEW, "again": NEW})

        assert answer.status_code == 302
        assert here.get("/").status_code == 200
        assert here.session.session_key != key
        assert elsewhere.get("/").status_code == 302
        assert with_token(token) == 200
        assert User.objects.get(pk=alice.pk).check_password(NEW)

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"old_password": "wrong", "password": NEW, "again": NEW}, "old_password"),
            ({"old_password": PASSWORD, "password": "short", "again": "short"}, "password"),
            ({"old_password": PASSWORD, "password": NEW, "again": "another"}, "again"),
            ({"old_password": "", "password": "", "again": ""}, "old_password"),
        ],
    )
    def test_says_what_does_not_fit(self, alice: User, open_as: OpenAs, given: dict[str, str], field: str) -> None:
        answer = open_as(alice).post("/account/password/", given)

        assert answer.status_code == 400
        assert answer.context["password_form"].errors[field]
        assert User.objects.get(pk=alice.pk).check_password(PASSWORD)

    def test_an_open_session_is_no_way_to_guess(self, alice: User, open_as: OpenAs) -> None:
        browser = open_as(alice)
        for _ in range(10):
            browser.post("/account/password/", {"old_password": "wrong", "password": NEW, "again": NEW})

        answer = browser.post("/account/password/", {"old_password": PASSWORD, "password": NEW, "again": NEW})

        assert answer.status_code == 429
        assert User.objects.get(pk=alice.pk).check_password(PASSWORD)

    def test_by_the_api(self, alice: User, open_as: OpenAs) -> None:
        api = open_as(alice)

        wrong = api.post("/api/v1/me/password/", {"old_password": "no", "password": NEW}, "application/json")
        assert (wrong.status_code, set(wrong.json()["fields"])) == (400, {"old_password"})
        done = api.post("/api/v1/me/password/", {"old_password": PASSWORD, "password": NEW}, "application/json")
        assert done.status_code == 204
        assert api.get("/api/v1/me/").status_code == 200

    def test_a_viewer_changes_it_too(self, alice: User, open_as: OpenAs) -> None:
        alice.groups.add(viewers())

        open_as(alice).post("/account/password/", {"old_password": PASSWORD, "password": NEW, "again": NEW})

        assert User.objects.get(pk=alice.pk).check_password(NEW)

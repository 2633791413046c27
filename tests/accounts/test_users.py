"""The pages and the API of users, for administrators of the cluster."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounts import actions
from accounts.tokens import make_token
from core.roles import Role, role_of, viewers
from jobs.states import JobState
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory

pytestmark = pytest.mark.django_db

OpenAs = Callable[[User], Client]


@pytest.fixture
def carols(carol: User, open_as: OpenAs) -> Client:
    return open_as(carol)


def link_of(content: str) -> str:
    found = re.search(r'value="http://testserver(/welcome/[^"]+)"', content)
    assert found
    return found[1]


class TestPages:
    def test_the_list_says_what_administrators_ask_for(self, alice: User, bob: User, carols: Client) -> None:
        InstanceGroupFactory(name="vision").members.add(alice)
        InstanceGroupFactory(name="speech").admins.add(bob)
        make_token(alice, "ci", None)
        victor = UserFactory(username="victor", is_active=False)
        victor.groups.add(viewers())

        content = carols.get("/users/").content.decode()
        rows = {row[0]: row for row in _table(content)}

        assert rows["alice"][1:4] == ["data scientist", "Active", "vision, open groups"]
        assert rows["alice"][-1] == "1"
        assert rows["bob"][1] == "group admin"
        assert "administers speech" in rows["bob"][3]
        assert rows["carol"][1] == "cluster admin"
        assert rows["victor"][1:3] == ["viewer", "Deactivated"]

    def test_costs_the_same_for_any_number(
        self, alice: User, carols: Client, django_assert_max_num_queries: Callable[[int], Any]
    ) -> None:
        group = InstanceGroupFactory()
        for _ in range(40):
            user = UserFactory()
            group.members.add(user)
            make_token(user, "ci", None)
        with django_assert_max_num_queries(8):
            assert carols.get("/users/").status_code == 200
        with django_assert_max_num_queries(8):
            assert carols.get("/api/v1/users/").status_code == 200

    def test_searches_by_name(self, alice: User, bob: User, carols: Client) -> None:
        names = [row[0] for row in _table(carols.get("/users/?search=ALI").content.decode())]

        assert names == ["alice"]
        assert "No user name contains" in carols.get("/users/?search=nobody").content.decode()

    def test_invites_and_shows_the_link_once(self, carols: Client) -> None:
        answer = carols.post("/users/invite/", {"username": "erin", "role": "viewer"}, follow=True)

        path = link_of(answer.content.decode())
        assert Client().get(path).status_code == 200
        erin = User.objects.get(username="erin")
        assert role_of(erin) == Role.VIEWER
        carols.cookies.pop("tidepool_shown")
        page = carols.get(f"/users/{erin.pk}/").content.decode()
        assert "Invited" in page
        assert "/welcome/" not in page

    def test_the_form_keeps_what_was_typed(self, alice: User, carols: Client) -> None:
        answer = carols.post("/users/invite/", {"username": "alice", "role": "viewer"})

        content = answer.content.decode()
        assert answer.status_code == 400
        assert "There is already a user &#x27;alice&#x27;" in content
        assert re.search(r'value="viewer"\s+checked', content)

    def test_a_role_is_changed_and_that_undone(self, alice: User, carols: Client) -> None:
        shown = carols.post(f"/users/{alice.pk}/role/", {"role": "viewer"}, follow=True).content.decode()

        assert "alice now has the role viewer." in shown
        assert 'name="role" value="data_scientist"' in shown
        carols.post(f"/users/{alice.pk}/role/", {"role": "data_scientist"})
        assert role_of(User.objects.get(pk=alice.pk)) == Role.DATA_SCIENTIST

    def test_who_gives_up_the_role_is_led_to_a_page_of_the_own(self, alice: User, carol: User, carols: Client) -> None:
        actions.change_role(carol, alice.pk, Role.CLUSTER_ADMIN)

        answer = carols.post(f"/users/{carol.pk}/role/", {"role": "data_scientist"}, follow=True)

        assert answer.redirect_chain[-1] == ("/", 302)

    @pytest.mark.parametrize("act", ["deactivate", "reset-password", "activate", "withdraw"])
    def test_what_is_refused_is_said(self, carol: User, carols: Client, act: str) -> None:
        shown = carols.post(f"/users/{carol.pk}/{act}/", follow=True)

        assert shown.status_code == 200
        assert 'role="alert"' in shown.content.decode()
        assert User.objects.get(pk=carol.pk).is_active

    def test_of_who_is_deactivated_it_says_that_trainings_go_on(self, alice: User, carols: Client) -> None:
        JobFactory(owner=alice)
        JobFactory(owner=alice, state=JobState.FAILED, finished_at=timezone.now())

        shown = carols.post(f"/users/{alice.pk}/deactivate/", follow=True).content.decode()

        assert "its trainings continue" in shown
        assert '<a href="/jobs/?state=active&amp;owner=alice">1</a>' in shown
        [listed] = carols.get("/api/v1/jobs/?state=active&owner=alice").json()["results"]
        assert carols.post(f"/api/v1/jobs/{listed['id']}/cancel/").status_code == 200

    def test_activates_with_a_link(self, alice: User, carol: User, carols: Client) -> None:
        actions.deactivate(carol, alice.pk)

        path = link_of(carols.post(f"/users/{alice.pk}/activate/", follow=True).content.decode())

        assert Client().get(path).status_code == 200

    def test_withdraws_an_invitation(self, carol: User, carols: Client) -> None:
        erin = actions.invite(carol, "erin", Role.DATA_SCIENTIST).user

        assert carols.post(f"/users/{erin.pk}/withdraw/")["Location"] == "/users/"
        assert not User.objects.filter(username="erin").exists()

    def test_withdraws_a_token(self, alice: User, carols: Client) -> None:
        number = make_token(alice, "ci", None).row.pk
        assert "ci" in carols.get(f"/users/{alice.pk}/").content.decode()

        carols.post(f"/users/{alice.pk}/tokens/{number}/withdraw/")

        assert not alice.api_tokens.exists()

    @pytest.mark.parametrize("path", ["/users/999999/", f"/users/{2**63}/"])
    def test_who_is_not_there(self, carols: Client, path: str) -> None:
        assert carols.get(path).status_code == 404

    def test_the_rail_leads_there_only_who_may(self, alice: User, carols: Client, open_as: OpenAs) -> None:
        assert 'href="/users/"' in carols.get("/").content.decode()
        assert 'href="/users/"' not in open_as(alice).get("/").content.decode()


class TestApi:
    def test_a_user_from_invitation_to_the_end(self, carols: Client) -> None:
        invited = carols.post("/api/v1/users/", {"username": "erin", "role": "viewer"}, "application/json")
        assert (invited.status_code, invited.json()["user"]["state"]) == (201, "invited")
        assert invited["Cache-Control"] == "no-store"
        path = invited.json()["link"].removeprefix("http://testserver")
        browser = Client()
        browser.post(path, {"password": "seven green turtles", "again": "seven green turtles"})

        changed = carols.patch("/api/v1/users/erin/", {"role": "data_scientist"}, "application/json")
        assert (changed.json()["role"], changed.json()["state"]) == ("data_scientist", "active")
        browser.post("/api/v1/me/tokens/", {"name": "ci"}, "application/json")
        [token] = carols.get("/api/v1/users/erin/tokens/").json()["results"]
        assert carols.delete(f"/api/v1/users/erin/tokens/{token['id']}/").status_code == 204

        assert carols.post("/api/v1/users/erin/reset-password/").json()["user"]["state"] == "password reset"
        assert carols.post("/api/v1/users/erin/deactivate/").json()["state"] == "deactivated"
        assert carols.post("/api/v1/users/erin/activate/").json()["link"]
        assert [row["username"] for row in carols.get("/api/v1/users/?search=eri").json()["results"]] == ["erin"]

    def test_an_invitation_is_withdrawn(self, carols: Client) -> None:
        carols.post("/api/v1/users/", {"username": "erin"}, "application/json")

        assert carols.delete("/api/v1/users/erin/").status_code == 204
        assert carols.get("/api/v1/users/erin/").status_code == 404

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"username": ""},
            {"username": "erin", "role": "god"},
            {"username": "a/b"},
            {"username": "x", "is_staff": 1},
        ],
    )
    def test_says_what_does_not_fit(self, carols: Client, given: dict[str, Any]) -> None:
        answer = carols.post("/api/v1/users/", given, "application/json")

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
        assert answer.json()["fields"]

    def test_refuses_to_shut_out_the_last_administrator(self, carols: Client) -> None:
        answer = carols.patch("/api/v1/users/carol/", {"role": "viewer"}, "application/json")

        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "is the last administrator" in answer.json()["error"]

    @pytest.mark.parametrize("reference", ["nobody", "99999999999999999999", "%00", "\u0663"])
    def test_who_is_not_there(self, carols: Client, reference: str) -> None:
        assert carols.get(f"/api/v1/users/{reference}/").status_code == 404

    def test_a_user_is_found_by_name_and_by_id(self, alice: User, carols: Client) -> None:
        assert carols.get(f"/api/v1/users/{alice.pk}/").json()["username"] == "alice"

    def test_says_who_is_asking(self, carols: Client) -> None:
        assert carols.get("/api/v1/me/").json()["role"] == "cluster_admin"


def _table(content: str) -> list[list[str]]:
    rows = re.findall(r"<tr data-href=.*?</tr>", content, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", "", cell).split()) for cell in row] for row in cells]

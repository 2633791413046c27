"""Viewers read and change nothing, whichever way they come in; a view cannot forget it."""

from base64 import b64encode

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.views import APIView

from core.errors import NotAllowed
from core.roles import Role, may_change, require_cluster_admin, role_of, viewers
from jobs.models import InstanceGroup
from tests.factories import (
    PASSWORD,
    DatasetVersionFactory,
    InstanceGroupFactory,
    RegisteredModelVersionFactory,
    UserFactory,
)
from tests.html import html_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def victor() -> User:
    """Is a viewer."""
    victor = UserFactory(username="victor")
    victor.groups.add(viewers())
    return victor


@pytest.fixture
def victors(victor: User) -> Client:
    client = Client()
    client.force_login(victor)
    return client


def test_roles(alice: User, carol: User, victor: User) -> None:
    assert [role_of(user) for user in (victor, alice, carol)] == [
        Role.VIEWER,
        Role.DATA_SCIENTIST,
        Role.CLUSTER_ADMIN,
    ]
    assert [may_change(user) for user in (victor, alice, carol)] == [False, True, True]


def test_staff_who_are_in_the_group_of_viewers_are_staff(carol: User) -> None:
    carol.groups.add(viewers())

    assert role_of(carol) == Role.CLUSTER_ADMIN


def test_only_cluster_admins_administer_the_cluster(alice: User, carol: User, victor: User) -> None:
    require_cluster_admin(carol)
    for user in (alice, victor):
        with pytest.raises(NotAllowed, match="administrator of the cluster"):
            require_cluster_admin(user)


def test_a_page_refuses_what_a_viewer_sends(victors: Client) -> None:
    refused = victors.post("/datasets/new/", {"name": "mine"})

    assert refused.status_code == 403
    assert "Your role is viewer" in html_of(refused)


def test_a_viewer_reads_and_is_not_offered_to_train(victors: Client, alice_client: Client) -> None:
    train = 'href="/jobs/new/" data-key="t"'

    assert train in html_of(alice_client.get("/"))
    shown = victors.get("/")
    assert shown.status_code == 200
    assert train not in html_of(shown)


def test_no_page_offers_a_viewer_to_make_something(victors: Client, alice_client: Client) -> None:
    dataset, model = DatasetVersionFactory().dataset, RegisteredModelVersionFactory().model
    group = InstanceGroupFactory(state=InstanceGroup.State.STARTED)
    pages = {
        "/datasets/": "New dataset</a>",
        f"/datasets/{dataset.pk}/": "Train on this dataset</a>",
        "/models/": "New model</a>",
        f"/models/{model.pk}/": "Train this model</a>",
        f"/instance-groups/{group.pk}/": "Train in this group</a>",
    }
    for address, offer in pages.items():
        assert offer in html_of(alice_client.get(address)), address
        assert offer not in html_of(victors.get(address)), address


def test_a_page_that_its_reader_may_not_change_offers_to_train(alice_client: Client, bob: User) -> None:
    """The button asks for the role, not for whose the page is."""
    dataset = DatasetVersionFactory(dataset__owner=bob).dataset

    assert 'href="/jobs/new/" data-key="t"' in html_of(alice_client.get(f"/datasets/{dataset.pk}/"))


def test_the_api_refuses_what_a_viewer_sends(victors: Client, victor: User) -> None:
    basic = {"authorization": "Basic " + b64encode(f"victor:{PASSWORD}".encode()).decode()}
    for client, headers in ((victors, {}), (Client(), basic)):
        refused = client.post("/api/v1/datasets/", {"name": "mine"}, "application/json", headers=headers)

        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert "Your role is viewer" in refused.json()["error"]
        assert client.get("/api/v1/datasets/", headers=headers).status_code == 200


def test_a_viewer_logs_out_and_keeps_filters(victors: Client) -> None:
    kept = victors.post("/api/v1/job-filters/", {"name": "mine", "parameters": "state=RUNNING"}, "application/json")

    assert kept.status_code == 201
    assert victors.delete(f"/api/v1/job-filters/{kept.json()['id']}/").status_code == 204
    assert victors.post("/logout/").status_code == 302


def _forgot_to_ask(request: HttpRequest) -> HttpResponse:
    return HttpResponse("changed")


class _OpenToAll(APIView):
    permission_classes = [AllowAny]

    def post(self, request: HttpRequest) -> Response:
        return Response("changed")


urlpatterns = [
    path("login/", _forgot_to_ask, name="login"),
    path("logout/", _forgot_to_ask, name="logout"),
    path("", _forgot_to_ask, name="overview"),
    path("forgotten/", _forgot_to_ask),
    path("api/forgotten/", _forgot_to_ask),
    path("api/open/", _OpenToAll.as_view()),
]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
@pytest.mark.parametrize("address", ["/api/forgotten/", "/api/open/"])
def test_a_view_that_forgets_to_ask_is_closed_to_viewers(
    victors: Client, alice_client: Client, address: str, method: str
) -> None:
    refused = getattr(victors, method)(address)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert alice_client.post(address).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_no_method_of_a_page_is_open_to_viewers(victors: Client, method: str) -> None:
    assert getattr(victors, method)("/jobs/new/").status_code == 403

"""A view that forgot to ask is closed, and the log-in holds. (permissions/ tries every address.)"""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.views import APIView

pytestmark = pytest.mark.django_db


def _forgot_to_ask(request: HttpRequest) -> HttpResponse:
    return HttpResponse("secret")


class _OpenToAll(APIView):
    permission_classes = [AllowAny]

    def get(self, request: HttpRequest) -> Response:
        return Response("secret")


urlpatterns = [
    path("login/", _forgot_to_ask, name="login"),
    path("forgotten/", _forgot_to_ask),
    path("api/forgotten/", _forgot_to_ask),
    path("api/open/", _OpenToAll.as_view()),
]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(("address", "status"), [("/forgotten/", 302), ("/api/forgotten/", 401), ("/api/open/", 401)])
def test_a_view_that_forgets_to_ask_is_closed(alice_client, address, status):
    refused = Client().get(address)
    assert refused.status_code == status
    assert b"secret" not in refused.content
    assert alice_client.get(address).status_code == 200


def test_another_host_name_is_refused():
    """A page elsewhere could otherwise point its own name at this server."""
    assert Client().get("/healthz", headers={"host": "evil.example"}).status_code == 400


def test_security_headers():
    headers = Client().get("/login/").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy + ";"
    assert "unsafe-eval" not in policy
    assert [part for part in policy.split("; ") if "unsafe-inline" in part] == ["style-src-attr 'unsafe-inline'"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize("address", ["/account/", "/api/v1/me/", "/jobs/", "/no/such/page/"])
def test_nobody_keeps_private_pages(alice_client, address):
    assert alice_client.get(address)["Cache-Control"] == "private, no-store"
    assert "no-store" in Client().get(address)["Cache-Control"]


def test_the_session_cookie_is_out_of_reach_for_scripts_and_other_sites(alice):
    client = Client()
    response = client.post("/login/", {"username": "alice", "password": "correct horse battery"})
    cookie = response.cookies["tidepool_session"]
    assert response.status_code == 302
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_log_in_stops_guessing(alice):
    client = Client()
    for _ in range(10):
        client.post("/login/", {"username": "alice", "password": "wrong"})
    assert client.post("/login/", {"username": "alice", "password": "correct horse battery"}).status_code == 429


def test_pages_need_a_csrf_token(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    refused = client.post("/logout/")
    assert refused.status_code == 403
    assert "reload it" in refused.content.decode()
    assert client.post("/api/v1/me/token/", content_type="application/json").status_code == 403


def test_an_unknown_host_name_is_refused_in_the_shape_that_was_asked_for(alice):
    program = Client().get("/api/v1/jobs/", headers={"host": "elsewhere.example"})
    assert (program.status_code, program.json()["code"]) == (400, "bad_request")
    person = Client().get("/login/", headers={"host": "elsewhere.example"})
    assert person.status_code == 400
    assert "Invalid request" in person.content.decode()


def test_a_mistake_of_ours_is_told_to_programs_in_the_one_shape(alice, monkeypatch):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("jobs.queries.jobs.get_visible_job", broken)
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    answer = client.get("/api/v1/jobs/1/")
    assert (answer.status_code, answer.json()["code"], answer.json()["fields"]) == (500, "server_error", {})
    assert "secret" not in answer.content.decode()

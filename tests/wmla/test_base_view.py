"""Ways in, and refusals. Probe views stand in for real ones: the rules hold for every address."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.tokens import make_token
from core.errors import Conflict
from tests.factories import PASSWORD
from webapp.urls import urlpatterns as site
from wmla.base_view import ConductorView, WmlaView, csrf_token_of, json_body, route

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


EMPTY: dict[str, Any] = {"data": "", "content_type": "application/json"}


class Probe(WmlaView):
    def get(self, request: Request) -> Response:
        return Response({"user": request.user.get_username()})

    def post(self, request: Request) -> Response:
        if request.query_params.get("busy"):
            raise Conflict("It is\nbusy: wait.")
        return Response(json_body(request))


class ConductorProbe(ConductorView, Probe):
    pass


probes = [route("probe", Probe, "probe"), route("conductor-probe", ConductorProbe, "conductor-probe")]
#: The handler of unexpected errors answers by the address.
probes += [route(f"{base}/v1/probe", Probe, "probe") for base in ("platform/rest/deeplearning", "auth")]
urlpatterns = [path("", include((probes, "wmla"))), *site]
handler400, handler403, handler404 = (
    "webapp.views.bad_request",
    "webapp.views.permission_denied",
    "webapp.views.not_found",
)
handler500 = "webapp.views.server_error"


@pytest.mark.parametrize("address", ["/probe", "/probe/", "/conductor-probe", "/conductor-probe/"])
def test_it_answers_with_and_without_a_slash(client: Client, alice: User, address: str) -> None:
    client.force_login(alice)
    assert client.get(address).json() == {"user": "alice"}


@pytest.mark.parametrize("header", ["Authorization", "X-Auth-Token"])
def test_a_token_in_either_header_lets_in(client: Client, alice: User, header: str) -> None:
    text = make_token(alice, "notebook", None).text
    value = f"Bearer {text}" if header == "Authorization" else text
    assert client.get("/probe", headers={header: value}).json() == {"user": "alice"}
    assert client.get("/probe", headers={header: value + "x"}).status_code == 401


def test_basic_lets_in(client: Client, alice: User) -> None:
    import base64

    words = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    assert client.get("/probe", headers={"Authorization": f"Basic {words}"}).json() == {"user": "alice"}


def test_strangers_get_a_line_of_text_and_no_log_in_page(client: Client) -> None:
    unknown = ("/platform/rest/deeplearning/v1/nothing", "/platform/rest/conductor/v1/", "/auth/v1/x", "/v1/preauth/x")
    for address in ("/probe", *unknown):
        answer = client.get(address)
        assert answer.status_code == 401
        assert answer["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.content.startswith(b"Error 401: ")
        assert answer.content.endswith(b"\n")
        assert "Basic" not in answer["WWW-Authenticate"]


def test_unknown_addresses_are_text(alice_client: Client) -> None:
    answer = alice_client.get("/platform/rest/deeplearning/v1/nothing")
    assert (answer.status_code, answer.content[:11]) == (404, b"Error 404: ")


def test_a_refusal_is_one_line(alice_client: Client) -> None:
    answer = alice_client.post("/probe?busy=1")
    assert (answer.status_code, answer.content) == (409, b"Error 409: It is busy: wait.\n")


def test_a_mistake_of_ours_is_a_line_of_text(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Any) -> Any:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("tests.wmla.test_base_view.json_body", broken)
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    for address in ("/platform/rest/deeplearning/v1/probe", "/auth/v1/probe"):
        answer = client.post(address)
        assert (answer.status_code, answer.content[:11]) == (500, b"Error 500: ")
        assert b"secret" not in answer.content
        assert answer["Content-Type"] == "text/plain; charset=utf-8"


def test_other_methods_are_refused_as_text(alice_client: Client) -> None:
    answer = alice_client.put("/probe")
    assert (answer.status_code, answer.content[:11], answer["Allow"]) == (
        405,
        b"Error 405: ",
        "GET, POST, HEAD, OPTIONS",
    )


@pytest.mark.parametrize("accepted", ["application/octet-stream", "text/plain", "image/png", "*/*", "nonsense"])
def test_every_accept_header_is_good(alice_client: Client, accepted: str) -> None:
    assert alice_client.get("/probe", headers={"Accept": accepted}).status_code == 200


def test_get_may_have_a_body(alice_client: Client) -> None:
    answer = alice_client.generic("GET", "/probe", b'{"a": 1}', content_type="application/json")
    assert answer.status_code == 200
    assert alice_client.generic("GET", "/probe", b"\xff", content_type="what/ever").status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_json_is_read_whatever_it_is_called(alice_client: Client, kind: str) -> None:
    assert alice_client.generic("POST", "/probe", b'{"a": 1}', content_type=kind).json() == {"a": 1}


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b"[" * 100_000, b'"text"'])
def test_other_bodies_are_refused(alice_client: Client, body: bytes) -> None:
    answer = alice_client.generic("POST", "/probe", body, content_type="application/json")
    assert (answer.status_code, answer.content[:11]) == (400, b"Error 400: ")


def test_a_cookie_alone_posts_to_deep_learning_but_not_to_conductor(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    token = csrf_token_of(client.session.session_key)

    assert client.post("/probe", **EMPTY).status_code == 200
    assert client.post("/conductor-probe", **EMPTY).status_code == 403
    assert client.post("/conductor-probe?csrftoken=" + token, **EMPTY).status_code == 200
    assert client.post("/conductor-probe", headers={"X-CSRFToken": token}, **EMPTY).status_code == 200
    assert client.post("/conductor-probe?csrftoken=" + token[:-1], **EMPTY).status_code == 403
    assert client.post("/conductor-probe?csrftoken=%C3%A9", **EMPTY).status_code == 403


def test_the_csrf_token_of_an_earlier_log_on_is_stale(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    stale = csrf_token_of(client.session.session_key)
    client.logout()
    client.force_login(alice)
    answer: Any = client.post("/conductor-probe?csrftoken=" + stale, **EMPTY)
    assert (answer.status_code, answer.content[:11]) == (403, b"Error 403: ")


def test_credentials_need_no_csrf_token(client: Client, alice: User) -> None:
    text = make_token(alice, "notebook", None).text
    assert client.post("/conductor-probe", headers={"X-Auth-Token": text}, **EMPTY).status_code == 200

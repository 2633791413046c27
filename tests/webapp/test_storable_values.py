"""Values that no database can store are refused before a view looks for them, by the name of their field."""

import base64
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.html import html_of

pytestmark = pytest.mark.django_db

_DLI = "/platform/rest/deeplearning/v1"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (f"/jobs/{2**63}/", "Page not found"),
        (f"/api/v1/jobs/{2**63}/", "There is nothing at this address"),
        ("/api/v1/hosts/%00/", "There is nothing at this address"),
        (f"{_DLI}/execs/%00", "There is nothing at this address"),
    ],
)
def test_a_path_that_no_row_can_have_leads_nowhere(alice_client: Client, address: str, sentence: str) -> None:
    answer = alice_client.get(address)

    assert answer.status_code == 404
    assert sentence in html_of(answer)


def test_a_parameter_with_nul_is_named(alice_client: Client) -> None:
    sentence = "search contains a NUL character: remove it."

    page = alice_client.get("/jobs/?search=a%00b")
    assert page.status_code == 400
    assert sentence in html_of(page)
    answer = alice_client.get("/api/v1/jobs/?search=a%00b")
    assert answer.status_code == 400
    assert answer.json() == {"error": sentence, "code": "invalid", "fields": {"search": [sentence]}}
    answer = alice_client.get(f"{_DLI}/execs?search=a%00b")
    assert (answer.status_code, answer.content.decode()) == (400, f"Error 400: {sentence}\n")


def test_the_name_of_a_parameter_may_be_hostile_too(alice_client: Client) -> None:
    answer = alice_client.get("/api/v1/jobs/?a%00b=1")

    assert answer.status_code == 400
    assert answer.json()["error"].startswith("'a\\x00b' contains a NUL")


def test_a_log_in_with_nul_is_refused(client: Client, alice: User) -> None:
    answer = client.post("/login/", {"username": "alice\0", "password": "x"})

    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session


def test_a_header_with_nul_is_named(alice_client: Client) -> None:
    answer = alice_client.get("/api/v1/jobs/", headers={"User-Agent": "a\0b"})

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["User-Agent"]


@pytest.mark.parametrize("key", [r'"abcdefgh\000ijk"', "abcdefgh\xe9", "short", "a" * 4000])
def test_a_session_key_that_cannot_be_is_none(client: Client, key: str) -> None:
    answer: Any = client.get("/jobs/", headers={"cookie": f"tidepool_session={key}"})

    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/jobs/")
    assert client.get("/api/v1/me/", headers={"cookie": f"tidepool_session={key}"}).status_code == 401


def test_a_user_name_with_nul_is_wrong(client: Client) -> None:
    credentials = base64.b64encode(b"alice\0:x").decode()
    answer = client.get("/api/v1/me/", headers={"Authorization": f"Basic {credentials}"})

    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")

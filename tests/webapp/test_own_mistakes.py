"""Mistakes of ours are a 500 with a traceback in the log, not in the answer; conflicts of two requests are a 409."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, IntegrityError, transaction
from django.db.models import ProtectedError
from django.http import HttpResponse
from django.test import Client

from core.constraints import conflict_behind

pytestmark = pytest.mark.django_db

_SECRET = "the-value-that-broke-it"
_PAGE, _REST, _WMLA = "/account/tokens/1/withdraw/", "/api/v1/uploads/", "/platform/rest/deeplearning/v1/datasets"
#: Address -> a function that its view calls for a change.
CALLED = {
    _PAGE: "accounts.views._withdraw_token",
    _REST: "core.uploads.begin",
    _WMLA: "wmla.datasets.json_body",
}

Plant = Callable[[str, Callable[[], Any]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Have the view at an address call this function."""

    def planted(address: str, function: Callable[[], Any]) -> None:
        monkeypatch.setattr(CALLED[address], lambda *args, **options: function())

    return planted


@pytest.fixture
def browser(alice: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    return client


def _post(browser: Client, address: str) -> HttpResponse:
    return browser.post(address, {"name": "a.zip", "size_bytes": 1}, content_type="application/json")


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@transaction.atomic
def _take_a_name_again() -> None:
    User.objects.create(username="alice")


@transaction.atomic
def _leave_out_a_name() -> None:
    User.objects.create(username=None)


@pytest.mark.parametrize("address", CALLED)
@pytest.mark.parametrize("kind", [ValueError, OverflowError, DataError, IntegrityError, LookupError])
def test_a_mistake_of_ours_is_logged_and_not_shown(
    browser: Client, plant: Plant, caplog: pytest.LogCaptureFixture, address: str, kind: type[Exception]
) -> None:
    plant(address, _raising(kind(_SECRET)))

    answer = _post(browser, address)

    assert answer.status_code == 500
    [record] = [record for record in caplog.records if record.name == "django.request"]
    assert record.exc_info is not None
    assert record.exc_info[0] is kind
    assert _SECRET not in answer.content.decode()
    assert "Traceback" not in answer.content.decode()
    assert "Server error" in answer.content.decode()


@pytest.mark.parametrize("address", CALLED)
def test_a_name_that_another_request_took_is_a_conflict(browser: Client, plant: Plant, address: str) -> None:
    plant(address, _take_a_name_again)

    answer = _post(browser, address)

    assert answer.status_code == 409
    assert "Another request changed the same thing at this moment" in answer.content.decode()
    if address == _REST:
        assert answer.json()["code"] == "conflict"


@pytest.mark.parametrize("address", CALLED)
def test_a_column_without_a_value_is_a_mistake_of_ours(browser: Client, plant: Plant, address: str) -> None:
    plant(address, _leave_out_a_name)

    assert _post(browser, address).status_code == 500


def test_a_row_that_is_in_use_after_all_is_a_conflict() -> None:
    assert conflict_behind(ProtectedError("in use", set())) is not None
    assert conflict_behind(IntegrityError("of no database")) is None

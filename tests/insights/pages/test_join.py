"""Machines are let in on a page: a token is shown once, in the command that a machine runs, and can be withdrawn."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from core.models import AuditEntry
from tests.notices import levels
from tests.processes import broker
from workers.models import JoinToken

PAGE = "/hosts/join/"


def test_the_command_holds_a_token_by_which_a_machine_joins_and_is_shown_once(carols: Client) -> None:
    made = carols.post(PAGE, {"hosts": "2", "hours": "1.5"}, follow=True)
    commands = list(made.context["made"]["commands"].values())
    [token] = {word for command in commands for word in re.findall(r"join_[\w-]{43}", command)}
    assert commands[0] == f"python -m workers.executor.join --url http://testserver --token {token}"
    assert "TIDEPOOL_URL=http://testserver " in commands[1]
    assert "docker compose -f docker/executor.yml up" in commands[1]
    assert "no-store" in made["Cache-Control"]
    joined = APIClient().post("/api/v1/join/", {"token": token, "host": "gpu-7"}, format="json")
    assert joined.status_code == 201, joined.content
    carols.cookies.pop("tidepool_shown")
    again = carols.get(PAGE)
    assert token not in again.content.decode()
    [row] = again.context["tokens"]
    assert (row.hosts_left, row.created_by) == (1, "carol")
    assert timedelta(hours=1.4) < row.expires_at - timezone.now() < timedelta(hours=1.5)


def test_a_withdrawn_one_lets_nobody_in(carols: Client) -> None:
    [command, _] = carols.post(PAGE, {"hosts": "1", "hours": "24"}, follow=True).context["made"]["commands"].values()
    withdrawn = carols.post(f"{PAGE}{JoinToken.objects.get().pk}/withdraw/", follow=True)
    assert levels(withdrawn) == ["success"]
    token = command.split()[-1]
    assert APIClient().post("/api/v1/join/", {"token": token, "host": "gpu-7"}, format="json").status_code == 403
    verbs = AuditEntry.objects.filter(kind="join token").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["created", "revoked"]
    assert carols.post(f"{PAGE}1/withdraw/").status_code == 404


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({"hosts": "0", "hours": "24"}, "hosts", "A token is for 1 to 1000 hosts."),
        ({"hosts": "1", "hours": "721"}, "hours", "A token is valid for more than 0 and at most 720 hours."),
        ({"hosts": "many", "hours": "24"}, "hosts", "Enter a whole number."),
        ({"hosts": "1", "hours": "nan"}, "hours", "Enter a number."),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_kept(
    carols: Client, given: dict[str, str], field: str, sentence: str
) -> None:
    page = carols.post(PAGE, given)
    assert page.status_code == 400
    assert page.context["form"].errors[field][0].startswith(sentence)
    assert f'value="{given[field]}"' in page.content.decode()
    assert not JoinToken.objects.exists()


def test_where_no_other_machine_reaches_the_broker_the_page_says_what_to_do(carols: Client, settings: Any) -> None:
    settings.TIDEPOOL_EXECUTOR_BROKER_URL = ""
    page = carols.get(PAGE).content.decode()
    assert "TIDEPOOL_EXECUTOR_BROKER_URL" in page
    assert "Create token" not in page
    assert carols.post(PAGE, {"hosts": "1", "hours": "24"}).status_code == 400


def test_the_page_says_why_hosts_share_a_password_of_the_broker(carols: Client, settings: Any) -> None:
    with broker() as url:
        settings.TIDEPOOL_BROKER_REGISTRAR_URL = url
        page = " ".join(carols.get(PAGE).content.decode().split())
    assert "because it lets in everybody without a password" in page
    page = " ".join(carols.get(PAGE).content.decode().split())
    assert "because the broker does not answer now" in page


def test_who_does_not_administer_is_not_offered_it(carols: Client, alices: Client) -> None:
    assert PAGE in carols.get("/hosts/").content.decode()
    assert PAGE not in alices.get("/hosts/").content.decode()

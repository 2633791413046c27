"""A machine becomes a host by a token: how it is made, used up, withdrawn and refused."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from core.errors import Conflict, NotAllowed, UserError
from core.models import AuditEntry
from tests.factories import HostFactory
from workers.host_keys import host_key
from workers.join_tokens import create_join_token, redeem
from workers.models import Host, JoinToken

pytestmark = pytest.mark.django_db
BROKER = "redis://executor:secret@10.0.0.5:6379/0"


@pytest.fixture(autouse=True)
def _broker(settings, home):
    settings.TIDEPOOL_EXECUTOR_BROKER_URL = BROKER


def test_a_token_is_stored_as_a_digest_alone(carol):
    token, row = create_join_token(carol)
    assert token not in str(JoinToken.objects.values().get(pk=row.pk))
    assert AuditEntry.objects.get().after == {"hosts": 1, "expires_at": AuditEntry.objects.get().after["expires_at"]}


def test_it_is_exchanged_for_what_an_executor_needs_and_nothing_else(carol, home):
    token, _ = create_join_token(carol)
    said = APIClient().post("/api/v1/join/", {"token": token, "host": "gpu-7"}, format="json").json()
    assert said == {
        "host": "gpu-7",
        "broker_url": BROKER,
        "results": str(home / "results"),
        "data_roots": [str(home / "data")],
        "key": host_key("gpu-7", 1),
        "mark": (home / "results/.tidepool").read_text().strip(),
        "protocol": 1,
    }


def test_a_token_for_two_hosts_is_withdrawn_with_the_second(carol):
    token, _ = create_join_token(carol, hosts=2)
    assert redeem(token, "gpu-1").mark == redeem(token, "gpu-2").mark
    assert not JoinToken.objects.exists()
    with pytest.raises(NotAllowed, match="ask an administrator"):
        redeem(token, "gpu-3")


def test_an_expired_token_is_refused_and_swept(carol):
    token, row = create_join_token(carol)
    JoinToken.objects.filter(pk=row.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotAllowed, match="has expired"):
        redeem(token, "gpu-1")
    create_join_token(carol)
    assert not JoinToken.objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize("token", ["", "join_wrong", "ü" * 60, "\x00"])
def test_a_wrong_token_is_refused_with_a_sentence(token):
    answer = APIClient().post("/api/v1/join/", {"token": token, "host": "gpu-1"}, format="json")
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]


@pytest.mark.parametrize("host", ["", "a b", "../x", "-x", "h" * 65, "ü"])
def test_a_name_that_no_host_can_have_costs_no_use(carol, host):
    token, row = create_join_token(carol)
    with pytest.raises(UserError, match="letters"):
        redeem(token, host)
    row.refresh_from_db()
    assert row.hosts_left == 1


def test_a_name_that_reports_is_taken_until_that_host_is_silent(carol):
    token, _ = create_join_token(carol)
    HostFactory(name="gpu-1", last_report_at=timezone.now())
    with pytest.raises(Conflict) as refusal:
        redeem(token, "gpu-1")
    assert refusal.value.code == "name_taken"
    Host.objects.update(last_report_at=timezone.now() - timedelta(hours=1))
    redeem(token, "gpu-1")


def test_nothing_is_made_while_the_site_knows_no_broker_for_others(carol, settings):
    settings.TIDEPOOL_EXECUTOR_BROKER_URL = ""
    with pytest.raises(Conflict, match="TIDEPOOL_EXECUTOR_BROKER_URL"):
        create_join_token(carol)
    with pytest.raises(CommandError, match="TIDEPOOL_EXECUTOR_BROKER_URL"):
        call_command("join_token")


@pytest.mark.parametrize(
    "wrong", [{"hosts": 0}, {"hosts": 1001}, {"hours": 0}, {"hours": 721}, {"hours": float("nan")}]
)
def test_senseless_tokens_are_refused(carol, wrong):
    with pytest.raises(UserError) as refusal:
        create_join_token(carol, **wrong)
    assert list(refusal.value.fields) == list(wrong)


def test_administrators_make_list_and_withdraw_tokens(carol_api, django_assert_num_queries):
    made = [carol_api.post("/api/v1/join-tokens/", {"hosts": 3}, format="json").json() for _ in range(3)]
    with django_assert_num_queries(3):  # session, user, tokens
        listed = carol_api.get("/api/v1/join-tokens/").json()["results"]
    assert [row["hosts_left"] for row in listed] == [3, 3, 3]
    assert not any("token" in row for row in listed)
    address = f"/api/v1/join-tokens/{made[0]['id']}/"
    assert carol_api.delete(address).status_code == 204
    assert carol_api.delete(address).status_code == 404
    with pytest.raises(NotAllowed):
        redeem(made[0]["token"], "gpu-1")


def test_others_may_neither_see_nor_make_nor_withdraw(alice_api, carol):
    _, row = create_join_token(carol)
    assert alice_api.get("/api/v1/join-tokens/").status_code == 403
    assert alice_api.post("/api/v1/join-tokens/", {}, format="json").status_code == 403
    assert alice_api.delete(f"/api/v1/join-tokens/{row.pk}/").status_code == 403
    assert APIClient().get("/api/v1/join-tokens/").status_code == 401
    assert JoinToken.objects.count() == 1


def test_the_command_shows_what_the_machine_runs():
    shown = StringIO()
    call_command("join_token", hosts=2, url="https://gpus.example.org", stdout=shown, stderr=StringIO())
    said = re.fullmatch(
        r"python -m workers.executor.join --url https://gpus.example.org --token (\S+)\n", shown.getvalue()
    )
    assert said
    assert redeem(said[1], "gpu-1").broker_url == BROKER

"""A machine becomes a host by a token: how it is made, used up, withdrawn and refused."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from threading import Barrier

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from core.errors import Conflict, NotAllowed, UserError
from core.models import AuditEntry
from tests.factories import HostFactory
from workers.actions import remove_host
from workers.executor.join import KEY_FILE, Joined, JoinError, Place, join
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


def test_a_name_that_has_just_joined_is_taken_until_it_is_removed_or_never_reports(carol):
    token, _ = create_join_token(carol, hosts=3)
    redeem(token, "gpu-1")
    with pytest.raises(Conflict, match=r"gpu-1 has just joined.*try again in 1[12]\d s") as refusal:
        redeem(token, "gpu-1")
    assert refusal.value.code == "name_taken"
    assert Host.objects.get().key_number == 1, "the first one's key is still good"
    assert JoinToken.objects.get().hosts_left == 2
    remove_host("gpu-1", carol)
    redeem(token, "gpu-1")
    Host.objects.update(joined_at=timezone.now() - timedelta(seconds=121))
    redeem(token, "gpu-1")


def test_an_executor_that_has_reported_and_stopped_may_join_at_once(carol):
    token, _ = create_join_token(carol, hosts=2)
    redeem(token, "gpu-1")
    Host.objects.update(last_report_at=timezone.now(), state=Host.State.OFFLINE)
    redeem(token, "gpu-1")


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_of_two_machines_that_join_at_once_by_one_name_the_later_is_refused(carol, live_server, tmp_path, monkeypatch):
    """Each machine has a token of its own, so only the name keeps them apart."""
    monkeypatch.setattr("workers.broker_users.problem", lambda: "has no users of its own")
    for number in range(10):
        name = f"gpu-{number}"
        at_once = Barrier(2)

        def join_as(machine: str, name: str = name, at_once: Barrier = at_once) -> Joined | JoinError:
            token, _ = create_join_token("carol")
            connection.close()
            at_once.wait(timeout=60)
            try:
                return join(live_server.url, token, Place(tmp_path / machine, name))
            except JoinError as error:
                return error

        with ThreadPoolExecutor(2) as machines:
            answers = list(machines.map(join_as, ["a", "b"]))
        (refusal,) = [answer for answer in answers if isinstance(answer, JoinError)]
        assert str(refusal).startswith(f"A host named {name} has just joined, and starts: ")
        winner = "ab"[answers.index(refusal) - 1]
        assert (tmp_path / winner / "run" / name / KEY_FILE).read_text() == host_key(name, 1)
        assert Host.objects.get(name=name).key_number == 1


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


@pytest.mark.parametrize(
    ("limits", "host", "address", "why"),
    [
        ({"names": ["gpu-*"]}, "gpu-7", "192.0.2.1", ""),
        ({"names": ["gpu-*"]}, "cpu-gpu-7", "192.0.2.1", "not for a host named cpu-gpu-7"),
        ({"names": ["a", "b*c"]}, "b-1.c", "192.0.2.1", ""),
        ({"names": ["a", "b.c"]}, "bxc", "192.0.2.1", "not for a host named bxc"),
        ({"networks": ["10.1.0.0/16", "192.0.2.1"]}, "gpu-7", "192.0.2.1", ""),
        ({"networks": ["10.1.0.0/16"]}, "gpu-7", "::ffff:10.1.2.3", ""),
        ({"networks": ["fd00::/8"]}, "gpu-7", "fd12::1", ""),
        ({"networks": ["10.1.0.0/16"]}, "gpu-7", "10.2.0.1", "not for 10.2.0.1"),
        ({"networks": ["10.1.0.0/16"]}, "gpu-7", "", "not for a machine without an address"),
        ({"names": ["gpu-7"], "networks": ["10.1.0.0/16"]}, "gpu-7", "10.2.0.1", "not for 10.2.0.1"),
    ],
)
def test_a_token_can_be_for_some_names_and_networks_alone(carol, limits, host, address, why):
    token, row = create_join_token(carol, **limits)
    answer = APIClient().post("/api/v1/join/", {"token": token, "host": host}, format="json", REMOTE_ADDR=address)
    assert why in answer.json().get("error", "")
    assert answer.status_code == (403 if why else 201)
    assert JoinToken.objects.filter(pk=row.pk).exists() == bool(why), "a refusal costs no use"
    assert Host.objects.filter(name=host).exists() == (not why)


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": ["a b"]},
        {"names": ["../x"]},
        {"names": [f"gpu-{number}" for number in range(101)]},
        {"networks": ["10.1.0.0/33"]},
        {"networks": ["gpu-1"]},
        {"networks": [f"10.0.0.{number}" for number in range(101)]},
    ],
)
def test_limits_that_no_host_could_meet_are_refused(carol, carol_api, wrong):
    with pytest.raises(UserError) as refusal:
        create_join_token(carol, **wrong)
    assert list(refusal.value.fields) == list(wrong)
    assert carol_api.post("/api/v1/join-tokens/", {"hosts": 1, **wrong}, format="json").status_code == 400
    assert not JoinToken.objects.exists()


def test_limits_are_listed_audited_and_given_by_every_way(carol_api):
    given = {"names": ["gpu-*"], "networks": ["10.1.2.3/16"]}
    made = carol_api.post("/api/v1/join-tokens/", {"hosts": 1, **given}, format="json").json()
    assert (made["names"], made["networks"]) == (["gpu-*"], ["10.1.0.0/16"])
    assert AuditEntry.objects.get(verb="created").after["networks"] == ["10.1.0.0/16"]
    call_command("join_token", names="a, b", networks="10.0.0.1", stdout=StringIO(), stderr=StringIO())
    assert JoinToken.objects.filter(names=["a", "b"], networks=["10.0.0.1/32"]).exists()


def test_the_page_takes_limits_and_shows_them(carol, client):
    client.force_login(carol)
    client.post("/hosts/join/", {"hosts": 1, "hours": 2, "names": "gpu-* cpu-1", "networks": "10.1.0.0/16"})
    assert JoinToken.objects.get().names == ["gpu-*", "cpu-1"]
    shown = client.get("/hosts/join/").content.decode()
    assert "<code>gpu-* cpu-1</code>" in shown
    assert "from <code>10.1.0.0/16</code>" in shown
    refused = client.post("/hosts/join/", {"hosts": 1, "hours": 2, "networks": "everywhere"})
    assert "is no network" in refused.content.decode()

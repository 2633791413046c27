"""The page of alerts and its API: one's own channels and rules, which nobody else sees."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from alerts.actions import add_channel, add_rule
from alerts.loop import AlertLoop
from alerts.models import AlertRule, Channel, Delivery, QuietHours
from tests.factories import InstanceGroupFactory
from tests.html import html_of

ADDRESS = "https://example.org/hooks/very-secret"
WEBHOOK = {"name": "team", "kind": "webhook", "address": ADDRESS}


def test_a_channel_by_the_page(alice: User, alice_client: Client) -> None:
    sent = {f"new-{name}": value for name, value in WEBHOOK.items()}
    made = alice_client.post("/alerts/channels/", sent, follow=True)
    secret = made.context["made"]["secret"]
    assert secret in html_of(made)
    alice_client.cookies.pop("tidepool_shown")
    page = html_of(alice_client.get("/alerts/"))
    assert "https://example.org/…" in page
    assert "very-secret" not in page
    assert secret not in page

    again = alice_client.post("/alerts/channels/", sent)
    assert (again.status_code, "already" in html_of(again)) == (400, True)


def test_rules_tests_and_quiet_hours_by_the_page(alice: User, alice_client: Client) -> None:
    channel = add_channel(alice, **WEBHOOK).row
    rule = {"rule-kind": "training_waits", "rule-group": "", "rule-channel": channel.pk, "rule-minutes": 5}
    assert alice_client.post("/alerts/rules/", rule).status_code == 302
    assert AlertRule.objects.get().minutes == 5
    assert alice_client.post("/alerts/rules/", rule).status_code == 400
    assert alice_client.post("/alerts/rules/", {**rule, "rule-kind": "quota_used"}).status_code == 400
    alice_client.post(f"/alerts/channels/{channel.pk}/test/")
    assert Delivery.objects.get().is_test
    assert "every 2s" in html_of(alice_client.get("/alerts/deliveries/"))
    quiet = {"begins": "22:00", "ends": "07:00", "time_zone": "Europe/Berlin"}
    alice_client.post("/alerts/quiet-hours/", quiet)
    assert QuietHours.objects.get().time_zone == "Europe/Berlin"
    assert alice_client.post("/alerts/quiet-hours/", {**quiet, "time_zone": "Mars/Olympus"}).status_code == 400
    alice_client.post("/alerts/quiet-hours/end/")
    alice_client.post(f"/alerts/rules/{AlertRule.objects.get().pk}/remove/")
    alice_client.post(f"/alerts/channels/{channel.pk}/remove/")
    assert [model.objects.count() for model in (QuietHours, AlertRule, Channel)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"address": "https://10.0.0.1/"}, "address"),
        ({"kind": "email", "address": "ada@example.org"}, "kind"),
        ({"kind": "discord"}, "kind"),
        ({"name": "a/b"}, "name"),
    ],
)
def test_channels_that_are_refused(alice_api: APIClient, changed: dict[str, str], field: str) -> None:
    answer = alice_api.post("/api/v1/alerts/channels/", {**WEBHOOK, **changed}, format="json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_by_rest(alice_api: APIClient, bob_api: APIClient, settings: Any) -> None:
    channel = alice_api.post("/api/v1/alerts/channels/", WEBHOOK, format="json").json()
    assert (channel["address"], len(channel["secret"])) == ("https://example.org/…", 43)
    group = InstanceGroupFactory(name="vision", quota=4)
    wanted = {"channel": channel["id"], "kind": "quota_used", "group": "vision"}
    rule = alice_api.post("/api/v1/alerts/rules/", wanted, format="json").json()
    assert (rule["group"], rule["minutes"]) == ("vision", None)
    refused = alice_api.post("/api/v1/alerts/rules/", {**wanted, "kind": "loss", "minutes": 3}, format="json")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["minutes"])
    test = alice_api.post(f"/api/v1/alerts/channels/{channel['id']}/test/").json()
    assert (test["state"], test["is_test"]) == ("waiting", True)
    [listed] = alice_api.get("/api/v1/alerts/channels/").json()["results"]
    assert "secret" not in listed

    assert bob_api.get("/api/v1/alerts/channels/").json()["results"] == []
    assert bob_api.get("/api/v1/alerts/deliveries/").json()["results"] == []
    assert bob_api.post("/api/v1/alerts/rules/", wanted, format="json").status_code == 404
    group.members.add(User.objects.create_user("dora"))
    unseen = alice_api.post("/api/v1/alerts/rules/", {**wanted, "kind": "training_done"}, format="json")
    assert (unseen.status_code, list(unseen.json()["fields"])) == (400, ["group"])


def test_where_rows_are_stacked_each_cell_of_a_message_is_one_thing(alice: User, alice_client: Client) -> None:
    """Without one element per cell, the parts of a message stand side by side, one letter wide."""
    channel, now = add_channel(alice, **WEBHOOK).row, timezone.now()
    told = {"created_at": now, "next_try_at": now, "tries": 2, "problem": "No answer."}
    Delivery.objects.create(channel=channel, **told)
    page = html_of(alice_client.get("/alerts/"))
    for label in ("What", "State"):
        cell = re.search(f'<td data-label="{label}">(.*?)</td>', page)
        assert cell is not None
        assert re.fullmatch("<div>.*</div>", cell[1])
    assert "Tried 2 times, next try" in page


def test_no_more_than_three_tests_at_once(alice: User, alice_api: APIClient) -> None:
    address = f"/api/v1/alerts/channels/{add_channel(alice, **WEBHOOK).row.pk}/test/"
    assert [alice_api.post(address).status_code for _ in range(4)] == [202, 202, 202, 429]


def test_the_page_asks_the_same_number_of_questions_however_much_there_is(
    alice: User, alice_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(4):
        channel = add_channel(alice, f"team {number}", "webhook", ADDRESS).row
        add_rule(alice, channel.pk, "training_done")
        Delivery.objects.create(channel=channel, created_at=channel.created_at, next_try_at=channel.created_at)
    with django_assert_max_num_queries(12):
        alice_client.get("/alerts/")


def test_a_turn_without_rules_asks_little(db: None, django_assert_max_num_queries: Any) -> None:
    """Most sites have none: the process must cost next to nothing there."""
    loop = AlertLoop()
    loop.turn(timezone.now())
    with django_assert_max_num_queries(6):
        loop.turn(timezone.now())

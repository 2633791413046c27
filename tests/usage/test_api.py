"""`/api/v1/usage/` and `gpu-prices/`."""

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from tests.factories import JobFactory, SlotClaimFactory, SlotFactory
from usage.models import GpuPrice

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = {"from": "2026-03-01T00:00Z", "to": "2026-03-02T00:00Z"}
PRICE = {"gpu_model": "H200", "valid_from": "2026-01-01", "per_hour": "2.5000"}


@pytest.fixture
def used(alice: User, bob: User) -> None:
    """Create usage: an hour by Alice, half an hour and a millisecond by Bob."""
    for owner, seconds in ((alice, 3600.0), (bob, 1800.001)):
        job = JobFactory(owner=owner, name=f"=of-{owner.username}")
        SlotClaimFactory(
            slot=SlotFactory(),
            job=job,
            gpu_model="H200",
            claimed_at=START,
            released_at=START + timedelta(seconds=seconds),
        )


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_a_window_as_json(used: None, carol_api: APIClient) -> None:
    GpuPrice.objects.create(**PRICE)
    answer = carol_api.get("/api/v1/usage/", {**DAY, "by": "user", "step": "3600"}).json()

    assert (answer["from"], answer["to"]) == ("2026-03-01T00:00:00.000000Z", "2026-03-02T00:00:00.000000Z")
    assert [(row["name"], row["allocated_seconds"], row["cost"]) for row in answer["rows"]] == [
        ("alice", 3600.0, "2.50"),
        ("bob", 1800.001, "1.25"),
    ]
    assert answer["total"]["allocated_seconds"] == 5400.001
    assert answer["total"]["not_measured_seconds"] == 5400.001
    times = answer["timeline"]
    assert (times["step"], len(times["at"])) == (3600, 24)
    assert times["allocated"][11:14] == [0.0, 1.5, 0.0]
    assert [(band["name"], band["gpus"][12]) for band in times["bands"]] == [("alice", 1.0), ("bob", 0.5)]


def test_others_have_neither_name_nor_number(used: None, alice_api: APIClient) -> None:
    for by in ("user", "job"):
        answer = alice_api.get("/api/v1/usage/", {**DAY, "by": by})
        assert [row["name"] for row in answer.json()["rows"]][1:] == ["others"]
        assert answer.json()["rows"][1]["id"] is None
        for part in ("table", "timeline"):
            text = alice_api.get("/api/v1/usage/", {**DAY, "by": by, "format": "csv", "part": part}).content.decode()
            assert "bob" not in text
            assert "others" in text


def test_the_table_as_a_file(used: None, carol_api: APIClient) -> None:
    answer = carol_api.get("/api/v1/usage/", {**DAY, "by": "job"}, headers={"accept": "text/csv"})

    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="usage-by-job.csv"'
    rows = rows_of(answer.content.decode())
    assert [row["name"] for row in rows] == ["'=of-alice", "'=of-bob"], "spreadsheets run what begins with ="
    assert [float(row["allocated_seconds"]) for row in rows] == [3600.0, 1800.001]
    assert rows[0]["gpu_hours"] == "1.0"
    assert (rows[0]["cost"], rows[0]["currency"], rows[0]["unpriced_seconds"]) == ("", "EUR", "3600.0")


def test_the_timeline_as_a_file(used: None, carol_api: APIClient) -> None:
    given = {**DAY, "by": "job", "format": "csv", "part": "timeline", "step": "21600"}
    rows = rows_of(carol_api.get("/api/v1/usage/", given).content.decode())

    assert [row["allocated"] for row in rows] == ["0.0", "0.0", "0.25", "0.0"]
    assert rows[2]["'=of-alice"] == "0.1667"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"from": "x"}, "from"),
        ({"from": "2026-03-01", "to": "x"}, "to"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "to"),
        ({"from": "2024-01-01", "to": "2026-01-01"}, "from"),
        ({"range": "1w"}, "range"),
        ({"by": "x"}, "by"),
        ({**DAY, "step": "61"}, "step"),
        ({"range": "1y", "step": "60"}, "step"),
        ({"from": "99999-01-01"}, "from"),
    ],
)
@pytest.mark.parametrize("form", ["json", "csv"])
def test_errors_say_what_to_do(alice_api: APIClient, given: dict[str, str], field: str, form: str) -> None:
    answer = alice_api.get("/api/v1/usage/", {**given, "format": form})
    assert answer.status_code == 400
    if form == "json":
        assert list(answer.json()["fields"]) == [field]
    assert len(answer.content.decode()) > 20


def test_usage_requires_a_login(client: Any, db: None) -> None:
    assert client.get("/api/v1/usage/").status_code == 401


def test_prices_are_for_administrators(alice_api: APIClient, carol_api: APIClient) -> None:
    assert alice_api.post("/api/v1/gpu-prices/", PRICE, format="json").status_code == 403
    made = carol_api.post("/api/v1/gpu-prices/", PRICE, format="json")
    assert (made.status_code, made.json()) == (201, {"id": made.json()["id"], **PRICE})
    assert alice_api.get("/api/v1/gpu-prices/").json() == [made.json()]
    address = f"/api/v1/gpu-prices/{made.json()['id']}/"
    assert alice_api.delete(address).status_code == 403
    assert carol_api.delete(address).status_code == 204
    assert carol_api.delete(address).status_code == 404


@pytest.mark.parametrize(
    "change", [{"per_hour": "-1"}, {"per_hour": "x"}, {"valid_from": "x"}, {"gpu_model": ""}, {"currency": "EUR"}]
)
def test_invalid_prices_are_refused(carol_api: APIClient, change: dict[str, str]) -> None:
    answer = carol_api.post("/api/v1/gpu-prices/", {**PRICE, **change}, format="json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, list(change))

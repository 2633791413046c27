"""The Usage page: figures of a period, names each viewer may see, and prices."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from core.models import AuditEntry
from jobs.models import SlotClaim
from tests.html import html_of
from tests.scene import Scene
from usage.models import GpuPrice
from usage.views import gpu_hours

PRICE = {"gpu_model": "H200", "per_hour": "2,50", "valid_from": "2026-01-01"}


@pytest.fixture(autouse=True)
def now(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Return the frozen time. All eight GPUs have been held for half an hour, those of T2 for an hour longer."""
    now = timezone.now()
    monkeypatch.setattr("usage.views.timezone", SimpleNamespace(now=lambda: now))
    SlotClaim.objects.update(claimed_at=now - timedelta(minutes=30), gpu_model="H200")
    SlotClaim.objects.filter(job=scene.second).update(claimed_at=now - timedelta(minutes=90))
    return now


@pytest.mark.parametrize("by", ["user", "group", "job", "host", "gpu_model"])
@pytest.mark.parametrize("window", ["15m", "1h", "6h", "24h", "7d", "30d", "90d", "1y"])
def test_every_choice_is_a_page_with_charts_and_a_table(alices: Client, by: str, window: str) -> None:
    page = alices.get("/usage/", {"range": window, "by": by})
    assert page.status_code == 200
    for chart in ("allocation", "activity"):
        assert page.context["charts"][chart]["data"]
    assert page.context["total"]["held"] == {"15m": "2.00", "1h": "6.50"}.get(window, "9.00")


@pytest.mark.parametrize(
    ("minutes", "shown"), [(None, "24h"), (0, "15m"), (15, "15m"), (16, "1h"), (90, "6h"), (361, "24h"), (3000, "24h")]
)
def test_the_default_range_of_a_new_cluster_includes_its_first_claim(
    alices: Client, now: datetime, minutes: int | None, shown: str
) -> None:
    if minutes is None:
        SlotClaim.objects.all().delete()
    else:
        SlotClaim.objects.update(claimed_at=now - timedelta(minutes=minutes))
    assert alices.get("/usage/").context["query"].range == shown


def test_a_window_is_cut_exactly(alices: Client, now: datetime) -> None:
    window = {"from": (now - timedelta(minutes=20)).isoformat(), "to": (now - timedelta(minutes=5)).isoformat()}
    assert alices.get("/usage/", window).context["total"]["held"] == "2.00"


def test_others_are_a_sum_without_names(alices: Client, bobs: Client, carols: Client, scene: Scene) -> None:
    shown = {
        name: [row["label"] for row in client.get("/usage/", {"range": "6h", "by": "job"}).context["rows"]]
        for name, client in (("alice", alices), ("bob", bobs), ("carol", carols))
    }
    both = ["T2 digits-cnn", "T1 digits-cnn"]
    assert shown == {"alice": both, "bob": ["others"], "carol": both}
    for address in ("/usage/?by=job", "/usage/?by=user", "/usage/report.json?by=job", "/usage/report.json"):
        answer = bobs.get(address).content.decode()
        assert "T1 digits" not in answer, address
        assert "alice" not in answer, address
    assert bobs.get("/usage/", {"range": "6h"}).context["total"]["held"] == "9.00"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"range": "2h"}, "for range: 15m, 1h"),
        ({"by": "colour"}, "for by: user, group"),
        ({"from": "yesterday"}, "Write from as a time"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "ends before it begins"),
        ({"from": "2020-01-01"}, "longer than 400 days"),
        ({"from": "2999-01-01"}, "begins in the future"),
        ({"to": "2026-01-01"}, "Give the beginning"),
    ],
)
def test_an_invalid_query_shows_what_to_do(alices: Client, given: dict[str, str], sentence: str) -> None:
    page = alices.get("/usage/", given)
    assert page.status_code == 400
    assert sentence in page.content.decode()
    assert page.context["charts"]["allocation"]["data"], "something is shown in any case"
    answer = alices.get("/usage/report.json", given)
    assert (answer.status_code, sentence in answer.json()["error"]) == (400, True)


def test_live_updates_equal_the_page(alices: Client) -> None:
    window = {"from": "2026-01-01", "to": "2026-01-02", "by": "host"}
    page, later = alices.get("/usage/", window), alices.get("/usage/report.json", window).json()
    assert later["charts"] == page.context["charts"]
    assert later["table"] in page.content.decode()
    assert later["figures"] in page.content.decode()


def test_an_empty_window_says_what_to_do(alices: Client) -> None:
    text = alices.get("/usage/", {"from": "2026-01-01", "to": "2026-01-02"}).content.decode()
    assert "No training held a GPU in this period." in text
    assert "No GPU has a price yet" in text


def test_an_administrator_sets_and_removes_prices(carols: Client, carol: User) -> None:
    answer = carols.post("/usage/?range=6h", PRICE)
    assert (answer.status_code, answer["Location"]) == (302, "/usage/?range=6h#prices")
    assert GpuPrice.objects.get().per_hour == Decimal("2.5")
    page = carols.get("/usage/?range=6h")
    assert page.context["total"]["cost"] == "22.50"
    assert "H200 costs 2.5 EUR per GPU-hour from 1 Jan 2026." in page.content.decode()

    carols.post("/usage/", {**PRICE, "per_hour": "4"})
    assert carols.get("/usage/?range=6h").context["total"]["cost"] == "36.00"
    removed = carols.post(f"/usage/prices/{GpuPrice.objects.get().pk}/remove/", follow=True)
    assert not GpuPrice.objects.exists()
    assert "Undo" in removed.content.decode()
    carols.post("/usage/prices/restore/", {**PRICE, "per_hour": "4.0000"})
    assert GpuPrice.objects.get().per_hour == 4
    entries = AuditEntry.objects.filter(kind="GPU price").order_by("pk")
    assert [(entry.verb, entry.actor) for entry in entries] == [
        (verb, "carol") for verb in ("set", "changed", "removed", "set")
    ]
    assert entries[1].before["per_hour"] != entries[1].after["per_hour"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"per_hour": "cheap"}, "Enter the price as a number"),
        ({"per_hour": "-1"}, "0 or more"),
        ({"per_hour": "1e30"}, "Enter the price"),
        ({"valid_from": "1999-12-31"}, "between 2000 and 2100"),
        ({"valid_from": "soon"}, "Enter a valid date"),
        ({"gpu_model": " "}, "Fill in this field"),
    ],
)
def test_an_invalid_price_shows_why_and_keeps_the_input(carols: Client, change: dict[str, str], sentence: str) -> None:
    page = carols.post("/usage/", {**PRICE, **change})
    assert page.status_code == 400
    assert sentence in page.content.decode()
    assert not GpuPrice.objects.exists()
    if "per_hour" in change:
        assert f'value="{change["per_hour"]}"' in page.content.decode()


def test_only_administrators_change_prices(alices: Client, carols: Client) -> None:
    carols.post("/usage/", PRICE)
    price = GpuPrice.objects.get()
    assert "Set price" not in alices.get("/usage/").content.decode()
    for address in ("/usage/", f"/usage/prices/{price.pk}/remove/", "/usage/prices/restore/"):
        refused = alices.post(address, {**PRICE, "per_hour": "1"})
        assert refused.status_code == 403
        assert "Only an administrator" in refused.content.decode()
    assert GpuPrice.objects.get().per_hour == Decimal("2.5")


def test_the_cost_names_gpu_hours_without_a_price(carols: Client, scene: Scene) -> None:
    SlotClaim.objects.filter(job=scene.first).update(gpu_model="A100")
    GpuPrice.objects.create(gpu_model="H200", valid_from=date(2026, 1, 1), per_hour=1)
    page = carols.get("/usage/", {"range": "6h", "by": "job"})
    assert "excluding 1.50 GPU-hours of models without a price" in html_of(page)
    assert {row["label"]: row["cost"] for row in page.context["rows"]} == {
        "T2 digits-cnn": "7.50",
        "T1 digits-cnn": None,
    }


def test_the_page_runs_a_bounded_number_of_queries(carols: Client, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(32):
        carols.get("/usage/?range=1y&by=job")


@pytest.mark.parametrize(
    ("hours", "words"), [(0.004, "0.00"), (0.02, "0.02"), (3.21, "3.21"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_gpu_hours_have_sensible_digits(hours: float, words: str) -> None:
    assert gpu_hours(round(hours * 3_600_000)) == words

"""The usage page as a person uses it: live at its right edge, as a table and as files, by keyboard, in any zone."""

import csv
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from core import live
from jobs.models import SlotClaim
from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in
from usage.rollup import roll_up
from workers.models import Slot
from workers.topics import CLUSTER

CHART = "[data-chart=usage-allocation]"
DRAWN = f"document.querySelector('{CHART} .chart-canvas').data"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def page(page: Page, scene: Scene) -> Page:
    """Eight GPUs held for ten minutes."""
    SlotClaim.objects.update(claimed_at=timezone.now() - timedelta(minutes=10), gpu_model="NVIDIA H200")
    return page


def open_usage(page: Page, query: str) -> None:
    page.goto(f"/usage/?{query}")
    expect(page.locator(f"{CHART} .main-svg").first).to_be_visible()


def file_of(page: Page, place: str) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.locator(place).click()
    return list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))


@pytest.mark.parametrize(("query", "minutes"), [("range=1h&by=job", 60), ("by=job", 15)])
def test_a_gpu_that_is_given_back_is_seen_at_the_right_edge(page: Page, query: str, minutes: int) -> None:
    open_usage(page, query)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    before = page.evaluate(f"{DRAWN}[0].x.at(-1)")
    with transaction.atomic():
        given_back = SlotClaim.objects.filter(slot__host__name="gpu-host-2", released_at=None)
        given_back.update(released_at=timezone.now())
        live.publish(CLUSTER, "state", {"slots": {"gpu-host-2:3": {"job": None, "vacating": False}}})

    page.wait_for_function(
        f"() => {DRAWN}.filter(trace => trace.meta.kind === 'band').reduce((sum, t) => sum + t.y.at(-1), 0) === 4"
    )
    assert page.evaluate(f"{DRAWN}[0].x.at(-1)") > before
    shown = page.evaluate(f"{DRAWN}.at(-1).x.map(at => Date.parse(at))")
    assert shown[-1] - shown[0] == pytest.approx(minutes * 60_000, rel=0.01), "the window that it began with"


def test_each_holder_is_taken_away_by_itself(page: Page) -> None:
    open_usage(page, "range=1h&by=job")
    names = page.locator(f"{CHART} .chart-legend button")
    for pressed in ("false", "true"):
        names.get_by_text("T1 digits-cnn").click()
        expect(names.filter(has_text="T1")).to_have_attribute("aria-pressed", pressed)
        expect(names).to_have_text(["T2 digits-cnn", "T1 digits-cnn", "GPUs in the pool"])
        expect(names.filter(has_text="T2")).to_have_attribute("aria-pressed", "true")


def test_the_table_and_the_files_say_what_the_chart_draws(page: Page) -> None:
    open_usage(page, "range=1h&by=job")
    page.locator(CHART).get_by_role("button", name="Table").click()
    newest = page.locator(f"{CHART} tbody tr").first
    expect(newest.locator("td").nth(1)).to_have_text("5")
    expect(page.locator(f"{CHART} thead")).to_contain_text("T2 digits-cnn")

    steps = file_of(page, f"{CHART} [data-chart-csv]")
    assert (float(steps[-1]["T2 digits-cnn"]), float(steps[-1]["T1 digits-cnn"])) == (5, 3)
    rows = file_of(page, "section:has(#table-title) a[download]")
    assert [row["name"] for row in rows] == ["T2 digits-cnn", "T1 digits-cnn"]
    assert 0.83 * 0.99 < float(rows[0]["gpu_hours"]) < 0.83 * 1.1
    with page.expect_download() as picture:
        page.locator(CHART).get_by_role("button", name="PNG").click()
    assert Path(picture.value.path()).read_bytes()[:4] == b"\x89PNG"


def test_choices_are_links_that_the_keyboard_reaches(page: Page) -> None:
    open_usage(page, "range=15m&by=user")
    page.get_by_role("link", name="7 days").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/usage/?range=7d&by=user")
    page.get_by_role("link", name="By host").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/usage/?range=7d&by=host")
    expect(page.get_by_role("link", name="By host")).to_have_attribute("aria-current", "true")
    expect(page.locator("#usage-table tbody tr")).to_have_count(3)
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/usage/")


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_times_are_typed_in_the_zone_of_who_types(
    scene: Scene, context: BrowserContext, complaints: list[str], zone: str, site: str
) -> None:
    browser = context.browser
    assert browser is not None
    there = browser.new_context(base_url=site, timezone_id=zone, viewport={"width": 1440, "height": 900})
    page = there.new_page()
    listen(page, complaints)
    log_in(page, "alice")
    page.goto("/usage/?from=2026-03-01T12:00:00Z&to=2026-03-01T18:00:00Z")
    expect(page.locator("#window-zone")).to_have_text("your time")
    shown = page.locator("#window-from").input_value()
    assert shown == {"America/New_York": "2026-03-01T07:00", "Asia/Kolkata": "2026-03-01T17:30"}[zone]
    page.locator("#window-from").fill(shown[:-2] + ("15" if shown.endswith("00") else "45"))
    page.get_by_role("button", name="Show period").click()
    page.wait_for_url("**/usage/?by=user&from=2026-03-01T**")
    assert "from=2026-03-01T12%3A15%3A00.000Z" in page.url
    assert "to=2026-03-01T18%3A00%3A00.000Z" in page.url
    there.close()


def test_a_year_of_changes_is_drawn_by_days(page: Page, scene: Scene) -> None:
    now = timezone.now()
    SlotClaim.objects.all().update(released_at=now - timedelta(minutes=1))
    jobs = [scene.first, scene.second, scene.done, scene.failed]
    SlotClaim.objects.bulk_create(
        SlotClaim(
            slot=slot,
            job=jobs[(day + place) % 4],
            gpu_model="NVIDIA H200",
            attempt=2,
            claimed_at=now - timedelta(days=day, hours=20),
            released_at=now - timedelta(days=day, hours=2),
        )
        for place, slot in enumerate(Slot.objects.all())
        for day in range(364)
    )
    while not roll_up(now):
        pass
    open_usage(page, "range=1y&by=job")

    expect(page.locator(f"{CHART} .chart-note")).to_have_text("Each step is the mean of a day.")
    assert page.evaluate(f"{DRAWN}[0].x.length") >= 365


def test_a_price_is_set_and_taken_back(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    user_who_can_log_in("carol", is_staff=True)
    SlotClaim.objects.update(claimed_at=timezone.now() - timedelta(minutes=30), gpu_model="NVIDIA H200")
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    page.goto("/usage/?range=6h")
    page.get_by_label("GPU model").fill("NVIDIA H200")
    page.get_by_label("Price per GPU-hour").fill("2.50")
    page.get_by_role("button", name="Set price").click()
    expect(page.locator("#usage-figures")).to_have_text(re.compile(r"Cost\s+\d+\.\d\d EUR"))
    page.get_by_role("button", name="Remove the price of NVIDIA H200").click()
    expect(page.get_by_text("No GPU has a price yet")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#prices")).to_contain_text("2.5 EUR")


def test_on_a_phone_the_filters_of_audit_and_usage_are_folded(page: Page, scene: Scene) -> None:
    user_who_can_log_in("carol", is_staff=True)
    log_in(page, "carol")
    for address, label, summary in (("/audit/", "Who", "Who, what and when"), ("/usage/", "From", "Another period")):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(address)
        field, fold = page.get_by_label(label, exact=True), page.get_by_text(summary, exact=True)
        expect(field).to_be_visible()
        expect(fold).to_be_hidden()
        page.set_viewport_size({"width": 390, "height": 844})
        expect(field).to_be_hidden()
        fold.click()
        expect(field).to_be_visible()

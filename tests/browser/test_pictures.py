"""The pictures in the documents are taken here, so that they show what there is.

TIDEPOOL_PICTURES=docs/user .venv/bin/python -m pytest tests/browser/test_pictures.py
writes them into that folder; without it they go to the test's own. Those of administrators' pages (`-k administrator`)
belong into docs/operator.
"""

import os
import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from jobs.models import GpuActivity, SlotClaim
from tests.browser.conftest import log_in
from tests.scene import Scene, user_who_can_log_in
from usage.models import GpuPrice
from usage.rollup import roll_up
from workers.models import CapacityPoint, Slot

PNG_SIZE = slice(16, 24)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(os.environ.get("TIDEPOOL_PICTURES", tmp_path))


@pytest.mark.parametrize(
    ("name", "address"),
    [("overview", "/"), ("cluster", "/cluster/"), ("job", "/jobs/{first}/"), ("usage", "/usage/?range=7d&by=job")],
)
def test_takes_a_picture_of_drawn_charts(page: Page, scene: Scene, folder: Path, name: str, address: str) -> None:
    if name == "usage":
        make_week(scene)
    page.goto(address.format(first=scene.first.pk))
    for canvas in page.locator(".chart-canvas:visible").all():
        expect(canvas.locator(".main-svg").first).to_be_visible()
    expect(page.locator("[data-live-dot], .live-dot").first).to_be_visible()
    take(page, folder / f"{name}.png")


def test_takes_a_picture_of_what_an_administrator_fills_in(scene: Scene, context: BrowserContext, folder: Path) -> None:
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    log_in(page, "carol")
    page.goto(f"/resource-groups/{scene.first.instance_group.resource_group_id}/")
    page.get_by_label("Formula", exact=True).fill("min(ngpus, 3)")
    expect(page.locator("[data-moves]")).to_contain_text("after a step")
    page.get_by_role("button", name="Check for overlaps").click()
    expect(page.locator("[data-overlaps] li")).to_have_count(1)
    take(page, folder / "resource-group.png")


def take(page: Page, file: Path) -> None:
    page.screenshot(path=file, animations="disabled")
    width, height = (int.from_bytes(file.read_bytes()[PNG_SIZE][part : part + 4], "big") for part in (0, 4))
    assert (width, height) == (1440, 900)
    assert file.stat().st_size > 30_000, "an empty page is smaller"


def make_week(scene: Scene) -> None:
    """Alice's trainings share the GPUs, more of them by day than by night, and do little while they load data."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    SlotClaim.objects.update(gpu_model="H200")
    CapacityPoint.objects.update(at=now - timedelta(days=8))
    dice, jobs = random.Random(3), [scene.first, scene.second, scene.done, scene.failed]
    for hours in range(7 * 24, 0, -3):
        at = now - timedelta(hours=hours)
        for slot in Slot.objects.all()[: 8 if 8 <= at.hour < 20 else 5]:
            job = dice.choices(jobs, [4, 3, 2, 1])[0]
            claim = SlotClaim.objects.create(
                slot=slot,
                job=job,
                attempt=9,
                gpu_model="H200",
                claimed_at=at,
                trains_from=at + timedelta(seconds=30),
                trained_until=at + timedelta(hours=3),
                released_at=at + timedelta(hours=3),
            )
            GpuActivity.objects.bulk_create(
                GpuActivity(claim=claim, at=at + timedelta(minutes=15 * part), busy_ms=780_000, idle_ms=90_000)
                for part in range(12)
            )
        roll_up(at + timedelta(hours=3, minutes=10))
    GpuPrice.objects.create(gpu_model="H200", valid_from=now.date() - timedelta(days=30), per_hour=Decimal("2.40"))

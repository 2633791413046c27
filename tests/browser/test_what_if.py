"""The page What if: an administrator starts a replay, and sees its progress and result, in all four looks."""

import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from core.time import exact_time
from replay.background import ReplayWorker
from replay.models import Replay
from tests.browser.conftest import PATIENCE_MS, listen, log_in
from tests.scene import Scene, user_who_can_log_in

#: Time zone of the browser: its difference from UTC is no whole number of hours.
ZONE = "Asia/Kolkata"


@pytest.fixture
def context(browser: Browser, site: str) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900}, timezone_id=ZONE)
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def page(scene: Scene, context: BrowserContext, complaints: list[str]) -> Page:
    """Carol's browser."""
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    return page


def test_a_replay_is_started_run_and_shown(page: Page, scene: Scene) -> None:
    page.goto("/")
    page.get_by_role("link", name="What if").click()
    page.get_by_label("Period", exact=True).select_option("Last hour")
    page.get_by_label("Policy of sig-elastic").select_option("Goodput: early ends")
    page.get_by_label("GPU weights in sig-elastic").fill("A100=4,T4=1")
    page.get_by_label("GPUs in the pool").fill("16")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#replay-progress")).to_contain_text("Waiting")
    replay = Replay.objects.exclude(pk=scene.replay.pk).get()
    rules = replay.alternative["groups"]["sig-elastic"]
    assert (rules["policy"], rules["gpu_weights"]) == ("goodput", "A100=4, T4=1")
    ReplayWorker().run_next(threading.Event())
    expect(page.locator("#text")).to_contain_text("in the average completion time")
    expect(page.locator(".main-svg").first).to_be_visible()
    middle = replay.start + (replay.end - replay.start) / 2
    page.get_by_label("At", exact=True).fill(middle.astimezone(ZoneInfo(ZONE)).strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="Show", exact=True).click()
    table = page.get_by_role("region", name="GPUs of each training at a given time")
    expect(table.get_by_role("row").nth(1)).to_contain_text("T")
    expect(page.get_by_label("At", exact=True)).to_have_value(
        re.compile(middle.astimezone(ZoneInfo(ZONE)).strftime("%Y-%m-%dT%H:%M"))
    )
    page.get_by_role("button", name="Remove replay").click()
    expect(page.get_by_role("link", name="Replay", exact=False)).to_have_count(1)


def test_times_are_typed_and_shown_in_the_viewers_zone(page: Page, scene: Scene) -> None:
    page.goto("/what-if/")
    start = scene.replay.start.astimezone(ZoneInfo(ZONE))
    page.get_by_label("Period", exact=True).select_option("Custom")
    expect(page.get_by_text("In your time zone.").first).to_be_visible()
    for label, at in (("From", start), ("Until", scene.replay.end.astimezone(ZoneInfo(ZONE)))):
        page.get_by_label(label).fill(at.strftime("%Y-%m-%dT%H:%M"))
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#replay-progress")).to_be_visible()
    created = Replay.objects.exclude(pk=scene.replay.pk).get()
    assert created.start == start.replace(second=0, microsecond=0)
    expect(page.locator("time[data-exact]").first).to_have_text(exact_time(start, ZoneInfo(ZONE)))


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_shows_recorded_above_replayed(page: Page, scene: Scene, tmp_path: Path, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    folder = Path(os.environ.get("TIDEPOOL_PICTURES", tmp_path))
    moment = (scene.replay.start + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    replayed = f"/what-if/{scene.replay.pk}/?at={moment}&play=other"
    for name, address in (("what-if", "/what-if/"), ("replay", replayed)):
        page.goto(address)
        for canvas in page.locator(".chart-canvas").all():
            expect(canvas.locator(".main-svg").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True, animations="disabled")
    gains = page.get_by_role("region", name="Largest gains")
    expect(gains.get_by_role("row").nth(1)).to_contain_text(f"T{scene.done.pk}")
    losses = page.get_by_role("region", name="Largest losses")
    expect(losses.get_by_role("row").nth(1)).to_contain_text("−2 min 27 s")
    moment_table = page.get_by_role("region", name="GPUs of each training at a given time")
    expect(moment_table.get_by_role("row").nth(1)).to_contain_text("its maximum is 4")

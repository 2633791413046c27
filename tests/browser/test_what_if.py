"""The page "What if": an administrator asks, sees how far it is, and what came of it, in all four looks."""

import os
import threading
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from jobs.management.commands.run_replays import Player
from jobs.models import Replay
from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in


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


def test_a_question_is_asked_played_and_answered(page: Page, scene: Scene) -> None:
    page.goto("/")
    page.get_by_role("link", name="What if").click()
    page.get_by_label("Time").select_option("Last hour")
    page.get_by_label("Policy of sig-elastic").select_option("Goodput: soon over")
    page.get_by_label("GPUs of the pool").fill("16")
    page.get_by_role("button", name="Play it again").click()
    expect(page.locator("#going")).to_contain_text("waits")
    replay = Replay.objects.exclude(pk=scene.replay.pk).get()
    assert replay.alternative["groups"]["sig-elastic"]["policy"] == "goodput"
    Player(threading.Event()).turn()
    expect(page.locator("#text")).to_contain_text("off in the average completion time")
    expect(page.locator(".main-svg").first).to_be_visible()
    page.get_by_role("button", name="Remove replay").click()
    expect(page.get_by_role("link", name="Replay", exact=False)).to_have_count(1)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_shows_recorded_above_replayed(page: Page, scene: Scene, tmp_path: Path, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    folder = Path(os.environ.get("TIDEPOOL_PICTURES", tmp_path))
    for name, address in (("what-if", "/what-if/"), ("replay", f"/what-if/{scene.replay.pk}/")):
        page.goto(address)
        for canvas in page.locator(".chart-canvas").all():
            expect(canvas.locator(".main-svg").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True, animations="disabled")
    gains = page.get_by_role("region", name="Who gains most")
    expect(gains.get_by_role("row").nth(1)).to_contain_text(f"T{scene.done.pk}")
    losses = page.get_by_role("region", name="Who loses most")
    expect(losses.get_by_role("row").nth(1)).to_contain_text("−2 min 27 s")

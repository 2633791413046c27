"""Every page in light, dark and narrow: nothing that axe finds against WCAG 2 A and AA, no overflow, a silent console.

TIDEPOOL_PICTURES=test-results/pages .venv/bin/python -m pytest tests/browser/test_accessibility.py
also writes a picture of each look of each page into that folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, TimeoutError, expect

from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in
from tests.sitemap import addresses

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],
}
#: Name -> theme, width and height.
LOOKS = {"light": ("light", 1440, 900), "dark": ("dark", 1440, 900), "narrow": ("light", 390, 844)}
#: Every chart that is shown is as wide as its place.
FILLED = """() => [...document.querySelectorAll('.chart-canvas:not(.invisible)')]
    .filter(canvas => canvas.clientWidth && canvas.querySelector('.main-svg'))
    .every(canvas => Math.abs(canvas.querySelector('.main-svg').getBoundingClientRect().width - canvas.clientWidth) < 2)
"""
#: The page for an unknown address answers with that.
NOT_FOUND = "Failed to load resource: the server responded with a status of 404 (Not Found)"


def look_at(page: Page, look: str) -> None:
    theme, width, height = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("theme => document.querySelector(`[data-theme=${theme}]`).click()", theme)
    expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)


def violations(page: Page) -> list[tuple[str, str, str]]:
    return [
        (violation["id"], node["html"][:160], node["failureSummary"][:200])
        for violation in Axe().run(page, options=RULES).response["violations"]
        for node in violation["nodes"]
    ]


def wait_for_charts(page: Page) -> None:
    for canvas in page.locator(".chart-canvas:not(.invisible)").all():
        expect(canvas.locator(".main-svg").first).to_be_visible()


def fits(page: Page, width: int) -> bool:
    """Charts take a moment to follow a window that changed, and then fill their places."""
    try:
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        page.wait_for_function(FILLED)
    except TimeoutError:
        return False
    return True


def take_picture(page: Page, address: str, look: str) -> None:
    if folder := os.environ.get("TIDEPOOL_PICTURES"):
        name = re.sub(r"\W+", "-", address).strip("-") or "overview"
        page.screenshot(path=Path(folder, f"{name}.{look}.png"), animations="disabled", full_page=look == "narrow")


def looks_of(page: Page, address: str) -> list[tuple[object, ...]]:
    """What is wrong with any look of this page."""
    found: list[tuple[object, ...]] = []
    page.emulate_media(reduced_motion="reduce")  # colours on their way to another theme are none to judge
    page.goto(address)
    wait_for_charts(page)
    for look, (_, width, _) in LOOKS.items():
        look_at(page, look)
        if not fits(page, width):
            found.append((address, look, "is wider than the window, or a chart than its place"))
        take_picture(page, address, look)
        found += [(address, look, *violation) for violation in violations(page)]
    return found


@pytest.mark.timeout(600)
def test_every_look_of_every_page(page: Page, scene: Scene, complaints: list[str]) -> None:
    found = [wrong for address in addresses(scene) for wrong in looks_of(page, address)]

    assert not found, "\n".join(map(str, found))
    assert set(complaints) <= {NOT_FOUND}


@pytest.mark.timeout(600)
def test_what_only_staff_sees(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")

    assert [wrong for address in ("/jobs/", "/hosts/") for wrong in looks_of(page, address)] == []
    assert complaints == []


def test_what_opens_above_a_page(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.evaluate("import('/static/js/toasts.js').then(({say}) => say('Done.', { undo: async () => {} }))")
    for theme in ("light", "dark"):
        look_at(page, theme)
        for opener in ("#show-palette", "#show-help", "[data-opens]"):
            page.evaluate("opener => document.querySelector(opener).click()", opener)
            expect(page.locator("dialog[open]")).to_be_visible()
            take_picture(page, opener, theme)
            assert violations(page) == []
            page.keyboard.press("Escape")


def test_the_log_in(scene: Scene, page: Page) -> None:
    page.context.clear_cookies()
    for theme in ("light", "dark"):
        page.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
        page.goto("/login/")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
        assert violations(page) == []

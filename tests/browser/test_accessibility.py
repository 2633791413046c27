"""No violation of WCAG 2 A and AA that axe can find, in light and dark, wide and narrow."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.scene import Scene

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


def addresses(scene: Scene) -> list[str]:
    jobs = [f"/jobs/{job.pk}/" for job in (scene.first, scene.failed, scene.waiting)]
    lists = ["/", "/jobs/", "/datasets/", "/models/", "/hosts/"]
    forms = ["/jobs/new/", "/datasets/new/", "/models/new/"]
    return [*lists, *forms, *jobs, f"/models/{scene.model.model_id}/", f"/datasets/{scene.dataset.dataset_id}/", "/no/"]


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
def test_pages_have_no_violations(page: Page, scene: Scene, theme: str, width: int) -> None:
    page.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
    page.set_viewport_size({"width": width, "height": 900})
    found = []
    for address in addresses(scene):
        page.goto(address)
        page.wait_for_load_state("load")
        assert page.locator("html").get_attribute("data-bs-theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{address} is wider than the window"
        results = Axe().run(page, options=RULES)
        found += [
            (address, violation["id"], node["html"][:160], node["failureSummary"][:200])
            for violation in results.response["violations"]
            for node in violation["nodes"]
        ]
    assert found == []


def test_the_log_in_has_no_violations(scene: Scene, page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/login/")

    assert Axe().run(page, options=RULES).response["violations"] == []


def test_the_rail_can_be_opened_by_keyboard_on_a_narrow_window(scene: Scene, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/jobs/")
    page.get_by_role("button", name="Open the menu").press("Enter")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Datasets").press("Enter")

    page.get_by_role("heading", level=1, name="Datasets").wait_for()

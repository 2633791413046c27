"""Keyboard, paper, zoom and languages: the focus after a form, a selection that stays, print, narrow windows, dates."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import log_in
from tests.browser.test_accessibility import fits, wait_for_charts
from tests.scene import Scene


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def test_one_key_leads_from_a_selected_row_to_what_can_be_done_with_it(page: Page, scene: Scene) -> None:
    page.goto("/jobs/")
    boxes = page.locator("#jobs tbody input[type=checkbox]")
    for place in (1, 2):
        boxes.nth(place).focus()
        page.keyboard.press("Space")
    expect(page.locator("#bulk-count")).to_contain_text("2 trainings selected. Press A for what can be done with them.")
    page.keyboard.press("a")
    expect(page.locator("#bulk button:focus")).to_have_count(1)
    for _ in range(6):
        if page.evaluate("document.activeElement.id") == "bulk-compare":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Compare").wait_for()


def test_the_selection_is_there_on_the_way_back_from_compare(page: Page, scene: Scene) -> None:
    page.goto("/jobs/")
    boxes = page.locator("#jobs tbody input[type=checkbox]")
    chosen = [str(boxes.nth(place).get_attribute("value")) for place in (0, 2)]
    for place in (0, 2):
        boxes.nth(place).check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", level=1, name="Compare").wait_for()
    page.go_back()
    checked = "boxes => boxes.filter((box) => box.checked).map((box) => box.value)"
    expect(page.locator("#bulk-count")).to_contain_text("2 trainings selected")
    assert page.locator("#jobs tbody input[type=checkbox]").evaluate_all(checked) == chosen
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", level=1, name="Compare").wait_for()
    page.get_by_label("Breadcrumb").get_by_role("link", name="Trainings").click()
    expect(page.locator("#bulk-count")).to_contain_text("2 trainings selected")


def test_the_focus_goes_to_what_became_of_a_form(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.get_by_label("Priority").fill("6100")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("[data-notice]:focus")).to_contain_text("The training was changed.")
    page.goto("/jobs/new/")
    page.get_by_label("Name of the training").fill("x" * 301)
    page.get_by_role("button", name="Start training").click()
    expect(page.locator("#form-errors")).to_be_focused()


def test_paper_is_white_without_bars_and_with_whole_charts(page: Page, scene: Scene) -> None:
    page.goto("/")
    wait_for_charts(page)
    page.evaluate("document.querySelector('[data-theme=dark]').click()")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")
    for selector in (".topbar", ".rail", ".chart-tools", ".page-actions", "main .btn"):
        for part in page.locator(selector).all():
            expect(part).to_be_hidden()
    width = "parts => Math.max(...parts.map((part) => part.getBoundingClientRect().width))"
    assert 500 < page.locator(".chart-canvas .main-svg").evaluate_all(width) <= 660
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    assert fits(page, 1440), "the charts are as wide as the page again"


def test_bars_leave_room_at_four_hundred_percent(page: Page, scene: Scene) -> None:
    page.set_viewport_size({"width": 320, "height": 256})
    page.goto("/jobs/")
    stays = """() => [...document.querySelectorAll('body *')].filter((part) => part.checkVisibility()
        && ['sticky', 'fixed'].includes(getComputedStyle(part).position) && part.getBoundingClientRect().height > 0
        && part.getBoundingClientRect().top < innerHeight && part.getBoundingClientRect().width > 160)
        .map((part) => part.className)"""
    page.evaluate("scrollTo(0, 600)")
    assert page.evaluate(stays) == []


def test_dates_are_english_in_a_browser_of_another_language(browser: Browser, site: str, scene: Scene) -> None:
    with browser.new_context(base_url=site, locale="de-DE", timezone_id="Europe/Berlin") as context:
        page = context.new_page()
        log_in(page, "alice")
        page.goto(f"/jobs/{scene.first.pk}/#events")
        day = page.locator(".event-day").first
        expect(day).to_be_visible()
        assert day.inner_text().strip(",").split()[0].strip(",") in {
            *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        }

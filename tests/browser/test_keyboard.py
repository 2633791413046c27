"""The site without a mouse: the palette, keys that pages declare, their help, and the focus."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from core.time import relative
from tests.browser.conftest import script
from tests.scene import Scene


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def page(page: Page) -> Page:
    """Once the scripts of the frame listen: keys that are pressed before do nothing."""
    page.goto("/")
    page.locator("#theme-menu [aria-pressed=true]").wait_for(state="attached")
    return page


def test_the_palette_goes_to_a_job_by_a_part_of_its_name(page: Page, scene: Scene) -> None:
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search everything")
    expect(field).to_be_focused()
    page.keyboard.type("digits-w")
    option = page.get_by_role("option", name="digits-wide Pending")
    expect(option).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", str(option.get_attribute("id")))
    expect(page.get_by_role("group", name="Trainings")).to_have_count(1)

    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(f"/jobs/{scene.waiting.pk}/$"))


def test_the_palette_does_what_the_page_can_do(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("theme dark")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")

    page.keyboard.press("Control+k")
    page.keyboard.type("train a")
    expect(page.get_by_role("option", selected=True)).to_have_text("Train a model")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("/jobs/new/$"))


def test_arrows_move_in_the_palette_and_escape_gives_the_focus_back(page: Page) -> None:
    train = page.get_by_role("link", name="Train", exact=True)
    train.focus()
    page.keyboard.press("Control+k")
    options = page.get_by_role("option")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.type("no such thing anywhere")
    expect(page.get_by_text("No name contains this.")).to_be_visible()
    page.keyboard.press("Escape")

    expect(train).to_be_focused()


def test_two_keys_go_to_a_page(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.press("d")

    expect(page.get_by_role("heading", level=1, name="Datasets")).to_be_visible()


def test_keys_are_letters_while_one_types(page: Page) -> None:
    page.goto("/jobs/new/")
    name = page.get_by_label("Name of the training")
    name.fill("")
    name.press_sequentially("t?gd/")

    expect(name).to_have_value("t?gd/")
    expect(page).to_have_url(re.compile("/jobs/new/$"))


def test_the_help_shows_what_the_page_declares_and_switches_keys_off(page: Page) -> None:
    page.evaluate(
        """document.querySelector('#jobs-title').insertAdjacentHTML('afterend',
            '<span hidden data-key="j|ArrowDown" data-key-words="Next job"></span>');
           window.keys = [];
           document.addEventListener('tidepool:key', event => window.keys.push(event.detail.key));"""
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_.locator("[data-keys-of=page]")).to_have_text("j or ↓Next job")
    expect(help_.locator("[data-keys-of=frame]")).to_contain_text("Go to the datasets")
    expect(help_.locator("[data-keys-of=frame] div").filter(has_text="Search, or run")).to_contain_text("Ctrl K")
    help_.get_by_role("checkbox").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("?")

    expect(help_).to_be_hidden()
    assert page.evaluate("window.keys") == ["ArrowDown"]
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search and run actions")).to_be_visible()


def test_the_content_is_one_key_away(page: Page) -> None:
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="Skip to content")
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()
    page.keyboard.press("Enter")

    expect(page.locator("#main")).to_be_focused()


def test_the_drawer_takes_the_focus_and_gives_it_back(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/jobs/")
    button = page.get_by_role("button", name="Open the menu")
    button.press("Enter")
    rail = page.get_by_role("dialog", name="Main", exact=True)
    expect(rail).to_be_focused()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("document.getElementById('rail').contains(document.activeElement)")
    page.keyboard.press("Escape")

    expect(rail).to_be_hidden()
    expect(button).to_be_focused()


def test_a_menu_is_walked_by_arrows_and_gives_the_focus_back(page: Page) -> None:
    button = page.get_by_role("button", name="Account of alice")
    button.focus()
    page.keyboard.press("ArrowDown")
    items = page.locator("#account-menu .menu-item")
    expect(items.first).to_be_focused()
    expect(page.locator("#account-menu")).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#account-menu")).to_be_hidden()
    expect(button).to_be_focused()

    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()


def test_moments_are_rendered_as_the_browser_would_say_them(page: Page) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    moments = [now - timedelta(seconds=s) for s in (0, 1.4, 2, 59, 60, 3_599, 7_200, 86_400, 200_000, -5, -90, -86_399)]
    said = page.evaluate(
        f"""([moments, now]) => {script("words")}.then(({{relativeTime}}) =>
            moments.map(moment => relativeTime(new Date(moment), new Date(now))))""",
        [[moment.isoformat() for moment in moments], now.isoformat()],
    )
    assert said == [relative(moment, now) for moment in moments]

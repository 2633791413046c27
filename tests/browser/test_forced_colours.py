"""High contrast: what colour alone says is still there when the system replaces the colours."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import log_in
from tests.scene import Scene

#: Elements of which nothing can be seen: neither text nor a background or border other than the page's.
UNSEEN = """selector => [...document.querySelectorAll(selector)].filter((part) => {
    if (!part.checkVisibility()) return false;
    const ground = getComputedStyle(document.body).backgroundColor;
    const style = getComputedStyle(part);
    const isSeen = (colour) => ![ground, "rgba(0, 0, 0, 0)"].includes(colour);
    const hasBorder = (side) => parseFloat(style[`border${side}Width`]) > 0 && isSeen(style[`border${side}Color`]);
    const borders = ["Top", "Right", "Bottom", "Left"].some(hasBorder);
    const outline = style.outlineStyle !== "none" && isSeen(style.outlineColor);
    return !isSeen(style.backgroundColor) && !borders && !outline;
}).length"""


@pytest.fixture(params=["light", "dark"])
def contrast(request: pytest.FixtureRequest, browser: Browser, site: str, scene: Scene) -> Iterator[Page]:
    options = {"forced_colors": "active", "color_scheme": request.param}
    with browser.new_context(base_url=site, viewport={"width": 1440, "height": 900}, **options) as context:
        page = context.new_page()
        log_in(page, "alice")
        yield page


def test_dots_bars_and_swatches_are_seen(contrast: Page, scene: Scene) -> None:
    contrast.goto("/jobs/")
    expect(contrast.locator("#jobs progress").first).to_be_visible()
    for selector in (".state-dot", "progress", ".mark", ".live-dot-mark"):
        assert contrast.evaluate(UNSEEN, selector) == 0, selector
    contrast.goto(f"/jobs/{scene.first.pk}/")
    expect(contrast.locator(".chart-legend button").first).to_be_visible()
    assert contrast.evaluate(UNSEEN, ".chart-legend i") == 0
    colours = contrast.locator(".chart-legend i").evaluate_all(
        "parts => parts.map((part) => getComputedStyle(part).borderTopColor)"
    )
    assert len(set(colours)) > 1, "lines keep the colours that they have in the chart"
    contrast.goto("/fair-share/")
    expect(contrast.locator(".bar-legend").first).to_be_visible()
    assert contrast.evaluate(UNSEEN, ".bar-legend .own, .bar-legend .borrowed, .bar-legend .deserved") == 0


def test_a_pressed_button_and_the_present_page_differ_from_others(contrast: Page, scene: Scene) -> None:
    look = """part => ["outline", "border", "backgroundColor"].map((name) => getComputedStyle(part)[name]).join()"""
    contrast.goto(f"/jobs/{scene.first.pk}/")
    head = contrast.locator("[data-chart=metrics]")
    pressed, other = (head.locator(f".btn[aria-pressed={is_on}]").first for is_on in ("true", "false"))
    expect(pressed).to_be_visible()
    assert pressed.evaluate(look) != other.evaluate(look)
    here, elsewhere = (
        contrast.locator(".rail-nav a[aria-current]").first,
        contrast.locator(".rail-nav a:not([aria-current])").first,
    )
    assert here.evaluate(look) != elsewhere.evaluate(look)

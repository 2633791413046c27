"""A report from a training, shared with everybody, read without a log-in, and withdrawn. Its charts are drawn."""

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import listen
from tests.browser.test_accessibility import LOOKS, fits, take_picture, violations, wait_for_charts
from tests.scene import Scene


def test_from_a_training_to_a_link_and_its_end(
    page: Page, scene: Scene, browser: Browser, site: str, complaints: list[str]
) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.get_by_role("link", name="Add to a report").click()
    expect(page.get_by_label("Title of the new report")).to_have_value("T1 digits-cnn")
    page.get_by_label("Title of the new report").fill("What the rate does")
    page.get_by_label("GPUs", exact=True).check()
    page.get_by_role("button", name="Add to the report").click()
    expect(page.get_by_role("heading", name="Edit “What the rate does”")).to_be_visible()
    wait_for_charts(page)

    page.get_by_label("Text", exact=True).fill("Lower *is* better.")
    page.get_by_role("button", name="Add text", exact=True).click()
    expect(page.locator(".report-block").last).to_contain_text("Lower is better.")
    count = page.locator(".report-block").count()
    page.get_by_role("button", name=f"Move block {count} up").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".report-block").nth(count - 2)).to_contain_text("Lower is better.")

    page.get_by_role("link", name="Done").click()
    wait_for_charts(page)
    page.get_by_label("Expires after").fill("3")
    page.get_by_role("button", name="Create public link").click()
    link = page.get_by_label("Public link").input_value()

    elsewhere = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    stranger = elsewhere.new_page()
    listen(stranger, complaints)
    stranger.goto(link)
    expect(stranger.get_by_role("heading", name="What the rate does")).to_be_visible()
    wait_for_charts(stranger)
    lines = "document.querySelector('.report .chart-canvas').data.map(({ x }) => x.at(-1))"
    assert stranger.evaluate(lines) == [820]
    for theme, (_, width, height) in zip(("light", "dark") * 2, LOOKS.values(), strict=False):
        stranger.set_viewport_size({"width": width, "height": height})
        stranger.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
        stranger.reload()
        wait_for_charts(stranger)
        assert fits(stranger, width)
        take_picture(stranger, "shared", f"{theme} {width}")
        assert violations(stranger) == []

    page.get_by_role("button", name="Revoke").click()
    expect(page.locator("#links")).to_contain_text("revoked")
    stranger.goto(link)
    expect(stranger.get_by_role("heading", name="This link no longer works")).to_be_visible()
    elsewhere.close()
    assert [line for line in complaints if "410" not in line] == []


def test_charts_follow_what_is_chosen(page: Page, scene: Scene, complaints: list[str]) -> None:
    page.goto(f"/reports/{scene.report.pk}/")
    wait_for_charts(page)
    data = "document.querySelector('.report .chart-canvas').data"
    assert page.evaluate(f"{data}.map(({{ x }}) => x)") == [[0, 100, 200], [100, 200]]
    page.get_by_role("button", name="Time", exact=True).click()
    assert page.evaluate(f"{data}[1].x.at(-1)") == 2
    page.get_by_role("button", name="Linear").click()
    assert page.evaluate("document.querySelector('.chart-canvas')._fullLayout.yaxis.type") == "linear"
    page.get_by_role("button", name="Table").first.click()
    expect(page.locator(".chart-table tbody tr")).to_have_count(5)
    assert complaints == []


DRAWN = "document.querySelector('.report .chart-canvas .main-svg').getBoundingClientRect().width"


def test_on_paper_are_the_report_and_no_buttons(page: Page, scene: Scene) -> None:
    page.goto(f"/reports/{scene.report.pk}/")
    wait_for_charts(page)
    page.set_viewport_size({"width": 718, "height": 1015})  # A4 without its margins
    page.emulate_media(media="print")
    for hidden in (".rail", ".topbar", ".page-actions", ".sharing", ".chart-choices"):
        expect(page.locator(hidden).first).to_be_hidden()
    expect(page.locator(".report-table")).to_be_visible()
    page.evaluate("theme => document.documentElement.dataset.bsTheme = theme", "dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")
    assert page.evaluate(DRAWN) < 660
    take_picture(page, "report", "on paper narrow")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_function(f"() => {DRAWN} > 900")

"""The documents in a browser: ways to a section, contents that fold, paper, and the reference of the API."""

from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from tests.scene import Scene


def test_the_palette_leads_to_a_section(page: Page) -> None:
    page.goto("/datasets/")
    page.locator("#theme-menu [aria-pressed=true]").wait_for(state="attached")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search everything").fill("change log pattern")
    option = page.get_by_role("group", name="Help").get_by_role("option", name="Change the log pattern")
    expect(option).to_be_visible()
    option.click()

    page.wait_for_url("**/help/scripts/#change-the-log-pattern")
    expect(page.get_by_role("heading", name="Change the log pattern")).to_be_in_viewport()


def test_the_link_of_a_page_leads_to_its_section(page: Page) -> None:
    page.goto("/fair-share/")
    page.get_by_role("link", name="Help about this page").click()
    page.wait_for_url("**/help/instance-groups/#fair-share")
    expect(page.get_by_role("heading", name="Fair share", exact=True)).to_be_in_viewport()


def test_contents_stand_beside_a_document_and_fold_where_there_is_no_room(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/help/own-loop/")
    entry = page.get_by_label("Contents").get_by_role("link", name="What the loop may do")
    expect(entry).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(entry).to_be_hidden()
    page.get_by_label("Contents").get_by_text("On this page").click()
    expect(entry).to_be_visible()


def test_the_keyboard_reaches_what_scrolls_and_nothing_else(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/help/own-loop/")
    expect(page.locator(".help-document pre[tabindex]").first).to_be_visible()
    assert page.evaluate(
        """() => [...document.querySelectorAll('.help-document :is(pre, table)')]
            .every((each) => (each.tabIndex === 0) === (each.scrollWidth > each.clientWidth))"""
    )


def test_paper_has_the_document_alone(page: Page) -> None:
    page.goto("/help/own-loop/")
    page.emulate_media(media="print")
    for part in (".rail", ".topbar", ".help-aside", ".help-next"):
        expect(page.locator(part)).to_be_hidden()
    expect(page.get_by_role("heading", name="Your own loop")).to_be_visible()


def test_the_reference_of_the_api_asks_this_site_alone(page: Page, scene: Scene, complaints: list[str]) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/help/api/")
    expect(page.locator("html")).to_have_attribute("data-ready", "yes")

    expect(page.get_by_role("heading", name="Tidepool", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Authorize")).to_have_count(0)
    expect(page.get_by_role("main")).to_have_count(1)
    page.locator('.opblock-tag[data-tag="search"]').click()
    page.locator(".opblock", has_text="/api/v1/search/").locator(".opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_placeholder("q").fill("digits")
    page.get_by_role("button", name="Execute").click()

    expect(page.locator(".live-responses-table td.response-col_status").last).to_contain_text("200")
    here = urlsplit(page.url).netloc
    assert {urlsplit(address).netloc for address in asked if not address.startswith("data:")} == {here}
    assert complaints == []

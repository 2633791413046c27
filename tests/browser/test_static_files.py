"""Downloads of a page: few, from its own site, and cached from one page to the next."""

from playwright.sync_api import Page, expect

#: Requests of a browser with an empty cache: the page and its files. The icon is part of the page.
MOST_REQUESTS = 12
MOST_BYTES = 600_000
LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((entry) => [entry.name, entry.transferSize])"""


def test_the_overview_is_light_for_who_comes_first(page: Page) -> None:
    page.goto("/")
    expect(page.locator("[data-chart=gpus] .main-svg").first).to_be_visible()
    loaded = dict(page.evaluate(LOADED))
    icon = page.locator("link[rel=icon]").evaluate("(link) => link.href")

    assert icon.startswith("data:"), "browsers ask for an icon when they like"
    assert len(loaded) <= MOST_REQUESTS
    assert sum(loaded.values()) <= MOST_BYTES
    assert all(loaded.values()), "nothing was there before"


def test_the_face_is_our_own_with_figures_of_one_width(page: Page) -> None:
    page.goto("/jobs/")
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('600 13px \"Inter Variable\"'))")
    loaded = page.evaluate("[...document.fonts].filter((face) => face.status === 'loaded').length")
    assert loaded == 1, "of the two files, the one with letters that no page has is left alone"
    widths = page.evaluate(
        """() => ["1", "8"].map((figure) => {
            const span = document.body.appendChild(document.createElement("span"));
            span.textContent = figure.repeat(50);
            return span.getBoundingClientRect().width;
        })"""
    )
    assert widths[0] == widths[1]


def test_who_comes_again_is_sent_the_page_alone(page: Page) -> None:
    for _ in range(2):
        page.goto("/")
        expect(page.locator("[data-chart=gpus] .main-svg").first).to_be_visible()

    assert [name for name, size in page.evaluate(LOADED) if size] == [page.url]

"""Pages with static files as `collectstatic` leaves them. All other tests of pages read the sources."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Response, expect

from tests.browser.conftest import listen, log_in
from tests.browser.test_accessibility import NOT_FOUND
from tests.processes import collect_static_files, web_process
from tests.scene import Scene, user_who_can_log_in
from tests.sitemap import PAGES, STAFF_PAGES

#: What a browser asks for that has nothing of Tidepool yet: the page itself and what it loads. Its icon is in the page.
MOST_REQUESTS = 12
MOST_BYTES = 600_000
LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((entry) => [entry.name, entry.transferSize])"""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("static") / "root"
    collect_static_files(root)
    return root


@pytest.fixture(scope="module")
def site(
    collected: Path, broker_url: str, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("web") / "log"
    with web_process(broker_url, log, TIDEPOOL_STATIC_ROOT=str(collected)) as address:
        yield address


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


def test_every_page_finds_what_it_loads_and_runs(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    sent: list[Response] = []
    page.on("response", lambda response: sent.append(response) if "/static/" in response.url else None)
    for user, pages in (("alice", PAGES), ("carol", STAFF_PAGES)):
        log_in(page, user)
        for shown in pages.values():
            for address in shown(scene)[:1]:
                page.goto(address)
                page.locator("#theme-menu [aria-pressed=true]").wait_for(state="attached")
                page.wait_for_load_state("networkidle")
                assert set(complaints) <= {NOT_FOUND}, address
                complaints.clear()
    assert sent
    assert {(response.url, response.status) for response in sent if response.status != 200} == set()
    assert all("immutable" in response.headers["cache-control"] for response in sent)

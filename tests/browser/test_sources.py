"""Pages with static files as they lie in `static/`, which is what a developer has who has not collected them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.conftest import listen, log_in
from tests.browser.test_accessibility import NOT_FOUND, static_files
from tests.processes import web_process
from tests.scene import Scene, user_who_can_log_in
from tests.sitemap import PAGES, STAFF_PAGES


@pytest.fixture(scope="module")
def site(broker_url: str, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("web")
    with web_process(broker_url, folder / "log", TIDEPOOL_STATIC_ROOT=str(folder / "nothing")) as address:
        yield address


@pytest.mark.long
def test_every_page_finds_what_it_loads_and_runs(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    sent = static_files(page)
    for user, pages in (("alice", PAGES), ("carol", STAFF_PAGES)):
        log_in(page, user)
        for shown in pages.values():
            for address in shown(scene)[:1]:
                page.goto(address)
                page.locator("#theme-menu [aria-pressed=true]").wait_for(state="attached")
                page.wait_for_load_state("networkidle")
                assert set(complaints) <= {NOT_FOUND}, address
                complaints.clear()
    assert any(response.url.endswith("/static/js/live.js") for response in sent)
    assert [(response.url, response.status) for response in sent if response.status != 200] == []

"""The Help link in the frame of each page."""

import re
from urllib.parse import urldefrag

import pytest
from django.test import Client

from core.help_links import help_address
from tests.scene import Scene
from tests.sitemap import PAGES, STAFF_PAGES
from webapp.help.documents import DOCUMENTS
from webapp.help.page_help import PAGE_HELP

#: Pages without a frame, for those who are not logged in.
WITHOUT = {"login", "one-time-link", "shared-report"}
ANCHORS = {document.address: {section.anchor for section in document.sections} for document in DOCUMENTS}


def test_every_page_has_its_help() -> None:
    assert set(PAGE_HELP) == (set(PAGES) | set(STAFF_PAGES)) - WITHOUT - {"not found"}


@pytest.mark.parametrize("page", sorted(page for page, target in PAGE_HELP.items() if target))
def test_the_section_is_there(page: str) -> None:
    address, anchor = urldefrag(help_address(*PAGE_HELP[page].split("#")))
    assert anchor in ANCHORS[address]


def test_a_page_has_one_link_which_its_reader_may_follow(scene: Scene, alices: Client, carols: Client) -> None:
    followed = set()
    for pages, browser in ((PAGES, alices), (STAFF_PAGES, carols)):
        for name in pages.keys() - WITHOUT:
            for page in pages[name](scene):
                html = browser.get(page).content.decode()
                [link] = re.findall(r'id="help-of-page"\s+href="([^"]+)"', html)
                followed.add((browser, urldefrag(link)[0]))
    assert {address: browser.get(address).status_code for browser, address in followed} == {
        address: 200 for _, address in followed
    }

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import resolve

from tests.scene import Scene
from tests.sitemap import NOT_PAGES, PAGES, named_addresses


def test_every_page_is_walked_by_the_tests_of_all_pages() -> None:
    missing = named_addresses() - set(PAGES) - set(NOT_PAGES)
    assert missing == set(), "add them to tests/sitemap.py"
    assert (set(PAGES) - {"not found"} | set(NOT_PAGES)) - named_addresses() == set(), "these addresses are gone"


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"not found"}))
def test_the_pages_of_a_name_are_its_own(name: str, scene: Scene, alices: Client) -> None:
    for address in PAGES[name](scene):
        path = address.split("?")[0]
        assert resolve(path).view_name == name
        response = alices.get(address)
        assert response.status_code == 200
        assert response["Content-Type"].startswith("text/html")

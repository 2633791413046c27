import pytest
from django.test import Client
from django.urls import resolve

from tests.scene import Scene
from tests.sitemap import NOT_PAGES, PAGES, STAFF_PAGES, named_addresses


def test_every_page_is_walked_by_the_tests_of_all_pages() -> None:
    missing = named_addresses() - set(PAGES) - set(STAFF_PAGES) - set(NOT_PAGES)
    assert missing == set(), "add them to tests/sitemap.py"
    assert (set(PAGES) - {"not found"} | set(STAFF_PAGES) | set(NOT_PAGES)) - named_addresses() == set(), (
        "these addresses are gone"
    )


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"not found"}))
def test_the_pages_of_a_name_are_its_own(name: str, scene: Scene, alices: Client) -> None:
    are_pages_of(name, PAGES[name](scene), alices)


@pytest.mark.parametrize("name", sorted(STAFF_PAGES))
def test_the_pages_of_administrators_are_their_own(name: str, scene: Scene, carols: Client, alices: Client) -> None:
    are_pages_of(name, STAFF_PAGES[name](scene), carols)
    assert {alices.get(address).status_code for address in STAFF_PAGES[name](scene)} == {403}


def are_pages_of(name: str, addresses: list[str], browser: Client) -> None:
    for address in addresses:
        path = address.split("?")[0]
        assert resolve(path).view_name == name
        response = browser.get(address)
        assert response.status_code == 200
        assert response["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("name", sorted(STAFF_PAGES))
def test_the_pages_of_administrators_are_theirs_alone(name: str, scene: Scene, alices: Client, carols: Client) -> None:
    for address in STAFF_PAGES[name](scene):
        assert resolve(address.split("?")[0]).view_name == name
        assert carols.get(address).status_code == 200
        assert alices.get(address).status_code == 403

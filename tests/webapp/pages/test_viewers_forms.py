"""Viewers are offered no form that would be refused once it is filled in."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.urls import Resolver404, resolve

from core.roles import is_for_viewers, viewers
from tests.html import html_of
from tests.scene import Scene
from tests.sitemap import PAGES


class Offers(HTMLParser):
    """What a page offers, as (method, address)."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.found = address, set[tuple[str, str]]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "data-readonly" in given:  # a form that shows settings, all of whose fields are disabled
            return
        if tag == "form" and given.get("method") == "post":
            self.found.add(("POST", given.get("action") or self.address))
        if tag == "a" and (given.get("href") or "").startswith("/"):
            self.found.add(("GET", given["href"] or ""))
        if address := given.get("data-preview"):
            self.found.add(("POST", address))


def refused(offer: tuple[str, str]) -> bool:
    method, address = offer
    try:
        return not is_for_viewers(method, resolve(urlsplit(address).path).view_name)
    except Resolver404:
        return False


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"not found"}))
def test_pages_offer_viewers_nothing_that_is_refused(scene: Scene, alices: Client, name: str) -> None:
    scene.alice.groups.add(viewers())
    for address in PAGES[name](scene):
        answer = alices.get(address)
        if answer.status_code == 403:
            assert not is_for_viewers("GET", name)
            assert "Your role is viewer" in html_of(answer)
            continue
        offers = Offers(address)
        offers.feed(html_of(answer))
        assert [offer for offer in sorted(offers.found) if refused(offer)] == []


def test_a_new_site_offers_viewers_nothing_that_is_refused(alices: Client, scene: Scene) -> None:
    """Empty states lead to the next step, which is not a viewer's."""
    scene.alice.groups.add(viewers())
    for address in ("/datasets/?search=zz", "/jobs/?search=zz", "/checkpoints/?kept=no", "/fair-share/"):
        offers = Offers(address)
        offers.feed(html_of(alices.get(address)))
        assert [offer for offer in sorted(offers.found) if refused(offer)] == []

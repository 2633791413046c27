"""Secrets that a page shows once: for a while, to the user who made them, in the browser that made them."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import signing
from django.test import Client

from tests.factories import UserFactory
from tests.scene import Scene

TOKEN = re.compile(r'value="tide_[^"]+"')


@pytest.fixture
def browser(scene: Scene) -> Client:
    """Alice's browser, which has just created a token."""
    browser = Client()
    browser.force_login(scene.alice)
    made = browser.post("/account/tokens/", {"name": "nightly", "days": "90", "scope": "read"})
    assert (made.status_code, made["Location"]) == (302, "/account/")
    return browser


def shown(browser: Client, page: str = "/account/") -> list[str]:
    return TOKEN.findall(browser.get(page).content.decode())


def test_a_reload_and_a_log_in_show_it_again(browser: Client, scene: Scene) -> None:
    first = shown(browser)
    assert len(first) == 1
    assert shown(browser) == first
    del browser.cookies["tidepool_session"]
    browser.force_login(scene.alice)
    assert shown(browser) == first


def test_nobody_else_is_shown_it(browser: Client, scene: Scene) -> None:
    elsewhere = Client()
    elsewhere.force_login(scene.alice)
    assert shown(elsewhere) == []
    browser.force_login(UserFactory())
    assert shown(browser) == []


def test_it_is_not_shown_once_its_time_is_over_or_it_is_withdrawn(browser: Client, monkeypatch: Any) -> None:
    cookie = browser.cookies["tidepool_shown"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/account/")
    assert timedelta(seconds=cookie["max-age"]) == timedelta(minutes=10)
    later = signing.time.time() + 601
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert shown(browser) == []
    monkeypatch.undo()
    assert len(shown(browser)) == 1
    [number] = re.findall(r"/account/tokens/(\d+)/withdraw/", browser.get("/account/").content.decode())
    browser.post(f"/account/tokens/{number}/withdraw/")
    assert shown(browser) == []


@pytest.mark.parametrize("text", ["", "nonsense", "a:b:c", "\\377"])
def test_what_the_server_has_not_signed_shows_nothing(browser: Client, text: str) -> None:
    browser.cookies["tidepool_shown"] = text
    assert shown(browser) == []

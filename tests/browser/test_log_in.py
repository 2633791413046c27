"""Log-in with an organization's provider: a real browser, the site and the provider in processes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.accounts.organization.oidc_provider import CLIENT_ID, CLIENT_SECRET
from tests.accounts.organization.running_provider import ADA, TABLE, RunningProvider, running_provider
from tests.browser.test_accessibility import LOOKS, fits, take_picture, violations
from tests.browser.test_deactivation import RECORD_CLOSES
from tests.processes import web_process
from tests.scene import Scene


@pytest.fixture(scope="module")
def provider() -> Iterator[RunningProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def site(
    broker_url: str,
    collected: Path,
    django_db_setup: None,
    provider: RunningProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Address of a web process whose provider this is."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "groups.toml").write_text(TABLE)
    (folder / "secret").write_text(CLIENT_SECRET)
    more = {
        "TIDEPOOL_STATIC_ROOT": str(collected),
        "TIDEPOOL_OIDC_ISSUER": provider.issuer,
        "TIDEPOOL_OIDC_CLIENT_ID": CLIENT_ID,
        "TIDEPOOL_OIDC_CLIENT_SECRET_FILE": str(folder / "secret"),
        "TIDEPOOL_OIDC_NAME": "Acme",
        "TIDEPOOL_LOGIN_GROUPS_FILE": str(folder / "groups.toml"),
    }
    with web_process(broker_url, folder / "log", **more) as address:
        yield address


def test_a_person_comes_in_by_the_button_and_is_shut_out_by_a_log_out_there(
    scene: Scene, page: Page, provider: RunningProvider, site: str, complaints: list[str]
) -> None:
    provider.set(person=ADA)
    page.context.clear_cookies()
    page.add_init_script(RECORD_CLOSES)
    page.goto("/cluster/")
    page.get_by_role("link", name="Log in with Acme").click()
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    assert page.url == f"{site}/cluster/"

    assert provider.sign_out(site, sub="4711", sid="session-1")["status"] == 200
    page.wait_for_function("() => window.closes.length > 0", timeout=30_000)

    assert page.evaluate("window.closes") == [4401]
    page.goto("/account/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert complaints == []


def test_the_page_and_its_refusal_in_each_look(scene: Scene, page: Page, provider: RunningProvider) -> None:
    provider.set(person={**ADA, "groups": []})
    page.context.clear_cookies()
    for name, (theme, width, height) in LOOKS.items():
        page.set_viewport_size({"width": width, "height": height})
        for address in ("/login/?next=/jobs/", "/login/oidc/"):
            page.goto("/login/")
            page.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
            page.goto(address)
            expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
            expect(page.get_by_role("link", name="Log in with Acme")).to_be_visible()
            assert fits(page, width)
            take_picture(page, address, name)
            assert violations(page) == []
    expect(page.get_by_role("alert")).to_contain_text("None of your groups at Acme may use this site")

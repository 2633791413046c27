"""A real web process and broker over the test's database, and a browser that looks at them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.missing import leave_out
from tests.processes import NO_CHROMIUM, broker, collect_static_files, find_chromium, web_process
from tests.scene import Scene, build_scene

#: Milliseconds that a test waits for an element: many, because a machine that runs the suite is busy.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

# Playwright's loop runs in this thread; Django would refuse the database because of it.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_chromium() or leave_out(NO_CHROMIUM)


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    with broker() as address:
        yield address


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the static files as users get them."""
    root = tmp_path_factory.mktemp("static") / "root"
    collect_static_files(root)
    return root


@pytest.fixture(scope="session")
def site(
    broker_url: str, collected: Path, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a web process that uses the test's database and broker."""
    more = {"TIDEPOOL_STATIC_ROOT": str(collected), "TIDEPOOL_PUBLIC_REPORT_DAYS": "30"}
    with web_process(broker_url, tmp_path_factory.mktemp("web") / "log", **more) as address:
        yield address


def script(name: str) -> str:
    """JavaScript that gives a promise of this module, of the bundles that the page has loaded."""
    bundles = "[...document.querySelectorAll('script[type=module]')].map(({ src }) => import(src))"
    return f"Promise.all({bundles}).then((bundles) => Object.assign({{}}, ...bundles).${name})"


# For this package only: while Playwright runs its event loop, asynchronous tests elsewhere cannot start theirs.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def scene(transactional_db: None, home: Path, site: str, broker_url: str, settings: Any) -> Scene:
    """The test itself writes to the same database and publishes on the same broker as the web process."""
    settings.TIDEPOOL_BROKER_URL = broker_url
    return build_scene()


@pytest.fixture
def context(browser: Browser, site: str) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def complaints() -> list[str]:
    """Return console messages at level error or warning, and uncaught exceptions."""
    return []


@pytest.fixture
def page(scene: Scene, context: BrowserContext, complaints: list[str]) -> Page:
    """Alice's browser, logged in; it shows nothing yet."""
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "alice")
    return page


def listen(page: Page, complaints: list[str]) -> None:
    def on_console(line: ConsoleMessage) -> None:
        if line.type in {"error", "warning"} and not _is_left_behind(line.text) and not _is_offline(line.text):
            complaints.append(line.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(str(error)))


def _is_left_behind(line: str) -> bool:
    """Said of a page that was left, or began to poll, while its socket still connected: the server refused nothing."""
    return line.startswith("WebSocket connection to") and "handshake" not in line and "net::" not in line


def _is_offline(line: str) -> bool:
    """Said of each request, those behind the page's back too, once a test has taken the network away."""
    return "net::ERR_INTERNET_DISCONNECTED" in line or line.startswith(("htmx:afterRequest", "htmx:sendError"))


def log_in(page: Page, name: str) -> None:
    """Log in by a session's cookie, without opening a page; test_roles.py uses the form."""
    visitor = Client()
    visitor.force_login(User.objects.get(username=name))
    cookie = visitor.cookies[django_settings.SESSION_COOKIE_NAME]
    site = page.request.get("/healthz").url.removesuffix("/healthz")  # the context alone knows the address
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])

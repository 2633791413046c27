"""A real web process and broker over the test's database, and a browser that looks at them."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.processes import database_url
from tests.scene import Scene, build_scene
from tests.waiting import wait_until
from webapp.embedded.broker import broker_command, find_broker, is_answering, socket_url

#: Where Debian and others put it. Playwright's own download works as well.
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

#: How long a test waits for what shall appear: long, because a machine that runs the suite is busy.
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
    for name in _CHROMIUM:
        if path := shutil.which(name):
            return path
    message = "Chromium is missing: install the Debian package chromium."
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    # Not below pytest's own folder: the path of a unix socket may have 100 bytes.
    with tempfile.TemporaryDirectory(prefix="tp-broker-") as folder:
        path = Path(folder, "broker.sock")
        command = broker_command(find_broker("auto"), path, Path(folder))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
            try:
                wait_until(lambda: is_answering(path), "the broker answers")
                yield socket_url(path)
            finally:
                process.terminate()


@pytest.fixture(scope="session")
def site(broker_url: str, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a web process that uses the test's database and broker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TIDEPOOL_HOME": str(django_settings.TIDEPOOL_HOME),
        "TIDEPOOL_BROKER_URL": broker_url,
        "TIDEPOOL_EXECUTOR_BROKER_URL": django_settings.TIDEPOOL_EXECUTOR_BROKER_URL,
        "TIDEPOOL_DATABASE_URL": database_url(),
    }
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    log = tmp_path_factory.mktemp("web") / "log"
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(f"http://127.0.0.1:{port}/login/"), "web is up")
            assert process.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            print(log.read_text())


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
    """What the browser's console said at level error or warning, and exceptions nobody caught."""
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
        if line.type in {"error", "warning"} and not _is_left_behind(line.text):
            complaints.append(line.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(str(error)))


def _is_left_behind(line: str) -> bool:
    """Said of a page that was left, or began to poll, while its socket still connected: the server refused nothing."""
    return line.startswith("WebSocket connection to") and "handshake" not in line and "net::" not in line


def log_in(page: Page, name: str) -> None:
    """By a session's cookie, without opening a page; test_roles.py uses the form."""
    visitor = Client()
    visitor.force_login(User.objects.get(username=name))
    cookie = visitor.cookies[django_settings.SESSION_COOKIE_NAME]
    site = page.request.get("/healthz").url.removesuffix("/healthz")  # the context alone knows the address
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False

"""A job trains on real processes, its page is open, and the web process is killed: the page goes on by itself."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
from tests.waiting import wait_until

pytestmark = pytest.mark.journey

#: `up` starts the web again at once, but a busy machine may need long for it.
BACK_MS = 120_000
STEPS = """() => document.querySelector('[data-chart=metrics] .chart-canvas')?.data
    ?.find(trace => trace.meta.metric === 'loss')?.x ?? []"""


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    running = RunningStack(home, free_port(), ("--hosts", "1", "--slots-per-host", "2"))
    running.start()
    yield running
    running.stop()
    shutil.rmtree(home, ignore_errors=True)


def web_process(stack: RunningStack) -> psutil.Process:
    [found] = [process for process in stack.family() if "tidepool web" in process.cmdline()]
    return found


def open_page(browser: Browser, stack: RunningStack, job: int) -> Page:
    """Open a training's page. What the browser complains of is in the test's output."""
    page = browser.new_page(base_url=stack.url)
    page.on("requestfailed", lambda request: print("request failed:", request.url, request.failure))
    page.on("response", lambda response: print(response.status, response.url) if response.status >= 400 else None)
    page.on("console", lambda message: print("console:", message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: print("error in the page:", error))
    page.goto(f"/login/?next=/jobs/{job}/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Log in").click()
    return page


def test_the_page_of_a_training_shows_no_gap_when_the_web_is_killed(browser: Browser, stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        training = Training(api, stack.home, "watched", max_slots=2, epochs=1000, **{"step-seconds": 0.3})
        wait_until(lambda: training.steps >= 3, "the first steps")
        page = open_page(browser, stack, training.id)
        dot = page.locator("#live-dot")
        expect(dot).to_have_attribute("data-status", "connected", timeout=BACK_MS)
        page.evaluate("window.loadedOnce = true")

        killed = web_process(stack)
        before = training.steps
        killed.send_signal(signal.SIGKILL)

        expect(dot).not_to_have_attribute("data-status", "connected", timeout=BACK_MS)
        expect(dot).to_have_attribute("data-status", "connected", timeout=BACK_MS)
        after = training.steps
        assert after > before, "it trained on"
        page.wait_for_function(f"after => Math.max(...({STEPS})()) >= after", arg=after, timeout=BACK_MS)

        shown = page.evaluate(STEPS)
        assert shown == list(range(shown[0], shown[-1] + 1))
        assert page.evaluate("window.loadedOnce")
        assert web_process(stack).pid != killed.pid
        page.close()

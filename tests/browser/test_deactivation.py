"""An administrator deactivates somebody whose page is open: the page's websocket is closed at once."""

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in

#: Script that records the close codes of the page's websockets.
RECORD_CLOSES = """
window.closes = [];
window.WebSocket = class extends WebSocket {
    constructor(...given) {
        super(...given);
        this.addEventListener("close", (event) => window.closes.push(event.code));
    }
};
"""


def test_an_open_page_is_shut_out_at_once(
    page: Page, scene: Scene, context: BrowserContext, complaints: list[str]
) -> None:
    page.add_init_script(RECORD_CLOSES)
    page.goto("/cluster/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    user_who_can_log_in("carol", is_staff=True)
    other = context.browser.new_context(base_url=page.url.removesuffix("/cluster/"))
    carols = other.new_page()
    listen(carols, complaints)
    log_in(carols, "carol")
    carols.goto(f"/users/{scene.alice.pk}/")

    carols.get_by_role("button", name="Deactivate").first.click()
    carols.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
    expect(carols.get_by_text("its trainings continue", exact=False)).to_be_visible()
    # The message over the broker closes it at once: permissions are checked again only once a minute.
    page.wait_for_function("() => window.closes.length > 0", timeout=30_000)

    assert page.evaluate("window.closes") == [4401]
    page.goto("/jobs/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    other.close()

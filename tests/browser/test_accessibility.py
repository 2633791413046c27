"""Every page in two looks: nothing that axe finds by WCAG 2 A and AA or in landmarks, no overflow, a silent console.

TIDEPOOL_PICTURES=test-results/pages .venv/bin/python -m pytest tests/browser/test_accessibility.py
also writes a picture of each look of each page into that folder.
"""

import os
import re
from datetime import timedelta
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, Response, TimeoutError, expect

from accounts.actions import change_role, deactivate, invite
from accounts.tokens import make_token
from core.audit.entries import audit
from core.roles import Role
from tests.browser.conftest import listen, log_in, script
from tests.scene import Scene, user_who_can_log_in
from tests.sitemap import addresses, staff_addresses
from workers.join_tokens import create_join_token

#: For pictures.
FOLDER = os.environ.get("TIDEPOOL_PICTURES")
AXE = Axe().axe_script
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "rules": {"region": {"enabled": True}, "landmark-unique": {"enabled": True}},
    "resultTypes": ["violations"],
    "preload": False,  # no second download of style sheets; pages have no sound or films
}
#: Name -> theme, width and height. Themes change colours and widths the layout: two looks show both of each.
LOOKS = {"light": ("light", 1440, 900), "narrow dark": ("dark", 390, 844)}
if FOLDER:
    LOOKS |= {"dark": ("dark", 1440, 900), "narrow light": ("light", 390, 844)}
#: Every chart that is shown is as wide as its place.
FILLED = """() => [...document.querySelectorAll('.chart-canvas:not(.invisible)')]
    .filter(canvas => canvas.clientWidth && canvas.querySelector('.main-svg'))
    .every(canvas => Math.abs(canvas.querySelector('.main-svg').getBoundingClientRect().width - canvas.clientWidth) < 2)
"""
#: The page for an unknown address answers with that.
NOT_FOUND = "Failed to load resource: the server responded with a status of 404 (Not Found)"


def look_at(page: Page, look: str) -> None:
    theme, width, height = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("theme => document.querySelector(`[data-theme=${theme}]`).click()", theme)
    expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)


#: Pages are drawn late on a busy machine, and what follows a new width with them: the second frame shows that.
#: Themes fade in: colours are what they are once no animation that ends is left; in a closed <details> none ends.
UNTIL_DRAWN = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
    .then(() => Promise.all(document.getAnimations()
        .filter((each) => each.effect.target.checkVisibility())
        .filter((each) => each.effect.getComputedTiming().endTime !== Infinity)
        .map((each) => each.finished.catch(() => null))))"""


#: To axe, what the bar at the bottom half hides until one scrolls is too small to hit: it waits at the page's end.
BAR_AT_THE_END = "document.querySelector('.thumb-bar')?.style.setProperty('position', 'static')"


def violations(page: Page) -> list[tuple[str, str, str]]:
    page.evaluate(UNTIL_DRAWN)
    page.evaluate(BAR_AT_THE_END)
    if not page.evaluate("'axe' in window"):  # an earlier look has left it there
        page.evaluate(AXE)
    return [
        (violation["id"], node["html"][:160], node["failureSummary"][:200])
        for violation in page.evaluate("rules => axe.run(rules).then((found) => found.violations)", RULES)
        for node in violation["nodes"]
    ]


def wait_for_charts(page: Page) -> None:
    for canvas in page.locator(".chart-canvas:not(.invisible):visible").all():
        expect(canvas.locator(".main-svg, .parallel-drawing > svg").first).to_be_visible()


def fits(page: Page, width: int) -> bool:
    """Charts take a moment to follow a window that changed, and then fill their places."""
    try:
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        page.wait_for_function(FILLED)
    except TimeoutError:
        return False
    return True


#: Script that returns the elements that scroll by a rounded pixel or two, for which a browser draws a bar.
SCROLL_A_PIXEL = """() => [...document.querySelectorAll('body, body *')]
    .filter((element) => ['auto', 'scroll'].includes(getComputedStyle(element).overflowY) && element.checkVisibility())
    .filter(({ scrollHeight, clientHeight }) => scrollHeight > clientHeight && scrollHeight <= clientHeight + 2)
    .map((element) => element.outerHTML.slice(0, 90))"""


def take_picture(page: Page, address: str, look: str) -> None:
    if FOLDER:
        name = re.sub(r"\W+", "-", address).strip("-") or "overview"
        page.screenshot(path=Path(FOLDER, f"{name}.{look}.png"), animations="disabled", full_page="narrow" in look)


def looks_of(page: Page, address: str) -> list[tuple[object, ...]]:
    """Return what is wrong with any look of this page."""
    found: list[tuple[object, ...]] = []
    page.emulate_media(reduced_motion="reduce")  # colours on their way to another theme are none to judge
    page.goto(address)
    wait_for_charts(page)
    for look, (_, width, _) in LOOKS.items():
        look_at(page, look)
        if not fits(page, width):
            found.append((address, look, "is wider than the window, or a chart than its place"))
        take_picture(page, address, look)
        found += [(address, look, "scrolls by a pixel", html) for html in page.evaluate(SCROLL_A_PIXEL)]
        found += [(address, look, *violation) for violation in violations(page)]
    return found


def static_files(page: Page) -> list[Response]:
    """Return a list that grows with each static file that the page is sent."""
    sent: list[Response] = []
    page.on("response", lambda response: sent.append(response) if "/static/" in response.url else None)
    return sent


def assert_browsers_keep(sent: list[Response]) -> None:
    def is_kept(response: Response) -> bool:
        return response.status == 200 and "immutable" in response.headers["cache-control"]

    assert sent
    assert [(response.url, response.status) for response in sent if not is_kept(response)] == []


def test_every_look_of_every_page(page: Page, scene: Scene, complaints: list[str]) -> None:
    sent = static_files(page)

    found = [wrong for address in addresses(scene) for wrong in looks_of(page, address)]

    assert not found, "\n".join(map(str, found))
    assert set(complaints) <= {NOT_FOUND}
    assert_browsers_keep(sent)


def test_what_only_staff_sees(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    _administrators_work(user_who_can_log_in("carol", is_staff=True), scene)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    sent = static_files(page)

    group = scene.first.instance_group.resource_group_id
    walked = ("/jobs/", "/hosts/", f"/resource-groups/{group}/", "/usage/?range=1h", *staff_addresses(scene))
    assert [wrong for address in walked for wrong in looks_of(page, address)] == []
    assert complaints == []
    assert_browsers_keep(sent)


def _administrators_work(carol: User, scene: Scene) -> None:
    """Fill administrators' pages: people who come and go, and what was changed."""
    create_join_token(carol, hosts=8)
    make_token(scene.alice, "nightly-tests", timezone.now() + timedelta(days=90))
    bob = User.objects.get(username="bob")
    invite(carol, "erin", Role.VIEWER)
    change_role(carol, bob.pk, Role.VIEWER)
    deactivate(carol, bob.pk)
    before = {"policy": "priority", "quota": None, "members": ["alice", "bob"]}
    after = {"policy": "fairshare", "quota": 4, "members": ["alice", "erin"]}
    with transaction.atomic():
        audit(carol, "changed", kind="instance group", key=1, name="sig-elastic", before=before, after=after)


def test_what_is_shown_once(scene: Scene, context: BrowserContext, complaints: list[str]) -> None:
    """A link to hand on, and the page that it opens."""
    carol = user_who_can_log_in("carol", is_staff=True)
    path = invite(carol, "erin", Role.DATA_SCIENTIST).path
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    page.goto("/users/invite/")
    page.get_by_label("User name").fill("frank")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_label("One-time link")).to_have_value(re.compile("/welcome/"))
    for look in LOOKS:
        look_at(page, look)
        take_picture(page, "handout", look)
        assert violations(page) == []
    context.clear_cookies()
    page.goto(path)
    for theme in ("light", "dark"):
        page.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
        page.goto(path)
        take_picture(page, "welcome", theme)
        assert violations(page) == []
    assert complaints == []


def test_what_opens_above_a_page(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.evaluate(script("toasts") + ".then(({say}) => say('Done.', { undo: async () => {} }))")
    for look in LOOKS:
        look_at(page, look)
        for opener in ("#show-palette", "#show-help", "[data-opens]"):
            page.evaluate("opener => document.querySelector(opener).click()", opener)
            expect(page.locator("dialog[open]")).to_be_visible()
            take_picture(page, opener, look)
            assert violations(page) == []
            page.keyboard.press("Escape")


def test_the_log_in(scene: Scene, page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/login/")
    for theme in ("light", "dark"):
        page.evaluate("theme => localStorage.setItem('tidepool-theme', theme)", theme)
        page.goto("/login/")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
        assert violations(page) == []

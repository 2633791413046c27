"""Pages that change by themselves do not move what one looks at, and leave the focus where it is."""

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Page, expect

from core import live
from jobs.actions import JobChange, change_job
from jobs.models import Checkpoint, Job, SlotClaim
from tests.browser.test_accessibility import wait_for_charts
from tests.browser.test_live_pages import make_steps, open_job, wait_for_step
from tests.scene import Scene
from workers.models import Slot
from workers.topics import CLUSTER

#: Every shift that no input of the person explains, with what moved.
COLLECT = """
window.shifts = [];
new PerformanceObserver(list => {
    for (const shift of list.getEntries()) {
        if (shift.hadRecentInput) continue;
        const moved = shift.sources.map(source => source.node?.outerHTML?.slice(0, 90) ?? source.node?.nodeName);
        window.shifts.push([shift.value, moved]);
    }
}).observe({ type: 'layout-shift', buffered: true });
"""
#: Data that arrives moves nothing; a number that gets another digit may move its neighbour. (0.1 counts as good.)
MOST = 0.01
#: Words that a script fills in as the page opens may wrap on a narrow window.
MOST_AT_LOAD = 0.05


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def hand_over(slot: Slot, job: Job | None) -> None:
    with transaction.atomic():
        SlotClaim.objects.open().filter(slot=slot).update(released_at=timezone.now())
        if job is not None:
            SlotClaim.objects.create(slot=slot, job=job, attempt=1, claimed_at=timezone.now())
        live.publish(CLUSTER, "state", {"slots": {str(slot): {"job": job and job.pk, "vacating": False}}})


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_moves_when_data_arrives(page: Page, scene: Scene, width: int) -> None:
    page.add_init_script(COLLECT)
    page.set_viewport_size({"width": width, "height": 900})
    found = []
    for address in ("/", f"/jobs/{scene.first.pk}/", "/jobs/"):
        page.goto(address)
        wait_for_charts(page)
        expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shifts = page.evaluate("window.shifts")
        found += [(address, "load", *shift) for shift in shifts if sum(value for value, _ in shifts) > MOST_AT_LOAD]

    open_job(page, scene.first)
    loaded = len(page.evaluate("window.shifts"))
    make_steps(scene.first, 821, 826)
    wait_for_step(page, 826)
    shifts = page.evaluate("window.shifts")[loaded:]
    found += [("steps", *shift) for shift in shifts if sum(value for value, _ in shifts) > MOST]

    assert found == []


def test_the_focus_stays_on_a_slot_that_changes_hands(page: Page, scene: Scene) -> None:
    page.goto("/")
    slot = page.locator("[data-slot='gpu-host-1:0']")
    slot.focus()
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    changing = Slot.objects.get(host__name="gpu-host-1", index=0)
    for holder, words in ((scene.second, "T2 digits-cnn"), (None, "free"), (scene.first, "T1 digits-cnn")):
        hand_over(changing, holder)
        expect(slot.locator(".slot-label")).to_have_text(words)
        expect(slot).to_be_focused()


def test_the_focus_stays_on_a_checkpoint_while_the_list_grows(page: Page, scene: Scene) -> None:
    def add(step: int) -> None:
        Checkpoint.objects.create(
            job=scene.first, attempt=1, step=step, epoch=1, path=str(step), size_bytes=10, created_at=timezone.now()
        )

    add(100)
    page.goto(f"/jobs/{scene.first.pk}/#results")
    more = page.get_by_role("row").filter(has_text="100").get_by_role("button", name="More uses of the checkpoint")
    more.focus()
    add(200)

    expect(page.get_by_role("row").filter(has_text="200")).to_be_visible()
    expect(more).to_be_focused()
    page.keyboard.press("ArrowDown")
    weights = page.get_by_role("link", name="Use its weights")
    expect(weights).to_be_focused()
    add(300)
    expect(page.get_by_role("row").filter(has_text="300")).to_be_visible()
    expect(weights).to_be_focused()
    page.keyboard.press("Escape")
    expect(more).to_be_focused()


def test_a_change_elsewhere_leaves_the_focus_in_the_list_of_jobs(page: Page, scene: Scene) -> None:
    page.goto("/jobs/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    link = page.get_by_role("link", name="digits-wide")
    link.focus()
    change_job(scene.waiting.pk, JobChange(priority=9000), "alice")

    expect(page.get_by_role("row").filter(has_text="digits-wide")).to_contain_text("9000")
    expect(link).to_be_focused()

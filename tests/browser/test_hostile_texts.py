"""Names, logs and errors of users are text on every page, and fit: markup, other directions, nothing visible, long."""

from pathlib import Path

from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, TimeoutError

from datasets.models import Dataset
from jobs.messages import message
from jobs.models import AllocationPoint, InstanceGroup, Job, JobEvent, JobRun
from models_registry.models import RegisteredModel
from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in
from tests.sitemap import addresses, staff_addresses
from workers.models import Host

MARKUP = "<img src=x onerror=\"window.hacked='name'\"><b>&amp;"
HOSTILE = f"{MARKUP}\u202egnp.exe\u200b{'x' * 140}"
#: Nothing of the kind is loaded, run, or turned into an element.
HARM = """() => [
    window.hacked ?? '',
    document.querySelectorAll('img[src="x"], b b, script[src="x"]').length,
    [...document.querySelectorAll('[onerror]')].length,
]"""

#: Script that returns the elements wider than the window, except those in scrolling containers.
WIDE = """() => [...document.querySelectorAll('body *')].filter(element => {
    for (let outer = element.parentElement; outer; outer = outer.parentElement) {
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(outer).overflowX)) return false;
    }
    return element.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(element).position !== 'fixed';
}).slice(0, 4).map(element => element.outerHTML.slice(0, 90))"""


def make_hostile(scene: Scene) -> None:
    Job.objects.update(name=HOSTILE, reason_params=message("no_progress", text=HOSTILE), parameters={HOSTILE: HOSTILE})
    JobRun.objects.update(error={"kind": HOSTILE, "message": HOSTILE, "traceback": HOSTILE})
    for table in (Dataset, RegisteredModel):
        for row in table.objects.all():
            table.objects.filter(pk=row.pk).update(name=f"{row.pk}{HOSTILE}", description=HOSTILE)
    group = scene.first.instance_group
    InstanceGroup.objects.filter(pk=group.pk).update(name=HOSTILE[:64], description=HOSTILE)
    group.members.add(User.objects.create(username=HOSTILE[:150]), scene.alice)
    AllocationPoint.objects.update(reason_params=message("no_progress", text=HOSTILE))
    JobEvent.objects.update(detail=message("no_progress", text=HOSTILE), actor=HOSTILE[:100])
    for host in Host.objects.all():
        Host.objects.filter(pk=host.pk).update(name=f"{host.pk}-{'h' * 90}")
    Path(scene.model.path, scene.model.entry_point).write_text(f"# </pre></script>{HOSTILE}\n")


def harm(page: Page, address: str, width: int) -> list[tuple[object, ...]]:
    """Return what texts have done to the page in a window of this width. Charts take a moment to follow."""
    page.set_viewport_size({"width": width, "height": 900})
    try:
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
    except TimeoutError:
        return [(address, width, page.evaluate(WIDE))]
    done = page.evaluate(HARM)
    return [] if done == ["", 0, 0] else [(address, width, done)]


def test_texts_of_users_stay_texts_and_fit(page: Page, scene: Scene, complaints: list[str]) -> None:
    make_hostile(scene)
    found = []
    for address in addresses(scene):
        page.goto(address)
        page.wait_for_load_state("load")
        found += [wrong for width in (1440, 390) for wrong in harm(page, address, width)]

    assert found == []
    assert [line for line in complaints if "404 (Not Found)" not in line] == []


def test_administrators_see_the_same_texts_as_texts(
    scene: Scene, context: BrowserContext, complaints: list[str]
) -> None:
    make_hostile(scene)
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    for address in staff_addresses(scene):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert harm(page, address, 390) == []
    assert complaints == []


def test_the_palette_shows_names_as_text(page: Page, scene: Scene) -> None:
    make_hostile(scene)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    page.keyboard.press("Control+k")
    page.keyboard.type("onerror")
    page.get_by_role("option", name="<img src=x").first.wait_for()

    assert page.evaluate(HARM) == ["", 0, 0]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


LONG_NAME = "resnet50-" + "x" * 110 + " learning rate sweep" * 6
FROM_RIGHT_TO_LEFT = "تدريب نموذج اللغة ١٢٣ (v2) אימון מודל"


def test_a_long_name_and_a_long_sentence_leave_the_heading_on_top(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(
        name=LONG_NAME, reason_params=message("no_progress", text="a long sentence of the scheduler; " * 8)
    )
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"/jobs/{scene.first.pk}/")
        tops = page.evaluate(
            """() => ['.job-head', '.job-head h1', '.job-head h1 > [title]'].map(
                (name) => document.querySelector(name).getBoundingClientRect())"""
        )
        assert tops[1]["top"] - tops[0]["top"] < 8, width
        assert tops[2]["height"] < 60, width  # two lines
        page.goto("/")
        row = page.locator(f"#active-{scene.first.pk}")
        assert row.locator(".job-name").bounding_box()["height"] < 60, width  # type: ignore[index]


def test_names_that_are_written_from_right_to_left_are_cut_at_their_end(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(name=FROM_RIGHT_TO_LEFT)
    direction = "(element) => getComputedStyle(element).direction + ' ' + getComputedStyle(element).textAlign"
    for address, name in [
        ("/", f"#active-{scene.first.pk} .job-name a"),
        ("/", f".slot[data-job='{scene.first.pk}'] .slot-label"),
        ("/jobs/", f"#job-{scene.first.pk} .job-name a"),
        (f"/jobs/{scene.first.pk}/", ".job-head h1 > [title]"),
    ]:
        page.goto(address)
        assert page.locator(name).first.evaluate(direction) == "rtl left", (address, name)

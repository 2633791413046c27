"""Two people with the same form open, each in a browser of their own."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jobs.models import InstanceGroup, Job
from tests.browser.conftest import log_in
from tests.scene import Scene, user_who_can_log_in


@pytest.fixture
def other(browser: Browser, site: str, scene: Scene) -> Iterator[Page]:
    """Dave's browser, narrow and dark; he is staff, too."""
    context = browser.new_context(base_url=site, viewport={"width": 390, "height": 844}, color_scheme="dark")
    yield _staff(context, "dave")
    context.close()


@pytest.fixture
def carols(context: BrowserContext, scene: Scene) -> Page:
    return _staff(context, "carol")


def _staff(context: BrowserContext, name: str) -> Page:
    user_who_can_log_in(name, is_staff=True)
    page = context.new_page()
    log_in(page, name)
    return page


def saved(page: Page, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()


def test_two_people_change_a_training(scene: Scene, page: Page, other: Page) -> None:
    job = scene.first
    for each in (page, other):
        each.goto(f"/jobs/{job.pk}/")
    page.get_by_label("Priority").fill("6100")
    saved(page, "Save changes")
    expect(page.locator("#main").get_by_text("The training was changed.")).to_be_visible()

    other.get_by_label("At most", exact=True).fill("5")
    expect(other.locator(".change-form [data-field=why]")).to_contain_text("6100")
    saved(other, "Save changes")
    expect(other.locator("#main").get_by_text("The training was changed.")).to_be_visible()
    job.refresh_from_db()
    assert (job.priority, job.max_slots) == (6100, 5)


def test_what_both_set_on_a_training_is_asked_and_the_present_value_taken(
    scene: Scene, page: Page, other: Page
) -> None:
    for each in (page, other):
        each.goto(f"/jobs/{scene.first.pk}/")
    page.get_by_label("Priority").fill("6100")
    saved(page, "Save changes")
    expect(page.locator("#main").get_by_text("The training was changed.")).to_be_visible()

    other.get_by_label("Priority").fill("7000")
    expect(other.locator("#id_priority_error")).to_have_text("alice changed this to 6100 meanwhile.")
    other.get_by_label("Time limit").fill("3600")
    saved(other, "Save changes")
    conflict = other.locator("#clashes")
    expect(conflict).to_be_focused()
    expect(conflict).to_be_in_viewport(ratio=1)
    expect(conflict.get_by_role("listitem")).to_have_count(1)
    for words in ("Priority", "Before: 5000", "Present: 6100, by alice", "Your entry: 7000"):
        expect(conflict.get_by_role("listitem")).to_contain_text(words)
    expect(other.get_by_label("Priority")).to_have_value("7000")
    assert other.evaluate("document.documentElement.scrollWidth") <= 390
    conflict.get_by_role("button", name="Keep 6100").click()
    expect(other.get_by_label("Priority")).to_have_value("6100")
    expect(other.get_by_label("Priority")).to_be_focused()
    saved(other, "Save changes")
    expect(other.locator("#main").get_by_text("The training was changed.")).to_be_visible()
    job = Job.objects.get(pk=scene.first.pk)
    assert (job.priority, job.max_seconds) == (6100, 3600)


def test_two_administrators_change_a_group(scene: Scene, carols: Page, other: Page) -> None:
    address = f"/instance-groups/{scene.first.instance_group_id}/change/"
    for each in (carols, other):
        each.goto(address)
    other.get_by_label("Weight", exact=True).fill("7")
    other.get_by_label("Description").fill("theirs")
    saved(other, "Apply")
    expect(other.locator("#main").get_by_text("Changed:")).to_be_visible()

    carols.get_by_label("Weight", exact=True).fill("3")
    carols.get_by_label("Quota").fill("4")
    expect(carols.locator("#id_weight_error")).to_have_text("dave changed this to 7 meanwhile.")
    saved(carols, "Apply")
    conflict = carols.locator("#clashes")
    expect(conflict.get_by_role("listitem")).to_have_count(1)
    expect(conflict.get_by_role("listitem")).to_contain_text("dave")
    expect(carols.get_by_label("Weight", exact=True)).to_have_value("3")
    expect(carols.get_by_label("Quota")).to_have_value("4")
    expect(carols.get_by_label("Description")).to_have_value("theirs")
    saved(carols, "Apply")
    expect(carols.locator("#main").get_by_text("weight from 7 to 3")).to_be_visible()
    group = InstanceGroup.objects.get()
    assert (group.weight, group.quota, group.description) == (3, 4, "theirs")


def test_an_entry_that_a_reload_shows_again_still_knows_what_it_was_based_on(
    scene: Scene, carols: Page, other: Page
) -> None:
    address = f"/instance-groups/{scene.first.instance_group_id}/change/"
    carols.goto(address)
    carols.get_by_label("Weight", exact=True).fill("3")
    other.goto(address)
    other.get_by_label("Weight", exact=True).fill("7")
    other.get_by_label("Quota").fill("2")
    saved(other, "Apply")
    expect(other.locator("#main").get_by_text("Changed:")).to_be_visible()

    carols.reload()
    expect(carols.get_by_label("Weight", exact=True)).to_have_value("3")
    expect(carols.get_by_label("Quota")).to_have_value("2")
    saved(carols, "Apply")
    expect(carols.locator("#clashes li")).to_have_count(1)
    saved(carols, "Apply")
    expect(carols.locator("#main").get_by_text("weight from 7 to 3")).to_be_visible()
    assert InstanceGroup.objects.get().quota == 2

"""The same cluster as its owner, a colleague, a stranger, an administrator and somebody without an account see it."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jobs.models import InstanceGroup, Job
from jobs.states import JobState
from tests.browser.conftest import listen, log_in
from tests.scene import PASSWORD, Scene, user_who_can_log_in
from tests.sitemap import addresses

As = Callable[[str], Page]
NOT_THERE = "Page not found"
#: Browser's own message for a missing page.
NOT_FOUND = "Failed to load resource: the server responded with a status of 404 (Not Found)"


@pytest.fixture
def team(scene: Scene) -> Scene:
    """Alice and Bob share a group, Dave belongs to none, Carol is staff."""
    user_who_can_log_in("dave")
    user_who_can_log_in("carol", is_staff=True)
    for group in InstanceGroup.objects.all():
        group.members.set(User.objects.filter(username__in=["alice", "bob"]))
    return scene


@pytest.fixture
def as_(team: Scene, browser: Browser, site: str, complaints: list[str]) -> Iterator[As]:
    contexts: list[BrowserContext] = []

    def new_page(name: str) -> Page:
        contexts.append(browser.new_context(base_url=site))
        page = contexts[-1].new_page()
        listen(page, complaints)
        log_in(page, name)
        return page

    yield new_page
    for context in contexts:
        context.close()
    assert set(complaints) <= {NOT_FOUND}


def test_the_owner_sees_the_training_and_may_stop_it(as_: As, team: Scene) -> None:
    page = as_("alice")
    page.goto(f"/jobs/{team.first.pk}/")

    expect(page.get_by_role("heading", level=1)).to_contain_text("T1 digits-cnn")
    page.get_by_role("button", name="Stop training").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop training").click()
    expect(page.locator("#job .state-word").first).to_have_text("Cancelling")


def test_a_colleague_sees_who_holds_which_gpu_and_nothing_of_the_training(as_: As, team: Scene) -> None:
    page = as_("bob")
    page.goto("/")
    expect(page.get_by_text("another user's training").first).to_be_visible()
    expect(page.get_by_text("digits-cnn")).to_have_count(0)
    page.goto(f"/jobs/{team.first.pk}/")
    expect(page.get_by_role("heading", name=NOT_THERE)).to_be_visible()
    page.goto("/jobs/?search=T1")
    expect(page.get_by_text("No training of yours matches this filter.")).to_be_visible()

    page.goto("/jobs/new/")
    expect(page.get_by_label("Instance group")).to_be_visible()
    expect(page.get_by_label("Start from").locator("option")).to_have_count(1)


def test_a_stranger_to_the_groups_may_look_and_is_told_whom_to_ask(as_: As, team: Scene) -> None:
    page = as_("dave")
    page.goto("/cluster/")
    expect(page.get_by_text("another user's training").first).to_be_visible()
    page.goto("/jobs/new/")

    expect(page.get_by_text("ask an administrator to add you to one")).to_be_visible()
    expect(page.get_by_role("button", name="Start training")).to_have_count(0)


def test_an_administrator_sees_everybodys_trainings_and_may_stop_them(as_: As, team: Scene) -> None:
    page = as_("carol")
    page.goto("/cluster/")
    expect(page.locator("[data-slot='gpu-host-1:0']")).to_contain_text("alice · ")
    page.goto("/jobs/?owner=alice")
    page.get_by_role("link", name="T2 digits-cnn").click()
    page.get_by_role("button", name="Stop training").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop training").click()

    expect(page.locator("#job .state-word").first).to_have_text("Cancelling")
    assert Job.objects.get(pk=team.second.pk).state == JobState.CANCELLING
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".job-event").filter(has_text="by carol")).to_have_count(1)


def test_without_an_account_every_page_is_the_log_in_and_then_the_page(
    team: Scene, context: BrowserContext, complaints: list[str]
) -> None:
    page = context.new_page()
    listen(page, complaints)
    for address in set(addresses(team)) - {"/no-such-page/"}:
        page.goto(address)
        expect(page.get_by_role("button", name="Log in")).to_be_visible()

    page.goto(f"/jobs/{team.first.pk}/")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("T1 digits-cnn")
    assert complaints == []

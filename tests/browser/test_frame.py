"""Tests of parts that every page shares: questions before a loss, working buttons, and short messages."""

from itertools import pairwise

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from core.roles import viewers
from jobs.models import Job
from jobs.states import JobState
from tests.browser.conftest import script
from tests.scene import Scene

TOAST = script("toasts") + ".then(({say}) => say('3 trainings stopped.', %s))"


def test_a_question_names_what_is_lost_and_enter_alone_keeps_it(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    stop = page.get_by_role("button", name="Stop training")
    stop.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Stop “T1 digits-cnn”?")
    expect(dialog).to_contain_text("is lost")
    expect(dialog.get_by_role("button", name="Keep training")).to_be_focused()

    page.keyboard.press("Enter")

    expect(dialog).to_be_hidden()
    expect(stop).to_be_focused()
    assert Job.objects.get(pk=scene.first.pk).state == JobState.RUNNING


def test_scripts_ask_the_same_way(page: Page, scene: Scene) -> None:
    page.goto("/")
    question = "{ title: 'Stop 3 trainings?', lost: 'Their last <b>steps</b>.', yes: 'Stop 3 trainings' }"
    for key, agreed in (("Escape", False), ("Enter", True)):
        page.evaluate(f"{script('ask')}.then(({{ask}}) => {{ window.answer = ask({question}); }})")
        dialog = page.get_by_role("dialog", name="Stop 3 trainings?")
        expect(dialog).to_contain_text("Their last <b>steps</b>.")
        dialog.get_by_role("button", name="Stop 3 trainings").focus()
        page.keyboard.press(key)
        assert page.evaluate("window.answer") is agreed
    assert page.locator("dialog.ask").count() == 0


def test_a_form_is_sent_once_however_often_it_is_pressed(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    twice = """button => {
        const kept = [];
        addEventListener('submit', event => kept.push(!event.defaultPrevented));
        button.click();
        button.click();
        return [...kept, button.getAttribute('aria-disabled')];
    }"""
    page.get_by_role("button", name="Suspend training").click()
    sending = page.get_by_role("dialog").get_by_role("button", name="Suspend training")
    assert sending.evaluate(twice) == [True, False, "true"]

    expect(
        page.get_by_role("status").filter(has_text="The training stops after the current step").first
    ).to_be_visible()


def test_what_was_done_can_be_taken_back(page: Page) -> None:
    page.goto("/jobs/")
    page.evaluate(TOAST % "{ undo: async () => '3 trainings go on.' }")
    toasts = page.locator("#toasts")
    expect(toasts).to_contain_text("3 trainings stopped.")
    toasts.get_by_role("button", name="Undo").click()

    expect(toasts).to_contain_text("3 trainings go on.")
    expect(toasts).not_to_contain_text("3 trainings stopped.")


def test_an_undo_that_fails_says_so_until_it_is_closed(page: Page) -> None:
    page.goto("/jobs/")
    page.evaluate(TOAST % "{ undo: async () => { throw new Error('they are over.'); } }")
    page.get_by_role("button", name="Undo").click()
    toast = page.locator(".toast-error")
    expect(toast).to_have_text("The change could not be undone: they are over.")
    toast.get_by_role("button", name="Close this message").click()

    expect(toast).to_be_hidden()


#: Scrolled and measured at once: a page may still grow.
AT_THE_END = """() => {
    scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' });
    const [main, bar] = ['#main', '.thumb-bar'].map((each) => document.querySelector(each).getBoundingClientRect());
    return [main.bottom, bar.top, bar.bottom];
}"""
PHONE: ViewportSize = {"width": 390, "height": 844}


def box(place: Locator) -> dict[str, float]:
    found: dict[str, float] = place.evaluate("place => place.getBoundingClientRect().toJSON()")
    return found


def test_a_thumb_reaches_the_most_used_pages_of_a_phone(page: Page, scene: Scene) -> None:
    bar = page.get_by_role("navigation", name="Most used")
    page.goto("/")
    expect(bar).to_be_hidden()
    page.set_viewport_size(PHONE)
    expect(bar.get_by_role("link")).to_have_text(["Overview", "Trainings", "Train"])
    links = [box(link) for link in bar.get_by_role("link").all()]
    assert all(
        link["top"] >= 744 and link["bottom"] <= 844 and min(link["width"], link["height"]) >= 44 for link in links
    )
    assert all(one["right"] <= other["left"] for one, other in pairwise(links))
    for name, address in {"Overview": "/", "Train": "/jobs/new/", "Trainings": "/jobs/"}.items():
        bar.get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(f"**{address}")
        expect(bar.locator("[aria-current=page]")).to_have_text(name)
    page.emulate_media(media="print")
    expect(bar).to_be_hidden()


def test_the_bar_for_the_thumb_covers_nothing(page: Page, scene: Scene) -> None:
    page.set_viewport_size(PHONE)
    bar = page.get_by_role("navigation", name="Most used")
    for address in ("/", "/account/", f"/jobs/{scene.first.pk}/", "/jobs/"):
        page.goto(address)
        assert box(bar)["bottom"] == 844, address
        end_of_main, top_of_bar, end_of_bar = page.evaluate(AT_THE_END)
        assert end_of_main < top_of_bar + 1, address
        assert end_of_bar == pytest.approx(844, abs=1), address
    page.evaluate(TOAST % "{ undo: async () => '3 trainings go on.' }")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert box(page.locator(".toast-line"))["bottom"] < box(bar)["top"]
    page.locator("#jobs tbody .choose input").first.check()
    assert box(page.locator("#bulk"))["bottom"] <= box(bar)["top"]


def test_who_only_looks_has_no_train_within_the_thumbs_reach(page: Page, scene: Scene) -> None:
    scene.alice.groups.add(viewers())
    page.set_viewport_size(PHONE)
    bar = page.get_by_role("navigation", name="Most used")
    page.goto("/")
    expect(bar.get_by_role("link")).to_have_text(["Overview", "Trainings"])
    page.context.clear_cookies()
    page.goto("/login/")
    expect(bar).to_have_count(0)

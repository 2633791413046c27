"""Tests of parts that every page shares: questions before a loss, working buttons, and short messages."""

from playwright.sync_api import Page, expect

from jobs.models import Job
from jobs.states import JobState
from tests.scene import Scene

TOAST = "import('/static/js/toasts.js').then(({say}) => say('3 trainings stopped.', %s))"


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
        page.evaluate(f"import('/static/js/ask.js').then(({{ask}}) => {{ window.answer = ask({question}); }})")
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
        page.get_by_role("status").filter(has_text="The training stops after the step under way").first
    ).to_be_visible()


def test_what_was_done_can_be_taken_back(page: Page) -> None:
    page.goto("/")
    page.evaluate(TOAST % "{ undo: async () => '3 trainings go on.' }")
    toasts = page.locator("#toasts")
    expect(toasts).to_contain_text("3 trainings stopped.")
    toasts.get_by_role("button", name="Undo").click()

    expect(toasts).to_contain_text("3 trainings go on.")
    expect(toasts).not_to_contain_text("3 trainings stopped.")


def test_an_undo_that_fails_says_so_until_it_is_closed(page: Page) -> None:
    page.goto("/")
    page.evaluate(TOAST % "{ undo: async () => { throw new Error('they are over.'); } }")
    page.get_by_role("button", name="Undo").click()
    toast = page.locator(".toast-error")
    expect(toast).to_have_text("It could not be undone: they are over.")
    toast.get_by_role("button", name="Close this message").click()

    expect(toast).to_be_hidden()

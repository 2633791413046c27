"""The list of jobs as a person uses it: it moves by itself, by keyboard, with many rows chosen at once."""

import re

import pytest
from django.db import transaction
from playwright.sync_api import Page, expect

from core import live
from jobs.actions import JobChange, cancel, change_job
from jobs.actions.tags import change_tags, parsed_tag_change
from jobs.control.transition import Why, change, lock_job
from jobs.messages import message
from jobs.models import Job
from jobs.states import JobState, Reason
from jobs.topics import JOBS, jobs_topic_of
from tests.factories import JobFactory, set_job
from tests.scene import Scene


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def submitted(scene: Scene, name: str, owner: str = "alice") -> Job:
    """Add a row and publish it, as the last step of submitting does."""
    who = scene.alice if owner == "alice" else scene.alice._meta.model.objects.get(username=owner)
    job = JobFactory(
        name=name, owner=who, model=scene.model, dataset=scene.dataset, instance_group=scene.first.instance_group
    )
    for topic in (JOBS, jobs_topic_of(who.pk)):
        live.publish(topic, "append", {"jobs": [job.pk]})
    return job


def names(page: Page) -> list[str]:
    return page.locator("#jobs .job-name a").all_text_contents()


def open_list(page: Page, query: str = "") -> None:
    page.goto(f"/jobs/{query}")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    page.evaluate("window.isSamePage = true")


def test_a_new_job_appears_and_a_cancelled_one_leaves_without_a_reload(page: Page, scene: Scene) -> None:
    open_list(page, "?state=PENDING")
    assert names(page) == ["digits-wide"]

    mine = submitted(scene, "from elsewhere <b>")
    submitted(scene, "bobs-second", owner="bob")

    expect(page.locator("#jobs .job-name a").first).to_have_text("from elsewhere <b>")
    cancel(scene.waiting.pk, "alice")
    expect(page.locator("#jobs .job-name a")).to_have_text(["from elsewhere <b>"])
    cancel(mine.pk, "alice")
    expect(page.get_by_text("No training of yours matches this filter.")).to_be_visible()
    assert page.evaluate("window.isSamePage")


def test_a_change_of_priority_is_shown_where_it_now_belongs(page: Page, scene: Scene) -> None:
    open_list(page, "?sort=priority&state=active")
    assert names(page) == ["T2 digits-cnn", "T1 digits-cnn", "digits-wide"]

    change_job(scene.waiting.pk, JobChange(priority=9000), "alice")

    expect(page.locator("#jobs .job-name a")).to_have_text(["T2 digits-cnn", "digits-wide", "T1 digits-cnn"])


def test_a_reason_and_a_metric_are_those_of_now(page: Page, scene: Scene) -> None:
    """Both change without any change of state, GPUs or priority."""
    open_list(page, "?columns=reason,metric:loss")
    row = page.locator(f"#job-{scene.first.pk}")
    expect(row.locator(".why")).not_to_have_text("The training is complete.")

    with transaction.atomic():
        change(lock_job(scene.first.pk), Why(Reason.COMPLETED, {"message": "complete"}, "executor"))
    expect(row.locator(".why")).to_have_text("The training is complete.")
    with transaction.atomic():
        change(lock_job(scene.first.pk), final_metrics={"loss": 0.0625})
    expect(row.locator(".extra")).to_have_text("0.0625")
    assert page.evaluate("window.isSamePage")


#: Function of a cell: whether these words of it end before its edge.
SHOWS = """(cell, words) => {
    const range = document.createRange();
    const at = cell.textContent.indexOf(words);
    range.setStart(cell.firstChild, at);
    range.setEnd(cell.firstChild, at + words.length);
    return range.getBoundingClientRect().right <= cell.getBoundingClientRect().right - 12;
}"""


def test_a_card_on_a_phone_has_two_lines(page: Page, scene: Scene) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_list(page)
    heights = page.locator("#jobs tbody tr").evaluate_all("rows => rows.map(row => row.getBoundingClientRect().height)")
    assert max(heights) <= 64
    waiting = page.locator(f"#job-{scene.waiting.pk}")
    expect(waiting.locator(".place")).to_be_visible()
    expect(waiting.locator("[data-column=slots]")).to_be_hidden()
    expect(waiting.get_by_role("checkbox")).to_be_in_viewport()
    expect(page.locator(f"#job-{scene.first.pk} [data-column=slots]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    open_list(page, "?columns=model,priority,duration,owner,reason,submitted")
    expect(page.locator("#jobs tbody tr").first.locator("[data-column=owner]")).to_be_visible()


def test_the_reason_shows_the_name_that_it_is_about_and_of_what_is_over_the_last_metric(
    page: Page, scene: Scene
) -> None:
    set_job(scene.waiting, reason_params=message("behind", others=[{"name": "sweep-3", "min_slots": 4}]))
    open_list(page)
    for job, words in ((scene.waiting, "Waits behind sweep-3"), (scene.first, "T2 digits-cnn")):
        cell = page.locator(f"#job-{job.pk} .why")
        expect(cell).to_contain_text(words)
        assert cell.evaluate(SHOWS, words), words
    expect(page.locator(f"#job-{scene.done.pk} .why")).to_have_text("test_loss 0.11, test_accuracy 96.4")
    expect(page.locator(f"#job-{scene.failed.pk} .why")).to_have_text(
        "FileNotFoundError: No such file or directory: 'start.pt'"
    )


def test_filters_as_one_types_and_keeps_the_address(page: Page, scene: Scene) -> None:
    open_list(page, "?columns=reason,duration,metric:loss")
    page.get_by_label("Name or number").press_sequentially("resume")
    expect(page.locator("#jobs .job-name a")).to_have_text(["digits-resume"])
    expect(page.get_by_label("Name or number")).to_be_focused()
    page.get_by_label("Name or number").fill("digits-")
    page.get_by_label("State", exact=True).select_option("Finished")
    page.get_by_label("Order").select_option("Name, from A")
    page.get_by_text("More filters", exact=True).click()
    page.get_by_label("Submitted from").fill("2020-02-29")

    expect(page.locator("#jobs .job-name a")).to_have_text(["digits-baseline", "digits-resume"])
    expect(page.locator("#states [aria-current]")).to_have_text("Finished 2")
    assert page.evaluate("window.isSamePage")
    expect(page).to_have_url(re.compile("submitted_after=2020-02-2"))
    assert "within" not in page.url
    page.reload()
    expect(page.locator("#jobs thead")).to_contain_text("loss")
    expect(page.get_by_label("Submitted from")).to_have_value("2020-02-29")
    page.locator("#states").get_by_role("link", name="All 5").click()
    expect(page.locator("#jobs .job-name a")).to_have_count(5)
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#jobs .job-name a")).to_have_count(5)


def test_a_filter_that_does_not_reach_the_server_says_so_and_is_tried_again(page: Page, scene: Scene) -> None:
    open_list(page)
    before = names(page)
    page.context.set_offline(True)
    page.get_by_label("Name or number").fill("resume")
    notice = page.get_by_role("alert").filter(has_text="The filter has not been applied")
    expect(notice).to_be_visible()
    expect(notice).to_contain_text("tries again")
    assert (names(page), page.url.partition("?")[2]) == (before, ""), "actions on all that match go by the address"

    page.context.set_offline(False)
    expect(page.locator("#jobs .job-name a")).to_have_text(["digits-resume"])
    expect(notice).to_be_hidden()
    expect(page).to_have_url(re.compile(r"\?search=resume$"))


def test_a_filter_after_a_log_out_says_so(page: Page, scene: Scene, complaints: list[str]) -> None:
    open_list(page)
    before = names(page)
    page.context.clear_cookies()
    page.get_by_label("Name or number").fill("resume")
    expect(page.get_by_role("alert").filter(has_text="You are logged out")).to_be_visible()
    notice = page.get_by_role("alert").filter(has_text="The filter has not been applied")
    expect(notice).to_be_visible()
    expect(notice).not_to_contain_text("tries again", use_inner_text=True)
    assert (names(page), page.url.partition("?")[2]) == (before, "")
    complaints.clear()


def test_a_filter_that_is_wrong_says_so_as_one_types(page: Page, scene: Scene, complaints: list[str]) -> None:
    open_list(page)
    page.get_by_label("Name or number").fill("/(/")
    expect(page.get_by_role("alert").filter(has_text="The filter was not applied")).to_be_visible()
    page.get_by_label("Name or number").fill("resume")
    expect(page.locator("#jobs .job-name a")).to_have_text(["digits-resume"])
    expect(page.get_by_role("alert").filter(has_text="The filter was not applied")).to_be_hidden()
    complaints.clear()


def test_no_column_that_shows_by_itself_is_cut_off(page: Page, scene: Scene) -> None:
    for job in (scene.first, scene.waiting):
        change_tags(job.pk, parsed_tag_change(add=["baseline", "sweep-2026-11", "third"]), "alice")
    open_list(page)
    row = page.locator(f"#job-{scene.first.pk}")
    expect(row.get_by_role("link", name="All tags: baseline, sweep-2026-11, third")).to_have_text("+2")
    expect(row.get_by_role("link", name="sweep-2026-11", exact=True)).to_be_hidden()
    for cells in ("#jobs", f"#job-{scene.first.pk} .row-tags"):
        assert page.locator(cells).evaluate("each => each.scrollWidth <= each.parentElement.clientWidth"), cells


def test_twenty_five_jobs_fit_into_a_window_and_all_that_fit_are_chosen(page: Page, scene: Scene) -> None:
    JobFactory.create_batch(
        60, owner=scene.alice, model=scene.model, dataset=scene.dataset, instance_group=scene.first.instance_group,
        state=JobState.PENDING, name="sweep", reason_params=scene.waiting.reason_params,
    )  # fmt: skip
    open_list(page)
    expect(page.locator("#states")).to_contain_text("All")
    box = page.locator("#jobs tbody tr").nth(24).bounding_box()
    assert box
    assert box["height"] <= 31
    assert box["y"] + box["height"] <= 900
    assert page.evaluate(
        "document.querySelector('.table-wrap').scrollWidth <= document.querySelector('.table-wrap').clientWidth"
    )

    open_list(page, "?search=sweep")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Select all 60 matching").click()
    expect(page.locator("#bulk-count")).to_contain_text("All 60 matching trainings are selected")
    page.get_by_role("button", name="Stop trainings").click()
    page.get_by_role("dialog", name="Stop 60 trainings?").get_by_role("button", name="Stop 60 trainings").click()
    expect(page.get_by_text("60 trainings being stopped.")).to_be_visible()
    assert Job.objects.filter(name="sweep", state=JobState.CANCELLED).count() == 60


def test_stops_many_at_once_and_says_what_is_lost(page: Page, scene: Scene) -> None:
    open_list(page)
    page.get_by_label("Select all on this page").check()
    expect(page.locator("#bulk-count")).to_contain_text("5 trainings selected")
    page.get_by_label("Select digits-baseline").uncheck()
    cancel(scene.waiting.pk, "alice")  # meanwhile, elsewhere
    page.get_by_role("button", name="Stop trainings").click()
    dialog = page.get_by_role("dialog", name="Stop 2 trainings?")
    expect(dialog).to_contain_text("“T1 digits-cnn” at step 820 (820 steps lost because it has no checkpoint)")
    expect(dialog).to_contain_text("2 chosen trainings have already ended.")
    dialog.get_by_role("button", name="Keep training").click()
    assert Job.objects.get(pk=scene.first.pk).state == JobState.RUNNING

    page.get_by_role("button", name="Stop trainings").click()
    dialog.get_by_role("button", name="Stop 2 trainings").click()

    expect(page.get_by_text("being stopped.")).to_be_visible()
    expect(page.locator("#refused")).to_contain_text("“digits-resume”")
    for job in (scene.first, scene.second):
        row = page.locator(f'tr[data-job="{job.pk}"]')
        expect(row.locator(".state-word")).to_have_text("Cancelling")
    expect(page.locator("#bulk")).to_be_hidden()


def test_chooses_by_keyboard_and_sets_the_priority(page: Page, scene: Scene) -> None:
    open_list(page, "?sort=name&state=active")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("k")
    expect(page.locator("#bulk-count")).to_contain_text("2 trainings selected")
    page.get_by_role("spinbutton", name="Priority").fill("6500")
    page.get_by_role("button", name="Update Priority", exact=True).click()
    page.get_by_role("button", name="Set the priority of 2 trainings").click()

    expect(page.get_by_text("2 trainings now have the priority 6500.")).to_be_visible()
    chosen = Job.objects.filter(priority=6500).values_list("name", flat=True)
    assert set(chosen) == {"digits-wide", "T1 digits-cnn"}
    page.locator("#jobs tr.is-current a").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("digits-wide")


def test_a_priority_that_many_were_given_is_taken_back(page: Page, scene: Scene) -> None:
    open_list(page)
    for name in ("T1 digits-cnn", "T2 digits-cnn"):
        page.get_by_label(f"Select {name}").check()
    page.get_by_role("spinbutton", name="Priority").fill("6500")
    page.get_by_role("button", name="Update Priority", exact=True).click()
    page.get_by_role("button", name="Set the priority of 2 trainings").click()
    expect(page.get_by_text("2 trainings now have the priority 6500.")).to_be_visible()
    change_job(scene.second.pk, JobChange(priority=100), "carol")

    page.get_by_role("button", name="Undo").click()

    expect(page.get_by_text("1 training has its former priority again.")).to_be_visible()
    expect(page.locator("#refused")).to_contain_text("1 training not changed back:")
    expect(page.locator("#refused")).to_contain_text(
        "“T2 digits-cnn”: The value has been changed again by carol, to 100: edit it instead of undoing."
    )
    for job, priority in ((scene.first, "5000"), (scene.second, "100")):
        expect(page.locator(f'tr[data-job="{job.pk}"] [data-field=priority]')).to_have_text(priority)


def test_what_was_chosen_stays_chosen_when_rows_come(page: Page, scene: Scene) -> None:
    open_list(page)
    page.get_by_label("Select T1 digits-cnn").check()
    submitted(scene, "newcomer")

    expect(page.locator("#jobs .job-name a").first).to_have_text("newcomer")
    expect(page.get_by_label("Select T1 digits-cnn")).to_be_checked()
    expect(page.get_by_label("Select newcomer")).not_to_be_checked()
    expect(page.locator("#bulk-count")).to_contain_text("1 training selected")


def test_compares_what_was_chosen(page: Page, scene: Scene) -> None:
    open_list(page)
    page.get_by_label("Select T1 digits-cnn").check()
    expect(page.get_by_role("button", name="Compare")).to_be_disabled()
    page.get_by_label("Select T2 digits-cnn").check()
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Compare trainings")
    drawn = "document.querySelector('[data-chart=loss] .chart-canvas').data"
    last = f"{drawn}?.find(({{ meta }}) => meta.job === {scene.first.pk})?.x.at(-1)"
    page.wait_for_function(f"() => {last} === 820")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function(f"() => {last} < 60")
    page.get_by_role("button", name="Table", exact=True).first.click()
    expect(page.locator(".chart-table tbody tr").first).to_be_visible()

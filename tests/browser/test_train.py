"""Start a training, and change one, as a person does it: with what would happen said beforehand, and undone after."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from core.roles import viewers
from insights.previews import preview_change
from jobs.actions import JobChange
from jobs.models import Job, JobEvent
from studies.models import Study
from tests.factories import RegisteredModelVersionFactory
from tests.scene import Scene
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def test_train_with_a_preview(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    panel = page.get_by_role("complementary", name="What will happen")
    expect(page.get_by_label("Name of the training")).to_have_value(re.compile(r"digits-cnn-\d{14}"))
    expect(panel.locator("[data-field=gpus]")).to_have_text(re.compile(r"\d+ GPUs?"))
    expect(panel.locator("[data-field=others]")).to_have_text("T2 digits-cnn shrinks from 4 to 3 GPUs.")

    page.get_by_label("At most").fill("99")
    beside = page.locator("#id_max_slots_error")
    expect(beside).to_have_text("sig-elastic has 8 GPUs: request at most 8, not 99.")
    expect(panel.locator("[data-errors]")).to_contain_text("At most: sig-elastic has 8 GPUs")
    expect(page.get_by_label("At most")).to_have_value("99")
    page.get_by_label("At most").fill("4")
    expect(beside).to_be_empty()

    page.get_by_label("epochs").fill("many")
    expect(panel.locator("[data-errors]")).to_contain_text("epochs must be a number, such as 20")
    page.get_by_role("button", name="Start training").click()
    expect(page.get_by_label("epochs")).to_have_value("many")
    page.get_by_label("epochs").fill("3")
    page.get_by_role("spinbutton", name="Priority").fill("9999")
    expect(panel.locator("[data-field=why]")).to_contain_text("9999")
    page.get_by_role("button", name="Start training").click()

    page.get_by_role("heading", level=1, name=re.compile("digits-cnn-")).wait_for()
    job = Job.objects.latest("pk")
    assert (job.priority, job.max_slots, job.parameters) == (9999, 4, {"epochs": 3})


def test_the_fields_are_one_column_in_three_headed_groups_with_the_preview_beside(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    groups = [page.get_by_role("group", name=name) for name in ("Code and data", "GPUs", "Name and start")]
    boxes = [box for group in groups if (box := group.bounding_box())]
    assert len({(box["x"], box["width"]) for box in boxes}) == 1
    for above, below in pairwise(boxes):
        assert above["y"] + above["height"] < below["y"]
    panel = page.get_by_role("complementary", name="What will happen").bounding_box()
    assert panel
    assert (panel["x"] > boxes[0]["x"] + boxes[0]["width"], abs(panel["y"] - boxes[0]["y"]) < 10) == (True, True)


def test_a_list_of_values_is_a_study(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    panel = page.get_by_role("complementary", name="What will happen")
    metric = page.get_by_label("Metric")
    expect(metric).to_be_hidden()
    page.get_by_label("epochs").fill("1, 2, 4")
    expect(panel.locator("[data-field=sweep]")).to_contain_text("3 trainings, one for each combination of values")
    expect(metric).to_be_visible()
    metric.fill("")
    page.get_by_role("button", name="Start training").click()
    expect(page.locator("#id_metric_error")).to_contain_text("Fill in this field.")
    expect(page.get_by_label("epochs")).to_have_value("1, 2, 4")
    page.get_by_label("Metric").fill("test_accuracy")
    page.get_by_label("Goal").select_option("maximize")
    page.get_by_label("Name of the training").fill("sweep")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="sweep").wait_for()
    study = Study.objects.get(name="sweep")
    assert (study.space, study.metric, study.goal) == ({"epochs": [1, 2, 4]}, "test_accuracy", "maximize")


def test_requirements_that_cannot_be_used_are_skipped_if_the_user_says_so(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    skip = page.get_by_label("Skip unusable requirements")
    expect(skip).to_be_hidden()
    page.get_by_text("Requirements, other parameters, variables").click()
    page.get_by_label("Requirements", exact=False).first.fill("--pre\npackaging\n")
    panel = page.get_by_role("complementary", name="What will happen")
    expect(panel.locator("[data-errors]")).to_contain_text("line 1, '--pre': this option of pip is not supported")
    expect(skip).to_be_visible()
    skip.check()
    expect(panel.locator("[data-field=skipped]")).to_contain_text("Skipped lines of the requirements: line 1")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name=re.compile("digits-cnn-")).wait_for()
    assert Job.objects.latest("pk").requirements == "packaging"


#: Script that holds back the form's requests, in order: `answers[0](told)` answers the first, unless it was aborted.
HOLD = """
    const { fetch } = window;
    window.answers = [];
    window.fetch = (url, options) => String(url).endsWith("/new/preview/")
        ? new Promise((resolve, reject) => {
            options.signal.addEventListener("abort", () => reject(options.signal.reason));
            answers.push((told) => resolve(new Response(JSON.stringify(told))));
        })
        : fetch(url, options);
"""


def test_an_answer_about_what_was_filled_in_before_is_not_shown(page: Page, scene: Scene) -> None:
    page.add_init_script(HOLD)
    page.goto("/jobs/new/")
    wait_until(lambda: page.evaluate("answers.length") == 1)
    page.get_by_label("Name of the training").fill("second")
    page.evaluate("answers[0]({ errors: { name: ['There is one of that name.'] }, preview: null, awaited: [] })")
    wait_until(lambda: page.evaluate("answers.length") == 2)

    expect(page.locator("#id_name_error")).to_have_count(0)
    page.evaluate("answers[1]({ errors: { name: ['That is no name.'] }, preview: null, awaited: [] })")
    expect(page.locator("#id_name_error")).to_have_text("That is no name.")


def test_nothing_is_wrong_before_anything_is_filled_in(page: Page, scene: Scene) -> None:
    RegisteredModelVersionFactory(model__owner=scene.alice)
    page.goto("/jobs/new/")
    panel = page.get_by_role("complementary", name="What will happen")
    expect(panel.locator("[data-field=gpus-words]")).to_have_text("Choose a model to see what will happen.")
    expect(panel.locator("[data-errors]")).to_be_empty()
    expect(panel.locator("[data-field=exactness]")).to_be_empty()


def test_weights_are_uploaded_and_picked(page: Page, scene: Scene, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1000, 1000)}, tmp_path / "mine <b>.pth")
    (tmp_path / "notes.odt").write_text("no weights")
    page.goto("/jobs/new/")
    page.get_by_label("Or upload weights").set_input_files(tmp_path / "notes.odt")
    expect(page.locator("#weights [role=alert]")).to_contain_text("A file of this kind is not accepted")
    page.get_by_label("Or upload weights").set_input_files(tmp_path / "mine <b>.pth")
    expect(page.get_by_label("Start from").locator("option:checked")).to_have_text("mine <b>.pth")
    expect(page.locator("#upload")).to_be_hidden()

    page.get_by_label("At most").fill("")
    page.get_by_role("button", name="Start training").click()
    expect(page.locator("#id_max_slots_error")).to_be_visible()
    expect(page.get_by_label("Start from").locator("option:checked")).to_have_text("mine <b>.pth")
    page.get_by_label("At most").fill("2")
    page.get_by_role("button", name="Start training").click()

    page.get_by_role("heading", level=1, name=re.compile("digits-cnn-")).wait_for()
    expect(page.get_by_text("the uploaded file mine <b>.pth")).to_have_count(1)
    assert Job.objects.latest("pk").starts_from == Job.StartsFrom.WEIGHTS


def test_another_model_asks_for_its_own_parameters_and_leaves_what_was_typed(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    name = page.get_by_label("Name of the training")
    name.fill("mine")
    expect(page.get_by_label("epochs")).to_have_value("20")
    page.get_by_label("Model").select_option(label="Pick a model")
    expect(page.get_by_label("epochs")).to_have_count(0)
    page.get_by_label("Model").select_option(label="digits-cnn")
    expect(page.get_by_label("epochs")).to_have_value("20")
    expect(name).to_have_value("mine")


def test_a_priority_is_changed_with_a_preview_and_back(page: Page, scene: Scene) -> None:
    job = scene.first
    foreseen = preview_change(job, JobChange(priority=10_000), scene.alice)
    page.goto(f"/jobs/{job.pk}/")
    change = page.get_by_role("region", name="Change")
    expect(change.locator("[data-foreseen]")).to_be_hidden()
    change.get_by_role("spinbutton", name="Priority").fill("10000")
    expect(change.locator("[data-field=others]")).to_have_text(foreseen["others_text"])
    expect(change.locator("[data-field=gpus]")).to_have_text(re.compile(rf"^{foreseen['target_slots']} GPU"))
    change.get_by_role("button", name="Save changes").click()

    expect(page.locator("[data-notice]")).to_contain_text("The scheduler applies the change")
    expect(page.get_by_role("region", name="Change")).to_contain_text("alice changed the priority from 5000 to 10000")
    page.locator("[data-notice]").get_by_role("button", name="Undo").click()
    expect(page.locator("[data-notice]")).to_contain_text("was undone")
    expect(page.get_by_role("spinbutton", name="Priority")).to_have_value("5000")
    job.refresh_from_db()
    assert job.priority == 5000
    assert JobEvent.objects.filter(job=job).latest("seq").text.startswith("alice changed the priority")


def test_what_was_changed_again_meanwhile_stays(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.get_by_label("At most").fill("6")
    page.get_by_role("button", name="Save changes").click()
    undo = page.get_by_role("button", name="Undo: at most 8 GPUs")
    undo.wait_for()
    other = page.context.new_page()
    other.goto(f"/jobs/{scene.first.pk}/")
    other.get_by_label("At most").fill("2")
    other.get_by_role("button", name="Save changes").click()
    other.locator("[data-notice]").wait_for()
    undo.click()
    expect(page.get_by_role("alert").first).to_contain_text("changed again by alice, to 2")
    expect(page.get_by_label("At most")).to_have_value("2")


def test_somebody_who_became_a_viewer_is_told_so_by_the_preview(
    page: Page, scene: Scene, complaints: list[str]
) -> None:
    page.goto("/jobs/new/")
    panel = page.get_by_role("complementary", name="What will happen")
    expect(panel.locator("[data-field=gpus]")).to_have_text(re.compile(r"\d+ GPUs?"))
    scene.alice.groups.add(viewers())
    page.get_by_label("At most").fill("4")
    expect(panel.locator("[data-field=gpus-words]")).to_contain_text("Your role is viewer")
    page.goto("/jobs/new/")
    expect(page.locator("#main")).to_contain_text("Your role is viewer, which can see everything but change nothing")
    expect(page.get_by_role("button", name="Start training")).to_have_count(0)
    complaints.clear()  # the browser's own, about 403

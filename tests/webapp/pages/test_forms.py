"""Forms call one action, show its errors beside their fields, and keep what was typed."""

import io
import zipfile
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from datasets.models import Dataset
from jobs.control.checkpoints import stop_words
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, Job
from jobs.permissions import refusals_by_state
from jobs.states import JobState
from tests.factories import RegisteredModelVersionFactory
from tests.html import html_of
from tests.scene import Scene


def test_train_submits_what_was_typed(training: dict, alices: Client) -> None:
    parameters = "epochs = 3\nlearning_rate = 0.05\nlabel = a = b\nfast = true"
    response = alices.post("/jobs/new/", {**training, "parameters": parameters})

    job = Job.objects.get(name="mine")
    assert response.headers["Location"] == f"/jobs/{job.pk}/"
    assert job.parameters == {"epochs": 3, "learning_rate": 0.05, "label": "a = b", "fast": True}
    assert (job.owner.username, job.state, job.max_slots) == ("alice", JobState.PENDING, 8)


def test_a_jobs_page_says_what_its_exactness_guarantees(training: dict, alices: Client) -> None:
    alices.post("/jobs/new/", {**training, "exactness": "bitwise", "virtual_ranks": "12"})
    alices.post("/jobs/new/", {**training, "name": "other"})

    exact, summed = (html_of(alices.get(f"/jobs/{Job.objects.get(name=name).pk}/")) for name in ("mine", "other"))
    assert "<dd>12</dd>" in exact
    assert "bitwise equal to those of an uninterrupted run" in exact
    assert "except for the rounding of sums" in summed
    assert "Virtual ranks" not in summed


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("max_slots", "9", "request at most 8, not 9"),
        ("min_slots", "0", "must be a whole number"),
        ("max_slots", "-1", "must be a whole number"),
        ("priority", "10001", "from 1 to 10,000"),
        ("name", "a\u202eb", "control or invisible"),
        ("name", "x" * 300, "300 characters"),
        ("parameters", "epochs", "Line 1 is not a parameter"),
        ("parameters", "a = 1\na = 2", "Line 2 sets a a second time"),
        ("model", "99999", "This choice is not offered"),
        ("exactness", "about", "This choice is not offered"),
        ("virtual_ranks", "8", "Only exactness"),
        ("max_slots", "", "Fill in this field"),
    ],
)
def test_train_says_what_does_not_fit_and_creates_nothing(
    training: dict, alices: Client, field: str, value: str, sentence: str
) -> None:
    before = Job.objects.count()

    response = alices.post("/jobs/new/", {**training, field: value})

    content = html_of(response)
    assert sentence in content
    assert f'id="id_{field}_error"' in content
    assert Job.objects.count() == before
    if field != "name":
        assert 'value="mine"' in content


def test_train_fills_in_what_is_usual(scene: Scene, alices: Client) -> None:
    filled = alices.get("/jobs/new/").context["form"]

    assert (filled["model"].value(), filled["dataset"].value()) == (str(scene.model.model_id), scene.dataset.dataset_id)
    assert (filled["max_slots"].value(), filled["priority"].value()) == (8, 5000)


def test_train_proposes_no_model_where_there_are_several(scene: Scene, alices: Client) -> None:
    other = RegisteredModelVersionFactory(default_dataset="gone")

    filled = alices.get("/jobs/new/").context["form"]
    chosen = alices.get("/jobs/new/", {"model": other.model_id}).context["form"]

    assert not filled["model"].value()
    assert (chosen["model"].value(), chosen["dataset"].value()) == (str(other.model_id), None)


def test_change_asks_the_actions(scene: Scene, alices: Client) -> None:
    response = alices.post(f"/jobs/{scene.first.pk}/change/", {"priority": 9000, "max_slots": 6})

    assert response.status_code == 302
    scene.first.refresh_from_db()
    assert (scene.first.priority, scene.first.max_slots) == (9000, 6)


def test_a_change_that_does_not_fit_changes_nothing_at_all(scene: Scene, alices: Client) -> None:
    response = alices.post(f"/jobs/{scene.first.pk}/change/", {"priority": 9000, "max_slots": 99})

    assert "request at most 8, not 99" in html_of(response)
    assert 'value="99"' in html_of(response)
    scene.first.refresh_from_db()
    assert (scene.first.priority, scene.first.max_slots) == (5000, 8)


@pytest.mark.parametrize(
    ("action", "job", "state"),
    [
        ("cancel", "first", JobState.CANCELLING),
        ("cancel", "waiting", JobState.CANCELLED),
        ("suspend", "waiting", JobState.SUSPENDED),
        ("suspend", "first", JobState.PREEMPTING),
    ],
)
def test_buttons_of_a_job_do_what_they_say(scene: Scene, alices: Client, action: str, job: str, state: str) -> None:
    row = getattr(scene, job)

    response = alices.post(f"/jobs/{row.pk}/{action}/", follow=True)

    row.refresh_from_db()
    assert row.state == state
    assert response.status_code == 200


def test_what_came_too_late_is_said(scene: Scene, alices: Client) -> None:
    response = alices.post(f"/jobs/{scene.done.pk}/cancel/", follow=True)

    assert refusals_by_state()["SUCCEEDED"]["cancel"] in html_of(response)


def test_a_clone_whose_code_is_gone_says_why_it_cannot_be_made(
    scene: Scene, alices: Client, training: dict[str, object]
) -> None:
    before = Job.objects.count()
    response = alices.post("/jobs/new/", {**training, "clone": scene.done.pk})

    assert "cannot be copied" in html_of(response)
    assert Job.objects.count() == before


@pytest.mark.parametrize("path", ["cancel", "suspend", "resume", "change"])
def test_nothing_changes_by_following_a_link(scene: Scene, alices: Client, path: str) -> None:
    assert alices.get(f"/jobs/{scene.first.pk}/{path}/").status_code == 405


def test_changes_need_the_csrf_token(scene: Scene) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(scene.alice)

    assert client.post(f"/jobs/{scene.first.pk}/cancel/").status_code == 403


def test_registers_a_dataset_by_path(alices: Client, home: Path) -> None:
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "points"
    folder.mkdir(exist_ok=True)
    (folder / "points.csv").write_text("1,2\n")

    response = alices.post("/datasets/new/", {"name": "points", "kind": "csv", "training": str(folder)}, follow=True)

    dataset = Dataset.objects.get(name="points")
    assert (dataset.owner.username, dataset.versions.get().file_count) == ("alice", 1)
    assert str(folder) in html_of(response)


def test_a_name_that_belongs_to_somebody_else_is_refused(scene: Scene, bobs: Client) -> None:
    content = html_of(bobs.post("/datasets/new/", {"name": "digits", "kind": "any", "training": "digits"}))

    assert "This name is taken." in content


@pytest.mark.parametrize("engine", ["fixed", "single"])
def test_what_a_stop_means_is_said_before(scene: Scene, alices: Client, engine: str) -> None:
    type(scene.model).objects.filter(pk=scene.model.pk).update(engine=engine)
    choices = alices.get("/jobs/new/").context["choices"]
    assert choices["models"][str(scene.model.model_id)]["engine"] == engine
    [group] = choices["groups"].values()
    assert (
        "it starts again; what it left" in group["stopping"][choices["models"][str(scene.model.model_id)]["continues"]]
    )
    page = html_of(alices.get(f"/jobs/{scene.first.pk}/"))
    assert stop_words(scene.first.instance_group) in page
    assert "The output of the script contains no curve yet" in page


def test_an_elastic_training_is_not_told_about_signals(scene: Scene, alices: Client) -> None:
    assert "SIGTERM" not in html_of(alices.get(f"/jobs/{scene.first.pk}/"))


def left_behind(scene: Scene) -> Checkpoint:
    """A checkpoint of alice's first training, with its files."""
    folder = job_folder(scene.first).path / "attempt-1" / "checkpoint" / "step-7"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state.safetensors", "state.json"):
        (folder / name).write_text(name)
    return Checkpoint.objects.create(
        job=scene.first,
        attempt=1,
        step=7,
        epoch=0,
        path="attempt-1/checkpoint/step-7",
        size_bytes=17,
        sha256="0" * 64,
        created_at=scene.first.submitted_at,
    )


def test_train_starts_from_what_an_earlier_training_left(training: dict, scene: Scene, alices: Client) -> None:
    point = left_behind(scene)
    page = html_of(alices.get(f"/jobs/new/?start_from=checkpoint-{point.pk}"))
    assert f'value="checkpoint-{point.pk}" selected' in page
    assert f'value="weights-{scene.first.pk}"' in page

    options = {"checkpoint_seconds": "0", "checkpoints_kept": "5"}
    alices.post("/jobs/new/", {**training, "name": "more", "start_from": f"checkpoint-{point.pk}", **options})
    alices.post("/jobs/new/", {**training, "name": "anew", "start_from": f"weights-{scene.first.pk}"})
    alices.post("/jobs/new/", {**training, "name": "from 7", "start_from": f"checkpointweights-{point.pk}"})
    more, anew, seven = (Job.objects.get(name=name) for name in ("more", "anew", "from 7"))
    assert (more.starts_from, more.initial_checkpoint) == ("checkpoint", point)
    assert (more.checkpoint_seconds, more.checkpoints_kept) == (0, 5)
    assert (anew.starts_from, anew.initial_job) == ("weights", scene.first)
    assert (seven.starts_from, seven.initial_checkpoint) == ("weights", point)
    shown = [" ".join(html_of(alices.get(f"/jobs/{job.pk}/")).split()) for job in (more, anew, seven)]
    assert f'step 7 of <a href="/jobs/{scene.first.pk}/">' in shown[0]
    assert f'Initial weights</dt><dd><a href="/jobs/{scene.first.pk}/">' in shown[1]
    assert f'Initial weights</dt><dd>step 7 of <a href="/jobs/{scene.first.pk}/">' in shown[2]


def test_train_does_not_offer_what_others_left(training: dict, scene: Scene, bobs: Client) -> None:
    point = left_behind(scene)
    assert f"checkpoint-{point.pk}" not in html_of(bobs.get("/jobs/new/"))
    page = html_of(bobs.post("/jobs/new/", {**training, "start_from": f"checkpoint-{point.pk}"}))
    assert "This choice is not offered, or no longer" in page


def test_a_checkpoint_can_be_downloaded_by_who_may_see_its_job(scene: Scene, alices: Client, bobs: Client) -> None:
    point = left_behind(scene)
    address = f"/api/v1/jobs/{scene.first.pk}/checkpoints/{point.pk}/download/"
    response = alices.get(address)
    content = b"".join(response.streaming_content)  # type: ignore[arg-type]
    assert sorted(zipfile.ZipFile(io.BytesIO(content)).namelist()) == ["step-7/state.json", "step-7/state.safetensors"]
    assert bobs.get(address).status_code == 404

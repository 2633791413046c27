"""Validate trained model: who may, what is shown of it, and by REST the same."""

from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.files.job_folder import job_folder
from jobs.models import Job, Validation
from jobs.states import JobState
from tests.factories import JobFactory, set_job
from tests.scene import CODE, Scene
from tests.webapp.pages.test_pages import queries_of

RESULT = {"split": "held-out", "samples": 4, "loss": 0.51239, "accuracy": 75.0, "confusion": [[2, 0], [1, 1]]}


@pytest.fixture
def left(scene: Scene) -> Job:
    """The finished training's code and weights on disk."""
    folder = job_folder(scene.done)
    folder.code.mkdir(parents=True)
    (folder.code / "main.py").write_text(CODE)
    weights = folder.attempt(1) / "model" / "train"
    weights.mkdir(parents=True)
    (weights / "model_epoch_final.pth").write_bytes(b"weights")
    set_job(scene.done, completed_attempt=1)
    return scene.done


def _measured(scene: Scene, state: JobState = JobState.SUCCEEDED, **result: object) -> Validation:
    run = JobFactory(
        owner=scene.alice,
        model=scene.model,
        dataset=scene.dataset,
        instance_group=scene.done.instance_group,
        name="Validate digits-baseline",
        max_slots=1,
        state=state,
        finished_at=timezone.now(),
        error={"kind": "RuntimeError", "message": "no such samples"} if state == JobState.FAILED else {},
    )
    return Validation.objects.create(job=run, trained=scene.done, result=result)


def _asked(scene: Scene) -> dict[str, object]:
    return {"split": "testing", "dataset": "", "instance_group": scene.done.instance_group_id, "priority": 4000}


def test_a_finished_training_offers_it_and_queues_a_run(scene: Scene, left: Job, alices: Client) -> None:
    page = alices.get(f"/jobs/{left.pk}/").content.decode()
    assert f'href="/jobs/{left.pk}/validate/"' in page
    page = alices.post(f"/jobs/{left.pk}/validate/", _asked(scene), follow=True).content.decode()
    validation = Validation.objects.get()
    assert (validation.trained, validation.split, validation.job.priority) == (left, "testing", 4000)
    assert validation.job.state == JobState.PENDING
    assert "The validation runs on one GPU" in page


def test_why_not_is_said_in_place_of_the_form(scene: Scene, left: Job, alices: Client) -> None:
    (job_folder(left).code / "main.py").write_text("from tidepool.torch import Session\n")
    for path in ("", "validate/"):
        page = alices.get(f"/jobs/{left.pk}/{path}").content.decode()
        assert "add session.validate_on(dataset, loss)" in page
        assert '<button class="btn btn-primary" type="submit">Validate' not in page
    assert "add session.validate_on" in alices.post(f"/jobs/{left.pk}/validate/", _asked(scene)).content.decode()
    assert not Validation.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"split": "training"}, "split"), ({"priority": "0"}, "priority"), ({"instance_group": "0"}, "instance_group")],
)
def test_what_does_not_fit_is_said(scene: Scene, left: Job, alices: Client, changes: dict, field: str) -> None:
    page = alices.post(f"/jobs/{left.pk}/validate/", _asked(scene) | changes).content.decode()
    assert f'id="id_{field}_error"' in page
    assert not Validation.objects.exists()


def test_the_result_is_on_the_runs_and_the_models_page(scene: Scene, alices: Client, bobs: Client) -> None:
    validation = _measured(scene, **RESULT)
    model = f"/models/{scene.model.model_id}/"
    for path in (f"/jobs/{validation.job_id}/", f"/jobs/{scene.done.pk}/", model):
        page = alices.get(path).content.decode()
        for words in ("75.0 %", "0.5124", "held-out", '<table class="table confusion">', "50.0 %"):
            assert words in page, path
        assert ("<div hidden>" in page) == (path == f"/jobs/{validation.job_id}/"), "what measures has no curves"
    assert "digits-baseline" not in bobs.get(model).content.decode()
    assert bobs.get(f"/jobs/{scene.done.pk}/validate/").status_code == 404
    assert bobs.post(f"/jobs/{scene.done.pk}/validate/", _asked(scene)).status_code == 404


def test_a_run_without_a_result_says_why(scene: Scene, alices: Client) -> None:
    failed = _measured(scene, JobState.FAILED)
    assert "no such samples" in alices.get(f"/jobs/{failed.job_id}/").content.decode()
    empty = _measured(scene)
    assert "succeeded without a valid result" in alices.get(f"/jobs/{empty.job_id}/").content.decode()


def test_more_results_cost_no_more_queries(scene: Scene, alices: Client) -> None:
    path = f"/models/{scene.model.model_id}/"
    _measured(scene, **RESULT)
    before = queries_of(alices, path)
    for _ in range(5):
        _measured(scene, **RESULT)
    assert queries_of(alices, path) == before <= 17


def _api(client: Client) -> APIClient:
    api = APIClient()
    api.cookies = client.cookies
    return api


def test_rest_asks_and_tells(scene: Scene, left: Job, alices: Client, bobs: Client) -> None:
    address = f"/api/v1/jobs/{left.pk}/validations/"
    asked = _api(alices).post(address, {"split": "testing"}, format="json").json()
    assert (asked["trained"], asked["asked_for"], asked["state"], asked["accuracy"]) == (
        left.pk,
        "testing",
        "PENDING",
        None,
    )
    validation = _measured(scene, **RESULT)
    newest = _api(alices).get(address).json()["results"][0]
    assert (newest["job"], newest["accuracy"], newest["confusion"]) == (validation.job_id, 75.0, [[2, 0], [1, 1]])
    assert newest["classes"][1] == {"label": 1, "samples": 2, "recall": 50.0, "precision": 100.0}
    for_model = "/api/v1/models/digits-cnn/validations/"
    assert len(_api(alices).get(for_model).json()["results"]) == 2
    assert _api(bobs).get(for_model).json()["results"] == []
    assert _api(bobs).get(address).status_code == 404
    assert _api(bobs).post(address, {}, format="json").status_code == 404


def test_trainings_of_a_model_by_rest(scene: Scene, alices: Client, bobs: Client) -> None:
    _measured(scene, **RESULT)
    address = "/api/v1/models/digits-cnn/trainings/"
    assert {job["name"] for job in _api(alices).get(address).json()["results"]} == {
        "T1 digits-cnn", "T2 digits-cnn", "digits-wide", "digits-baseline", "digits-resume",
    }  # fmt: skip
    assert [job["name"] for job in _api(bobs).get(address).json()["results"]] == ["bobs-secret"]


def test_a_validation_that_still_runs_is_refused(scene: Scene, alices: Client) -> None:
    answer = _api(alices).post(f"/api/v1/jobs/{scene.first.pk}/validations/", {}, format="json")
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        "The training is still running: validate it after its end, or stop it first.",
    )


def test_the_folder_of_another_job_is_not_needed(scene: Scene, home: Path, alices: Client) -> None:
    """Code that is gone is a reason, not a failure."""
    page = alices.get(f"/jobs/{scene.done.pk}/").content.decode()
    assert "Only scripts with a tidepool Session or a FabricModel can be validated" in page

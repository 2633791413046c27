"""A version of a model from a checkpoint: the training's code and parameters with its weights, which stay."""

import pytest
from django.test import Client
from rest_framework.test import APIClient

from core.errors import Conflict, UserError
from jobs.actions.checkpoints import change_kept
from jobs.actions.model_versions import make_version
from jobs.models import Checkpoint, Job, TrainedVersion
from models_registry.models import RegisteredModel
from tests.factories import UserFactory
from tests.jobs.actions.test_checkpoints import api, job, publish
from tests.scene import Scene

__all__ = ["api", "job"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def point(job: Job) -> Checkpoint:
    return publish(job, 600)


def test_it_has_the_code_the_parameters_and_the_weights(job: Job, point: Checkpoint, scene: Scene) -> None:
    made = make_version(point, scene.alice)
    version = made.version
    assert (str(version), version.model.owner) == (f"{job.model.model.name}-trained v1", scene.alice)
    assert (version.digest, version.entry_point, version.engine) == (
        job.model.digest,
        job.model.entry_point,
        job.model.engine,
    )
    assert version.parameters == {**job.model.parameters, **job.parameters}
    assert version.default_dataset == job.dataset_name
    assert Checkpoint.objects.get(pk=point.pk).kept
    assert job.model.model.versions.count() == RegisteredModel.objects.get(pk=job.model.model_id).versions.count()


def test_its_checkpoint_stays_as_long_as_it_is_there(point: Checkpoint, scene: Scene) -> None:
    made = make_version(point, scene.alice)
    point.refresh_from_db()
    with pytest.raises(Conflict, match="uses its weights"):
        change_kept(point, False, "alice")
    with pytest.raises(Conflict, match="already"):
        make_version(point, scene.alice)
    made.version.model.delete()
    assert change_kept(point, False, "alice") is not None
    assert not TrainedVersion.objects.exists()


def test_a_name_of_somebody_elses_model_is_refused_and_nothing_is_kept(
    job: Job, point: Checkpoint, scene: Scene, carol_model: RegisteredModel
) -> None:
    with pytest.raises(UserError):
        make_version(point, scene.alice, carol_model.name)
    assert not Checkpoint.objects.get(pk=point.pk).kept
    RegisteredModel.objects.filter(pk=carol_model.pk).update(name=f"{job.model.model.name}-trained")
    assert make_version(point, scene.alice).version.model.name == f"{job.model.model.name}-trained-alice"


@pytest.fixture
def carol_model(db: None) -> RegisteredModel:
    return RegisteredModel.objects.create(name="hers", owner=UserFactory())


def test_by_rest_and_on_the_pages(api: APIClient, job: Job, point: Checkpoint, scene: Scene) -> None:
    address = f"/api/v1/jobs/{job.pk}/checkpoints/{point.pk}/version/"
    made = api.post(address, {"name": "best"}, format="json")
    assert made.status_code == 201
    assert made.json().items() >= {"name": "best", "number": 1, "job": job.pk, "step": 600}.items()
    assert api.post(address, {"name": "best"}, format="json").status_code == 409
    assert api.post(address, {"name": "a/b"}, format="json").status_code == 400
    assert api.get(f"/api/v1/jobs/{job.pk}/checkpoints/").json()["results"][0]["versions"] == ["best v1"]
    assert api.get("/api/v1/checkpoints/?job=" + str(job.pk)).json()["results"][0]["versions"] == ["best v1"]

    client = Client()
    client.force_login(scene.alice)
    answer = client.post(f"/checkpoints/{point.pk}/version/", {"next": "/checkpoints/"}, follow=True)
    model = RegisteredModel.objects.get(name=f"{job.model.model.name}-trained")
    assert answer.redirect_chain == [(f"/models/{model.pk}/#versions", 302)]
    page = answer.content.decode()
    assert "has the weights of step 600" in page
    assert f"start_from=checkpointweights-{point.pk}" in page
    assert "best v1" in client.get("/checkpoints/").content.decode()
    assert "best v1" in client.get(f"/models/{job.model.model_id}/").content.decode(), "in its lineage"
    again = client.post(f"/checkpoints/{point.pk}/version/", {"next": "/checkpoints/"}, follow=True)
    assert again.redirect_chain == [("/checkpoints/", 302)]

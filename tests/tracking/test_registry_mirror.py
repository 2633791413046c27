"""Models in MLflow's registry and here: registered from a training, taken over into one, and the picture of both."""

from datetime import timedelta

import pytest
from django.utils import timezone

from core.models import Upload
from core.uploads import file_of
from jobs.files.job_folder import job_folder
from jobs.states import JobState
from tests.factories import (
    DatasetVersionFactory,
    InstanceGroupFactory,
    JobFactory,
    RegisteredModelVersionFactory,
    UserFactory,
    set_job,
)
from tests.html import html_of
from tracking.launch import artifact_root
from tracking.lineage import drawn
from tracking.mirror import Mirror
from tracking.models import ExperimentShare, ModelVersion, TrackedRun
from tracking.registry_actions import default_name
from tracking.upstream import MlflowServer

pytestmark = pytest.mark.django_db

WEIGHTS = "attempt-1/model/train/model_epoch_final.pth"


@pytest.fixture
def trained(mlflow, home):
    """A training that has left weights."""
    job = JobFactory()
    set_job(job, state=JobState.SUCCEEDED, attempt=1, completed_attempt=1, finished_at=timezone.now())
    path = job_folder(job).path / WEIGHTS
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    return job


@pytest.fixture
def owner(client, trained):
    client.force_login(trained.owner)
    return client


@pytest.fixture
def mirror(mlflow, monkeypatch):
    monkeypatch.setattr("tracking.registry_actions.MlflowServer", lambda **_: MlflowServer(mlflow.transport))
    return Mirror(MlflowServer(mlflow.transport))


def register(owner, job):
    return html_of(owner.post(f"/mlflow-registry/jobs/{job.pk}/register/", follow=True))


def registered(owner, mirror, job):
    register(owner, job)
    mirror.turn(timezone.now())
    return ModelVersion.objects.get(job=job)


def test_a_trained_model_becomes_a_version_whose_source_is_its_run(owner, mirror, mlflow, trained):
    version = registered(owner, mirror, trained)
    run = TrackedRun.objects.get(job=trained)
    place = f"{run.experiment_id}/{run.run_id}/artifacts/trained"
    told = {"name": default_name(trained), "version": "1", "run_id": run.run_id, "source": f"mlflow-artifacts:/{place}"}
    assert mlflow.versions == {(default_name(trained), 1): {**told, "aliases": []}}
    assert (artifact_root() / place / "weights.pth").read_bytes() == b"weights"
    assert str(version) in html_of(owner.get(f"/jobs/{trained.pk}/"))
    assert "already registered" in register(owner, trained)


def test_while_mlflow_is_away_it_is_asked_for_and_made_once_later(owner, mirror, mlflow, trained):
    mirror.turn(timezone.now())
    register(owner, trained)
    assert "is being registered" in html_of(owner.get(f"/jobs/{trained.pk}/"))
    mirror.turn(timezone.now())
    # Made, and not noted.
    ModelVersion.objects.update(number=None)
    mirror.turn(timezone.now())
    assert [version.number for version in ModelVersion.objects.all()] == [1]
    assert len(mlflow.versions) == 1


def test_what_cannot_be_registered_is_said(owner, mlflow, trained, settings):
    (job_folder(trained).path / WEIGHTS).unlink()
    assert "The training has no weights" in register(owner, trained)
    waiting = JobFactory(owner=trained.owner)
    assert "The training has not ended yet" in register(owner, waiting)
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    assert "This site has no MLflow" in register(owner, trained)
    assert not ModelVersion.objects.exists()


def test_what_is_registered_in_mlflow_appears_with_its_aliases_until_it_is_removed_there(
    owner, mirror, mlflow, trained
):
    now = timezone.now()
    mirror.turn(now)
    run = TrackedRun.objects.get(job=trained)
    mlflow.versions["theirs", 3] = {"name": "theirs", "version": "3", "run_id": run.run_id, "aliases": ["champion"]}
    mlflow.versions["others", 1] = {"name": "others", "version": "1", "run_id": "f" * 32, "aliases": []}
    mirror.turn(now + timedelta(minutes=1))
    page = html_of(owner.get(f"/models/{trained.model.model_id}/"))
    assert "theirs v3" in page
    assert "champion" in page
    assert "others" not in page
    mlflow.versions.clear()
    mirror.turn(now + timedelta(minutes=2))
    assert not ModelVersion.objects.exists()


def test_an_alias_is_one_versions_of_a_model(owner, mirror, mlflow, trained):
    version = registered(owner, mirror, trained)
    other = ModelVersion.objects.create(job=trained, name=version.name, number=9, aliases=["champion", "old"])
    owner.post(f"/mlflow-registry/versions/{version.pk}/alias/", {"alias": "champion"})
    assert mlflow.versions[version.name, 1]["aliases"] == ["champion"]
    assert list(ModelVersion.objects.order_by("number").values_list("aliases", flat=True)) == [["champion"], ["old"]]
    owner.post(f"/mlflow-registry/versions/{version.pk}/alias/", {"alias": "champion", "remove": "1"})
    assert mlflow.versions[version.name, 1]["aliases"] == []
    mlflow.is_away = True
    answer = owner.post(f"/mlflow-registry/versions/{other.pk}/alias/", {"alias": "new"}, follow=True)
    assert "nothing has changed" in html_of(answer)


def test_weights_are_taken_over_for_a_training_to_begin_with(owner, mirror, trained):
    version = registered(owner, mirror, trained)
    answer = owner.post(f"/mlflow-registry/versions/{version.pk}/take-over/")
    upload = Upload.objects.get()
    assert answer.headers["location"] == f"/jobs/new/?model={trained.model.model_id}&start_from=upload-{upload.pk}"
    assert (upload.owner, file_of(upload).read_bytes()) == (trained.owner, b"weights")


@pytest.mark.parametrize("source", ["", "mlflow-artifacts:/../../etc", "mlflow-artifacts:/999/a", "models:/other/1"])
def test_nothing_is_taken_from_elsewhere(owner, mirror, trained, source):
    version = registered(owner, mirror, trained)
    ModelVersion.objects.update(source=source)
    answer = owner.post(f"/mlflow-registry/versions/{version.pk}/take-over/", follow=True)
    assert "no state dictionary" in html_of(answer)
    assert not Upload.objects.exists()


def test_the_picture_leads_from_data_by_trainings_to_versions(client, settings):
    """Also where the site has no MLflow."""
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    code, data = RegisteredModelVersionFactory(), DatasetVersionFactory()
    first = JobFactory(model=code, dataset=data, name="first")
    set_job(first, final_metrics={"loss": 0.1, "test_accuracy": 0.953})
    JobFactory(owner=first.owner, model=code, dataset=data, name="second", initial_job=first)
    JobFactory(model=code, dataset=data, name="someone elses")
    client.force_login(first.owner)
    page = html_of(client.get(f"/models/{code.model_id}/"))
    shown = page[page.index('class="lineage"') :]
    assert shown.count(f'href="/datasets/{data.dataset_id}/"') == 1
    assert "test_accuracy 0.953" in shown
    assert f"training {first.pk}" in shown
    assert "someone elses" not in shown


def test_each_training_has_a_curve_to_its_dataset():
    data = DatasetVersionFactory()
    jobs = [JobFactory(dataset=data), JobFactory(dataset=None), JobFactory(dataset=data)]
    both, none = drawn(jobs, {jobs[0].pk: [ModelVersion(name="a", number=1)]})
    assert [step.job for step in both.steps] == [jobs[0], jobs[2]]
    assert both.curves == ["M0 44C24 44 24 22 48 22", "M0 44C24 44 24 66 48 66"]
    assert (none.dataset, none.height, len(both.steps[0].versions)) == (None, 44, 1)


def test_readers_are_those_of_the_groups_by_now(mlflow, mirror, owner, trained):
    group, member = InstanceGroupFactory(name="lab"), UserFactory(username="zoe")
    group.members.add(trained.owner, member)
    address, now = f"/mlflow-registry/models/{trained.model.model_id}/share/", timezone.now()
    owner.post(address, {"group": group.pk})
    assert "Stop sharing with lab" in html_of(owner.get(f"/models/{trained.model.model_id}/"))
    mirror.turn(now)
    experiment = TrackedRun.objects.get(job=trained).experiment_id
    assert mlflow.readers == {("zoe", experiment, "READ")}
    member.is_active = False
    member.save()
    mirror.turn(now + timedelta(minutes=1))
    assert mlflow.readers == set()
    refused = html_of(owner.post(address, {"group": InstanceGroupFactory().pk}, follow=True))
    assert "a member of" in refused
    owner.post(address, {"group": group.pk, "remove": "1"})
    assert not ExperimentShare.objects.exists()

"""Tests of trainings that run exactly what another one ran."""

import os
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from datasets.models import DatasetVersion
from jobs import actions
from jobs.actions.environments import EnvironmentSpec, change_environment, create_environment, delete_environment
from jobs.files.job_folder import job_folder
from jobs.models import Job
from tests.factories import DatasetVersionFactory, UserFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.queries.test_provenance import tell
from tests.stored_secrets import CANARY, own_secret
from workers.executor.environments.software import cluster_packages

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    made = submit(max_slots=1, requirements="timm>=1", seed=7)
    cluster.turn()
    return Job.objects.get(pk=made.pk)


def packages(**changes: str) -> dict[str, str]:
    return {**cluster_packages()[0], **changes}


def told(job: Job, name: str) -> list[Any]:
    return [event.detail for event in job.events.all() if event.detail.get("message") == name]


def test_has_the_versions_the_code_the_data_and_the_seed(cluster: Cluster, job: Job, alice: User) -> None:
    tell(cluster, job, packages=packages(timm="1.0.9"), origins=cluster_packages()[1])
    assert isinstance(job.dataset, DatasetVersion)
    newer = DatasetVersionFactory(dataset=job.dataset.dataset, number=job.dataset.number + 1)
    copy = actions.run_again_exactly(job, alice)
    lines = copy.requirements.splitlines()
    assert "timm==1.0.9" in lines
    assert f"psutil=={packages()['psutil']}" in lines
    assert (copy.seed, copy.dataset, copy.model) == (7, job.dataset, job.model)
    assert copy.dataset != newer
    [event] = told(copy, "runs_exactly")
    assert (event["job"], event["attempt"]) == (job.pk, 1)


def test_a_folder_of_the_hosts_is_had_by_its_environment(
    cluster: Cluster, submit: Submit, alice: User, carol: User
) -> None:
    conda = create_environment(EnvironmentSpec("conda", folder="/opt/envs/conda"), carol)
    made = submit(max_slots=1, named_environment="conda")
    cluster.turn()
    job = Job.objects.get(pk=made.pk)
    tell(cluster, job, packages={"timm": "1.0"}, origins={})
    copy = actions.run_again_exactly(job, alice)
    assert (copy.named_environment, copy.requirements) == ("conda", "--folder /opt/envs/conda")
    change_environment(conda.pk, {"folder": "/opt/envs/newer"}, carol)
    with pytest.raises(actions.InvalidSubmission) as refused:
        actions.run_again_exactly(job, alice)
    assert refused.value.fields["exactly"][0] == "Environment 'conda' is no longer /opt/envs/conda."
    delete_environment(conda.pk, carol)
    with pytest.raises(actions.InvalidSubmission) as refused:
        actions.run_again_exactly(job, alice)
    assert "'conda' not found" in refused.value.fields["named_environment"][0]


def test_needs_versions_that_were_recorded(job: Job, alice: User, client: Client) -> None:
    client.force_login(alice)
    answer = client.post(f"/api/v1/jobs/{job.pk}/clone/", {"exactly": True}, content_type="application/json")
    assert answer.status_code == 409
    assert "has not started" in answer.content.decode()
    assert "Run again exactly" not in client.get(f"/jobs/{job.pk}/").content.decode()


def test_names_all_that_cannot_be_had(cluster: Cluster, job: Job, alice: User, client: Client) -> None:
    tell(cluster, job, packages=packages(mine="1"), origins={"mine": "file:///srv/mine"})
    code = job_folder(job).code / "main.py"
    os.utime(code, (1, 1))
    client.force_login(alice)
    answer = client.post(f"/api/v1/jobs/{job.pk}/clone/", {"exactly": True}, content_type="application/json")
    sentences = answer.json()["fields"]["exactly"]
    assert answer.status_code == 400
    assert "main.py" in sentences[0]
    assert any("mine 1 came from file:///srv/mine" in sentence for sentence in sentences)
    page = client.post(f"/jobs/{job.pk}/again/", follow=True).content.decode()
    assert "main.py" in page
    assert "mine 1 came from" in page
    assert not Job.objects.exclude(pk=job.pk).exists()


def test_the_button_leads_to_the_new_training(cluster: Cluster, job: Job, alice: User, client: Client) -> None:
    tell(cluster, job, packages=packages(), origins=cluster_packages()[1])
    client.force_login(alice)
    assert "Run again exactly" in client.get(f"/jobs/{job.pk}/").content.decode()
    answer = client.post(f"/jobs/{job.pk}/again/")
    copy = Job.objects.exclude(pk=job.pk).get()
    assert answer.headers["Location"] == f"/jobs/{copy.pk}/"
    assert f"training {job.pk}" in client.get(f"/jobs/{copy.pk}/").content.decode()


def test_one_key_makes_one_training_of_each_kind(cluster: Cluster, job: Job, alice: User, client: Client) -> None:
    tell(cluster, job, packages=packages(), origins=cluster_packages()[1])
    client.force_login(alice)

    def post(key: str, **body: bool) -> Any:
        headers = {"Idempotency-Key": key}
        return client.post(f"/api/v1/jobs/{job.pk}/clone/", body, content_type="application/json", headers=headers)

    first, again = post("12345678", exactly=True), post("12345678", exactly=True)
    assert first.json()["id"] == again.json()["id"]
    assert post("12345678").status_code == 409


def test_has_the_secrets_of_whoever_runs_it_and_no_value(cluster: Cluster, submit: Submit, alice: User) -> None:
    row = own_secret(alice)
    made = submit(max_slots=1, secrets="HF_TOKEN")
    cluster.turn()
    job = Job.objects.get(pk=made.pk)
    tell(cluster, job, packages=packages(), origins=cluster_packages()[1])
    copy = actions.run_again_exactly(job, alice)
    assert (copy.secrets, [use.secret for use in copy.secret_uses.all()]) == ("HF_TOKEN", [row])
    assert CANARY not in f"{[event.detail for event in copy.events.all()]} {vars(copy)}"
    root = UserFactory(username="root", is_staff=True)
    with pytest.raises(actions.InvalidSubmission) as refused:
        actions.run_again_exactly(job, root)
    assert "Neither you nor" in refused.value.fields["secrets"][0]

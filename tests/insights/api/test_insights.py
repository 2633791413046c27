"""Why, how long still, and files of a job by REST; the minimum of one that waits can be lowered."""

import os

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.files.job_folder import job_folder
from jobs.models import Job, JobEvent
from jobs.states import JobState
from scheduling.plan import PlanReason
from tests.factories import UserFactory, set_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def files(alices_job, tmp_path):
    set_job(alices_job, attempt=1)
    folder = job_folder(alices_job).start_attempt(1)
    (folder / "model" / "train").mkdir(exist_ok=True)
    (folder / "model" / "train" / "weights.safetensors").write_bytes(b"weights")
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "coordinator.json").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("secret")
    (folder / "model" / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "model" / "file").symlink_to(tmp_path / "elsewhere" / "file")
    os.mkfifo(folder / "model" / "pipe")
    return folder


def test_files_of_the_result_are_listed_and_downloaded_one_by_one(alice_api, alices_job, files):
    listed = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/files/").json()["results"]
    assert {file["path"]: file["size_bytes"] for file in listed} == {
        "metrics.jsonl": 3,
        "model/train/weights.safetensors": 7,
    }

    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/files/download/", {"path": "model/train/weights.safetensors"})
    assert answer.getvalue() == b"weights"
    assert answer["Content-Disposition"] == 'attachment; filename="weights.safetensors"'


@pytest.mark.parametrize(
    "path",
    [
        "model/file", "model/link/file", "model/pipe", "model/train", "coordinator.json", "log/x/stdout",
        "../../secret", "model/../coordinator.json", "/etc/passwd", "model//train/weights.safetensors", ".", "nothing",
    ],
)  # fmt: skip
def test_nothing_else_is_handed_out(alice_api, alices_job, files, path):
    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/files/download/", {"path": path})

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_before_the_start_there_are_no_files(alice_api, alices_job):
    assert alice_api.get(f"/api/v1/jobs/{alices_job.pk}/files/").json()["results"] == []


@pytest.mark.parametrize("what", ["why", "eta", "goodput", "files", "files/download"])
def test_what_is_worked_out_about_others_jobs_does_not_exist(client, alices_job, files, what):
    address = f"/api/v1/jobs/{alices_job.pk}/{what}/?path=metrics.jsonl"
    assert client.get(address).status_code == 401
    client.force_login(UserFactory())
    assert client.get(address).status_code == 404


@pytest.mark.parametrize("what", ["why", "eta", "goodput"])
def test_working_it_out_costs_few_queries(alice_api, alices_job, what):
    with CaptureQueriesContext(connection) as queries:
        assert alice_api.get(f"/api/v1/jobs/{alices_job.pk}/{what}/").status_code == 200

    assert len(queries) <= 12


def test_other_peoples_jobs_are_not_linked(alice_api, alices_job, bob):
    other = {
        "job": 99_999,
        "who": "stranger",
        "slots": 3,
        "priority": 1,
        "min_slots": 1,
        "max_slots": 8,
    }
    Job.objects.filter(pk=alices_job.pk).update(reason_params={"capacity": 8, "priority": 2, "others": [other]})

    terms = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/why/").json()["terms"]

    assert [term["job"] for term in terms] == [None, None, None]
    assert terms[-1]["name"] == "another user's training"


def test_the_minimum_of_a_job_that_waits_can_be_lowered(alice_api, alices_job):
    Job.objects.filter(pk=alices_job.pk).update(min_slots=4, max_slots=4)
    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"min_slots": 2}, format="json")

    assert (answer.status_code, answer.json()["min_slots"], answer.json()["max_slots"]) == (200, 2, 4)
    event = JobEvent.objects.filter(job=alices_job).last()
    assert event is not None
    assert (event.reason, event.actor) == (PlanReason.LIMIT_CHANGED, "alice")
    assert (event.detail["field"], event.detail["old"], event.detail["new"]) == ("min_slots", 4, 2)


@pytest.mark.parametrize("least", [0, 5, -1, "x"])
def test_a_minimum_that_makes_no_sense_is_refused(alice_api, alices_job, least):
    Job.objects.filter(pk=alices_job.pk).update(min_slots=4, max_slots=4)

    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"min_slots": least}, format="json")

    assert answer.status_code == 400
    assert Job.objects.get(pk=alices_job.pk).min_slots == 4


def test_the_minimum_of_a_job_that_runs_stays(alice_api, alices_job):
    Job.objects.filter(pk=alices_job.pk).update(state=JobState.RUNNING, min_slots=2, max_slots=4)

    answer = alice_api.patch(f"/api/v1/jobs/{alices_job.pk}/", {"min_slots": 1}, format="json")

    assert (answer.status_code, answer.json()["code"]) == (409, "stale_job")

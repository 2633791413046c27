"""The secret of a training lies in one file for the user that runs it, and in nothing that is sent or shown."""

import json
import stat
import zipfile
from io import BytesIO

import pytest
from django.utils import timezone
from tidepool.protocol import encode
from tidepool.tracking import access_variables

from jobs.control.dispatch import launch_spec
from jobs.files.job_folder import job_folder
from jobs.files.result_files import result_files, zip_chunks
from jobs.models import Job
from jobs.states import JobState
from tests.factories import JobFactory, set_job
from tracking.access import job_of_token, token_of, write_access

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(mlflow):
    job = JobFactory()
    set_job(job, state=JobState.STARTING, attempt=2)
    folder = job_folder(job)
    folder.code.mkdir(parents=True)
    (folder.code / "main.py").write_text("")
    folder.start_attempt(2)
    (folder.attempt(2) / "result.txt").write_text("mine")
    write_access(job, 1)
    write_access(job, 2)
    return job


def test_it_is_for_its_user_alone_and_one_for_the_present_attempt(job):
    folder = job_folder(job).path / ".access"
    assert [file.name for file in folder.iterdir()] == ["2.json"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "2.json").stat().st_mode) == 0o600
    assert json.loads((folder / "2.json").read_text())["MLFLOW_TRACKING_TOKEN"] == token_of(job.pk, 2)


def test_it_is_in_no_message_list_or_archive(job):
    secret = token_of(job.pk, 2)
    job = Job.objects.get(pk=job.pk)
    archive = zipfile.ZipFile(BytesIO(b"".join(zip_chunks(job))))
    assert "result.txt" in archive.namelist()
    told = [encode(launch_spec(job)).decode(), str(result_files(job)), *archive.namelist()]
    told += [archive.read(name).decode() for name in archive.namelist()]
    assert not [text for text in told if secret in text or ".access" in text]


def test_it_opens_the_job_in_its_attempt_and_nothing_when_forged(job):
    assert job_of_token(token_of(job.pk, 2)) == job
    assert job_of_token(token_of(job.pk, 1)) is None
    assert job_of_token(token_of(job.pk, 2)[:-1] + "x") is None
    set_job(job, state=JobState.SUCCEEDED, finished_at=timezone.now())
    assert job_of_token(token_of(job.pk, 2)) is None


def test_a_rank_takes_it_unless_the_job_names_another_mlflow(job):
    attempt = job_folder(job).attempt(2)
    variables = access_variables(attempt, {})
    assert variables["MLFLOW_TRACKING_TOKEN"] == token_of(job.pk, 2)
    assert variables["MLFLOW_ENABLE_ASYNC_LOGGING"] == "true"
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in access_variables(attempt, {"MLFLOW_HTTP_REQUEST_TIMEOUT": "1"})
    assert access_variables(attempt, {"MLFLOW_TRACKING_URI": "http://mine"}) == {}


def test_a_site_without_mlflow_hands_out_none(settings, job):
    settings.TIDEPOOL_MLFLOW_URL = ""
    other = JobFactory()
    write_access(other, 1)
    assert access_variables(job_folder(other).attempt(1), {}) == {}

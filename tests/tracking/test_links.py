"""The page of a training leads to its run, where the site has MLflow."""

import pytest

from tests.factories import JobFactory
from tracking.models import TrackedRun

pytestmark = pytest.mark.django_db


def test_the_page_of_a_training_leads_to_its_run(client, mlflow, settings):
    job = JobFactory()
    client.force_login(job.owner)
    link = b"/mlflow/#/experiments/3/runs/abc"
    assert link not in client.get(f"/jobs/{job.pk}/").content
    TrackedRun.objects.create(job=job, run_id="abc", experiment_id="3")
    assert link in client.get(f"/jobs/{job.pk}/").content
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    assert link not in client.get(f"/jobs/{job.pk}/").content

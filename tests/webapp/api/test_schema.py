"""The API describes itself, without warnings and as it is."""

import pytest
from django.core.management import call_command

from jobs.api.serializers import MetricOutput
from jobs.models import MetricPoint
from jobs.queries.metrics import metric_series
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_it_builds_without_warnings(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


def test_it_is_served_and_names_every_endpoint(alice_api):
    schema = alice_api.get("/api/v1/schema/").json()
    assert alice_api.get("/api/v1/schema/", HTTP_ACCEPT="application/json").json() == schema
    paths = set(schema["paths"])
    assert {
        "/api/v1/me/",
        "/api/v1/me/token/",
        "/api/v1/datasets/",
        "/api/v1/models/",
        "/api/v1/jobs/{job}/allocation/",
        "/api/v1/jobs/{job}/ranks/",
        "/api/v1/jobs/{job}/result/",
        "/api/v1/hosts/",
        "/api/v1/slots/",
        "/api/v1/resource-groups/",
        "/api/v1/instance-groups/",
    } <= paths


def test_described_fields_are_those_that_are_sent():
    """Points of metrics are written by a query, not by their serializer: the two must agree."""
    job = JobFactory()
    MetricPoint.objects.create(job=job, name="loss", step=1, epoch=0, value=None, at=job.submitted_at)
    assert set(MetricOutput().fields) == set(metric_series(job, "loss")[0])

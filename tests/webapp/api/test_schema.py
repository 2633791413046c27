"""The API describes itself, without warnings and as it is."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from jobs.api.serializers import AllocationOutput, EventOutput, JobOutput, MetricOutput, RankOutput
from jobs.models import AllocationPoint, JobEvent, MetricPoint, Rank
from jobs.queries.jobs import allocation_series, event_list, job_as_json, metric_series, rank_list
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_it_builds_without_warnings(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


def test_it_is_served_and_names_every_endpoint(alice_api):
    schema = alice_api.get("/api/v1/schema/").json()
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
    """Jobs are written by queries, not by serializers: the two must agree."""
    job = JobFactory()
    at = job.submitted_at
    JobEvent.objects.create(job=job, seq=1, new="PENDING", reason="SUBMITTED", detail={}, actor="a", at=at)
    MetricPoint.objects.create(job=job, name="loss", step=1, epoch=0, value=None, at=at)
    AllocationPoint.objects.create(job=job, at=at, slots=1, attempt=1, generation=1, reason_code="GRANTED")
    Rank.objects.create(job=job, attempt=1, member_id="h.0.1", host="h", slot=0, pid=1, started_at=1.0)
    sent = {
        JobOutput: job_as_json(job),
        EventOutput: event_list(job)[0],
        MetricOutput: metric_series(job, "loss")[0],
        AllocationOutput: allocation_series(job)[0],
        RankOutput: rank_list(job)[0],
    }
    for serializer, values in sent.items():
        assert set(serializer().fields) == set(values), serializer

"""The advisor by REST: the owner's words, and nobody else's."""

import math
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.models import Job, MetricPoint
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def diverging(owner: User, steps: int = 300) -> Job:
    job = JobFactory(owner=owner, final_metrics={"loss": 9.0, "learning_rate": 0.5}, step=steps)
    now = timezone.now()
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name=name, step=step, epoch=0, value=value, at=now)
        for step in range(1, steps + 1)
        for name, value in (("loss", math.exp((step - 200) / 40) + math.exp(-step / 30)), ("learning_rate", 0.5))
    )
    return job


def advice(api: APIClient, job: Job) -> Any:
    return api.get(f"/api/v1/jobs/{job.pk}/advice/")


def test_a_diverging_training_is_told_what_to_try(alice: User, alice_api: APIClient) -> None:
    answer = advice(alice_api, diverging(alice)).json()

    [item] = answer["advice"]
    assert (item["code"], item["severity"]) == ("LOSS_DIVERGES", "wrong")
    assert item["text"].startswith("The loss diverges: ")
    assert "now 0.5" in item["suggestions"][0]
    assert item["params"]["now"] > item["params"]["best"]


def test_where_there_is_nothing_to_say_that_is_said(alice: User, alice_api: APIClient) -> None:
    said = {
        "No step is done yet.": JobFactory(owner=alice),
        "No step was done, so there is nothing to judge.": JobFactory(
            owner=alice, state="FAILED", finished_at=timezone.now()
        ),
        "No loss is reported, so there is nothing to judge.": JobFactory(owner=alice, step=5),
    }
    for summary, job in said.items():
        assert advice(alice_api, job).json() == {"summary": summary, "advice": []}
    young = JobFactory(owner=alice, final_metrics={"loss": 1.0})
    MetricPoint.objects.create(job=young, name="loss", step=1, epoch=0, value=1.0, at=timezone.now())
    assert "too few to judge" in advice(alice_api, young).json()["summary"]


def test_only_who_may_see_the_job_is_told(
    alice: User, bob_api: APIClient, carol_api: APIClient, client: APIClient
) -> None:
    job = diverging(alice, 100)

    assert advice(bob_api, job).status_code == 404
    assert advice(carol_api, job).status_code == 200
    assert client.get(f"/api/v1/jobs/{job.pk}/advice/").status_code == 401


def test_it_costs_the_same_however_long_the_training_is(alice: User, alice_api: APIClient) -> None:
    costs = []
    for steps in (100, 3000):
        job = diverging(alice, steps)
        with CaptureQueriesContext(connection) as queries:
            assert advice(alice_api, job).status_code == 200
        costs.append(len(queries))

    assert costs[0] == costs[1] <= 8

"""Pages cost the same however many trainings lie behind them."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from datasets.models import Dataset
from jobs.models import Job, SlotClaim
from models_registry.models import RegisteredModel
from tests.many_jobs import make_courses, make_many_jobs

MANY, OLD = 1200, 700

#: Each with its address, once there are jobs.
PAGES: dict[str, Callable[[], str]] = {
    "overview": lambda: "/",
    "overview, again": lambda: "/overview/now/",
    "cluster": lambda: "/cluster/",
    "cluster, trace": lambda: "/cluster/trace.json?minutes=1440",
    "train": lambda: "/jobs/new/",
    "job": lambda: f"/jobs/{Job.objects.filter(state='SUCCEEDED').latest('pk').pk}/",
    "dataset": lambda: f"/datasets/{Dataset.objects.earliest('pk').pk}/",
    "model": lambda: f"/models/{RegisteredModel.objects.earliest('pk').pk}/",
    "palette": lambda: "/api/v1/search/?q=ablation",
}


@pytest.fixture
def carols(client: Client, carol: User) -> Client:
    """An administrator's: every job is to be seen."""
    client.force_login(carol)
    return client


def questions(client: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200, address
    return [query["sql"] for query in captured]


def plan(sql: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        return [str(row[-1]) for row in cursor.fetchall()]


def test_a_longer_history_asks_no_more(carols: Client) -> None:
    def counts() -> dict[str, int]:
        return {name: len(questions(carols, address())) for name, address in PAGES.items()}

    make_many_jobs(MANY)
    make_courses()
    many = counts()
    oldest = list(Job.objects.order_by("pk").values_list("pk", flat=True)[:OLD])
    SlotClaim.objects.filter(job__in=oldest).delete()
    Job.objects.filter(pk__in=oldest).delete()
    assert counts() == many
    assert many["overview"] <= 24


@pytest.mark.skipif(connection.vendor != "sqlite", reason="a small table is read whole by PostgreSQL, and rightly so")
@pytest.mark.parametrize("name", ["overview", "overview, again", "cluster", "cluster, trace", "train", "model"])
def test_what_is_over_is_not_read(carols: Client, name: str) -> None:
    """Every question about jobs and their GPUs goes by an index; SCAN with an index stops at a limit."""
    make_many_jobs(MANY)
    make_courses()
    asked = [sql for sql in questions(carols, PAGES[name]()) if sql.startswith("SELECT") and "jobs_" in sql]
    assert asked
    whole = r"SCAN (jobs_job|jobs_allocationpoint|jobs_checkpoint|jobs_slotclaim|[UVW]\d)(?! USING)"
    read = {sql: line for sql in asked for line in plan(sql) if re.search(whole, line)}
    assert read == {}

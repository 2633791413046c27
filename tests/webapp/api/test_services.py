"""The same requests on PostgreSQL and Redis: what SQLite forgives must not pass either."""

import threading

import pytest
from django.conf import settings
from django.db import connection, connections
from rest_framework.test import APIClient

from core.broker import connect
from core.file_sources import Source
from datasets.actions import DatasetRegistration, register
from datasets.models import DatasetVersion
from jobs.models import Job
from tests.missing import leave_out
from tests.webapp.api.test_errors import BAD_VALUES, WRITES
from webapp.health import missing_parts

pytestmark = [pytest.mark.services, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _services() -> None:
    if connection.vendor != "postgresql" or not settings.TIDEPOOL_BROKER_URL.startswith("redis://"):
        leave_out("TIDEPOOL_DATABASE_URL and TIDEPOOL_BROKER_URL name no PostgreSQL and Redis")


def test_the_broker_and_the_database_answer():
    assert connect().ping()
    assert missing_parts() == ["scheduler", "executor"]


def test_a_job_is_submitted_changed_and_cancelled(alice_api, submission):
    job = alice_api.post("/api/v1/jobs/", submission, format="json").json()
    address = f"/api/v1/jobs/{job['id']}/"
    assert alice_api.patch(address, {"priority": 10_000}, format="json").json()["priority"] == 10_000
    assert alice_api.post(f"{address}cancel/").json()["state"] == "CANCELLED"
    assert alice_api.get(f"{address}events/").json()["results"][0]["new"] == "PENDING"


@pytest.mark.parametrize(
    ("address", "field"), [(address, field) for address, fields in WRITES.items() for field in fields]
)
def test_bad_values_are_refused_before_the_database(carol, submission, address, field):
    api = APIClient()
    api.force_login(carol)
    for value in BAD_VALUES:
        text = f'{{"name": "new", "max_slots": 1, "{field}": {value}}}'
        assert api.generic("POST", address, text, content_type="application/json").status_code < 500
    assert not Job.objects.exists()


@pytest.mark.parametrize("query", ["state=%00", "search=%00", "search=%ed%a0%80"])
def test_odd_queries_are_answered(alice_api, query):
    assert alice_api.get(f"/api/v1/jobs/?{query}").status_code < 500


@pytest.mark.django_db(transaction=True)
def test_versions_registered_at_once_get_numbers_of_their_own(alice, home):
    (home / "data/digits").mkdir()
    (home / "data/digits/train.csv").write_text("1\n")

    def register_one() -> None:
        try:
            register(alice, DatasetRegistration("digits", Source(path="digits")))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=register_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(DatasetVersion.objects.values_list("number", flat=True)) == [1, 2, 3, 4]

"""The search behind the palette: by a part of a name, only what one may see, at the same cost however much there is."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from reports.actions import make_report, set_readers
from tests.factories import DatasetVersionFactory, JobFactory, RegisteredModelVersionFactory

pytestmark = pytest.mark.django_db


def found(api: APIClient, text: str) -> list[tuple[str, str]]:
    response = api.get("/api/v1/search/", {"q": text})
    assert response.status_code == 200
    return [(hit["kind"], hit["name"]) for hit in response.json()["results"] if hit["kind"] != "help"]


def found_help(api: APIClient, text: str) -> list[tuple[str, str]]:
    results = api.get("/api/v1/search/", {"q": text}).json()["results"]
    return [(hit["name"], hit["address"]) for hit in results if hit["kind"] == "help"]


def test_finds_documents_and_sections_by_their_headings(alice_api, carol_api):
    assert ("Studies", "/help/studies/") in found_help(alice_api, "studies")
    assert found_help(alice_api, "pattern log") == [("Change the log pattern", "/help/scripts/#change-the-log-pattern")]
    assert found_help(alice_api, "back up") == []
    assert ("Back up and restore", "/help/operator/backup-and-restore/") in found_help(carol_api, "back up")


def test_finds_each_kind_by_a_part_of_its_name(alice, alice_api):
    dataset, model = (
        DatasetVersionFactory(dataset__name="tide-tables"),
        RegisteredModelVersionFactory(model__name="Tide-CNN"),
    )
    job = JobFactory(owner=alice, name="high tide", model=model, dataset=dataset)
    JobFactory(owner=alice, name="ebb", model=model, dataset=dataset)

    assert found(alice_api, "TIDE") == [("job", "high tide"), ("dataset", "tide-tables"), ("model", "Tide-CNN")]
    assert alice_api.get("/api/v1/search/?q=high").json()["results"][0]["address"] == f"/jobs/{job.pk}/"


def test_a_report_is_found_by_who_may_read_it(alice, alice_api, bob_api, carol_api):
    report = make_report(alice, "High tides")

    assert found(alice_api, "tide") == found(carol_api, "tide") == [("report", "High tides")]
    assert found(bob_api, "tide") == []
    set_readers(alice, report.pk, "everybody")
    assert found(bob_api, "tide") == [("report", "High tides")]


def test_a_job_is_found_by_its_number(alice, alice_api):
    job = JobFactory(owner=alice, name="ebb")

    assert ("job", "ebb") in found(alice_api, str(job.pk))


def test_others_jobs_are_not_found_but_by_staff(alice, alice_api, bob_api, carol_api):
    job = JobFactory(owner=alice, name="secret-tide")

    for text in ("secret", str(job.pk)):
        assert ("job", "secret-tide") in found(alice_api, text)
        assert ("job", "secret-tide") not in found(bob_api, text)
        assert ("job", "secret-tide") in found(carol_api, text)


def test_the_newest_few_of_each_kind(alice, alice_api):
    for number in range(9):
        JobFactory(owner=alice, name=f"many-{number}")

    assert found(alice_api, "many") == [("job", f"many-{number}") for number in range(8, 2, -1)]


@pytest.mark.parametrize("text", ["", "   ", "x" * 101, "9" * 30, "%", "\U0001f30a"])
def test_odd_texts_find_nothing(alice, alice_api, text):
    JobFactory(owner=alice, name="ebb")

    assert found(alice_api, text) == []


def test_costs_the_same_however_much_is_found(alice, alice_api):
    def queries() -> int:
        with CaptureQueriesContext(connection) as made:
            assert found(alice_api, "cheap")
        return len(made)

    JobFactory(owner=alice, name="cheap")
    before = queries()
    JobFactory.create_batch(5, owner=alice, name="cheap too")
    for number in range(5):
        DatasetVersionFactory(dataset__name=f"cheap-{number}")
        RegisteredModelVersionFactory(model__name=f"cheap-{number}")

    assert queries() <= before + 2  # the newest versions of datasets and of models, once each


def test_strangers_search_nothing(client):
    assert client.get("/api/v1/search/?q=a").status_code == 401

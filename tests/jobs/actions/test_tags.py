"""Tags of trainings: what is one, who may give them, and what is found by them."""

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from rest_framework.test import APIClient

from core.errors import UserError
from core.models import AuditEntry
from jobs.models import Job, JobTag
from jobs.queries.job_list import JobFilter, all_pages
from jobs.tags import parsed_tags, searched
from tests.html import html_of
from tests.scene import Scene


@pytest.fixture
def api(scene: Scene) -> APIClient:
    api = APIClient()
    api.force_login(scene.alice)
    return api


def tags(job: Job) -> list[str]:
    return list(JobTag.objects.filter(job=job).values_list("name", flat=True))


def found(user: User, **given: str) -> list[str]:
    return [job.name for job in all_pages(user, JobFilter({**given, "sort": "name"}))]


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("Baseline", "baseline"),
        (" lr:0.1 ", "lr:0.1"),
        ("Größe", "größe"),
        ("e\u0301tude", "étude"),
        ("x" * 40, "x" * 40),
    ],
)
def test_a_tag_is_a_word_without_large_letters(typed: str, stored: str) -> None:
    assert parsed_tags([typed, typed]) == [stored]


@pytest.mark.parametrize("typed", ["", "two words", "a,b", "-x", "<b>", "x" * 41, "a\0", "\ud800", "a\u202eb"])
def test_what_is_no_tag_is_refused_with_a_sentence(typed: str) -> None:
    with pytest.raises(UserError, match="is not a valid tag: write one word of at most 40"):
        parsed_tags([typed])


def test_a_search_has_words_and_tags() -> None:
    assert searched("wide tag:Base net tag:x") == ("wide net", ["base", "x"])
    assert searched(" two  blanks ") == (" two  blanks ", [])


def test_the_database_keeps_each_tag_once_and_without_commas(scene: Scene) -> None:
    JobTag.objects.create(job=scene.done, name="baseline")
    for name in ("baseline", "", "a,b"):
        with pytest.raises(IntegrityError), transaction.atomic():
            JobTag.objects.create(job=scene.done, name=name)


def test_tags_are_given_found_and_taken_by_rest(scene: Scene, api: APIClient) -> None:
    address = f"/api/v1/jobs/{scene.done.pk}/tags/"
    assert api.post(address, {"add": ["Baseline", "paper"]}, format="json").json()["tags"] == [
        "baseline",
        "paper",
    ]
    api.post(f"/api/v1/jobs/{scene.first.pk}/tags/", {"add": ["baseline"]}, format="json")

    assert found(scene.alice, tag="baseline") == [scene.done.name, scene.first.name]
    assert found(scene.alice, tag="Baseline, paper") == [scene.done.name]
    assert found(scene.alice, search="tag:baseline T1") == [scene.first.name]
    assert found(scene.alice, search="base tag:baseline") == [scene.done.name]
    assert found(scene.alice, tag="other") == []
    rows = api.get("/api/v1/jobs/?tag=paper").json()["results"]
    assert [row["tags"] for row in rows] == [["baseline", "paper"]]

    api.post(address, {"remove": ["baseline", "never-there"]}, format="json")
    assert tags(scene.done) == ["paper"]
    assert not AuditEntry.objects.exists()  # one's own


def test_what_does_not_fit_is_said(scene: Scene, api: APIClient) -> None:
    address = f"/api/v1/jobs/{scene.done.pk}/tags/"
    for body, field in [
        ({}, "add"),
        ({"add": ["a b"]}, "add"),
        ({"remove": [","]}, "remove"),
        ({"tags": ["x"]}, "tags"),
    ]:
        answer = api.post(address, body, format="json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [field]), body
    api.post(address, {"add": [f"t{number}" for number in range(20)]}, format="json")
    answer = api.post(address, {"add": ["one-more"]}, format="json")
    assert "at most 20 tags" in answer.json()["error"]
    assert api.post(address, {"add": ["one-more"], "remove": ["t0"]}, format="json").status_code == 200


def test_many_get_a_tag_at_once_and_those_that_have_too_many_do_not(scene: Scene, api: APIClient) -> None:
    JobTag.objects.bulk_create([JobTag(job=scene.failed, name=f"t{number}") for number in range(20)])
    body = {"action": "tag", "jobs": [scene.done.pk, scene.first.pk, scene.failed.pk], "add": ["sweep"]}
    answer = api.post("/api/v1/jobs/bulk/", body, format="json").json()
    assert answer["done"] == [scene.done.pk, scene.first.pk]
    assert [row["job"] for row in answer["refused"]] == [scene.failed.pk]
    assert tags(scene.first) == ["sweep"]
    assert api.post("/api/v1/jobs/bulk/", {**body, "add": []}, format="json").status_code == 400


def test_an_administrator_who_tags_anothers_training_is_in_the_audit(scene: Scene, carol_api: APIClient) -> None:
    carol_api.post(f"/api/v1/jobs/{scene.done.pk}/tags/", {"add": ["odd"]}, format="json")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.before, entry.after) == ("carol", {"tags": []}, {"tags": ["odd"]})


def test_the_page_adds_removes_and_takes_back(scene: Scene, alices: Client) -> None:
    address = f"/jobs/{scene.done.pk}/tag/"
    page = html_of(alices.post(address, {"add": "baseline paper"}, follow=True))
    assert 'value="baseline" aria-label="Remove the tag baseline"' in page
    page = html_of(alices.post(address, {"remove": "paper"}, follow=True))
    assert "The tag paper has been removed." in page
    assert ">Undo<" in page
    assert "is not a valid tag" in html_of(alices.post(address, {"add": "<b>"}, follow=True))
    assert tags(scene.done) == ["baseline"]


def test_the_list_shows_tags_and_suggests_only_those_that_one_may_see(
    scene: Scene, alices: Client, bobs: Client
) -> None:
    JobTag.objects.create(job=scene.done, name="baseline")
    page = html_of(alices.get("/jobs/?search=tag:baseline"))
    assert 'href="/jobs/?search=tag%3Abaseline&amp;tag=baseline">baseline</a>' in page
    assert "baseline" not in html_of(bobs.get("/jobs/"))
    assert "baseline paper" not in alices.get("/api/v1/jobs/export/").getvalue().decode()
    assert ",baseline," in alices.get("/api/v1/jobs/export/?tag=baseline").getvalue().decode()

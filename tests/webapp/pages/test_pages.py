"""Tests of pages: their content, their cost, and their words where there is nothing to show."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from tests.factories import (
    DatasetVersionFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelVersionFactory,
    UserFactory,
    host_with_slots,
)
from tests.html import html_of
from tests.scene import Scene


def queries_of(client: Client, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get(path).status_code == 200
    return len(queries)


def _more_jobs(scene: Scene) -> None:
    for _ in range(5):
        JobFactory(
            owner=scene.alice,
            instance_group=scene.first.instance_group,
            model=RegisteredModelVersionFactory(),
            dataset=DatasetVersionFactory(),
        )


def _more_datasets(scene: Scene) -> None:
    DatasetVersionFactory.create_batch(5)


def _more_models(scene: Scene) -> None:
    for version in RegisteredModelVersionFactory.create_batch(5):
        version.template = ModelTemplateFactory()
        version.save(update_fields=["template"])


def _more_hosts(scene: Scene) -> None:
    for number in range(3, 6):
        host_with_slots(f"gpu-host-{number}", 4)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/", _more_jobs),
        ("/", _more_hosts),
        ("/overview/now/", _more_jobs),
        ("/jobs/", _more_jobs),
        ("/datasets/", _more_datasets),
        ("/models/", _more_models),
        ("/models/templates/", _more_models),
        ("/models/new/", _more_models),
        ("/hosts/", _more_hosts),
        ("/cluster/", _more_hosts),
        ("/cluster/", _more_jobs),
    ],
)
def test_lists_cost_the_same_however_long_they_are(scene: Scene, alices: Client, path: str, more: Any) -> None:
    before = queries_of(alices, path)

    more(scene)

    assert queries_of(alices, path) == before
    assert before <= 24


def test_the_overview_lists_what_trains_first_and_counts_the_rest(scene: Scene, alices: Client) -> None:
    JobFactory.create_batch(60, owner=scene.alice, instance_group=scene.first.instance_group, priority=10_000)
    active = Job.objects.filter(owner=scene.alice, finished_at=None).count()

    content = html_of(alices.get("/"))

    rows = re.findall(r'<tr id="active-(\d+)"', content)
    assert len(rows) == 30
    assert {str(scene.first.pk), str(scene.second.pk)} == set(rows[:2])
    assert f'and {active - 30} more: <a href="/jobs/?state=active">' in content


def test_jobs_are_filtered_and_paged(scene: Scene, alices: Client) -> None:
    JobFactory.create_batch(60, owner=scene.alice, name="many", instance_group=scene.first.instance_group)

    first = html_of(alices.get("/jobs/"))
    [after] = re.findall(r'after=([^"&]+)" rel="next"', first)
    assert "digits-baseline" in html_of(alices.get(f"/jobs/?after={after}"))
    assert "digits-baseline" in html_of(alices.get("/jobs/?state=SUCCEEDED"))
    assert "T1 digits-cnn" not in html_of(alices.get("/jobs/?state=finished"))
    assert "T1 digits-cnn" in html_of(alices.get("/jobs/?state=active&search=t1"))
    assert "No training of yours matches" in html_of(alices.get("/jobs/?search=no-such-name"))


@pytest.mark.parametrize("query", ["?page=0", "?page=x", "?after=", "?search=%F0%9F%98%80", "?state=&search=%20"])
def test_odd_addresses_do_no_harm(alices: Client, query: str) -> None:
    assert alices.get(f"/jobs/{query}").status_code == 200


def test_a_job_says_why_it_has_what_it_has(scene: Scene, alices: Client) -> None:
    content = html_of(alices.get(f"/jobs/{scene.first.pk}/"))

    assert "3 of 8 GPUs: T2 digits-cnn has twice your priority (10000 to 5000)." in content


def test_a_failure_shows_the_scripts_traceback(scene: Scene, alices: Client) -> None:
    content = html_of(alices.get(f"/jobs/{scene.failed.pk}/"))

    assert "FileNotFoundError: [Errno 2] No such file or directory: &#x27;start.pt&#x27;" in content


def test_names_of_people_are_text(scene: Scene, alices: Client) -> None:
    Job.objects.filter(pk=scene.first.pk).update(name="</script><script>alert(1)</script>")

    for path in ("/", "/jobs/", f"/jobs/{scene.first.pk}/"):
        assert "<script>alert(1)" not in html_of(alices.get(path))


def test_empty_pages_teach_the_next_step(db: None, client: Client) -> None:
    client.force_login(UserFactory())

    assert "Train a model" in html_of(client.get("/jobs/"))
    assert "Register a dataset" in html_of(client.get("/datasets/"))
    assert "Add a model" in html_of(client.get("/models/"))
    for path in ("/models/templates/", "/models/new/"):
        assert "Add a location" in html_of(client.get(path))
    assert "No host has reported yet" in html_of(client.get("/hosts/"))
    assert "No host has reported yet" in html_of(client.get("/"))
    assert "Ask an administrator" in html_of(client.get("/jobs/new/"))


@pytest.mark.parametrize(
    "path", ["/nowhere/", "/jobs/999999/", "/datasets/999999/", "/models/999999/", "/models/templates/999999/"]
)
def test_what_is_not_there_is_said(alices: Client, path: str) -> None:
    response = alices.get(path)

    assert response.status_code == 404
    assert "Page not found" in html_of(response)


def test_a_mistake_of_ours_is_said_without_details(
    scene: Scene, alices: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("webapp.views.cluster_page", broken)
    alices.raise_request_exception = False

    response = alices.get("/")

    assert response.status_code == 500
    assert "Trainings continue" in html_of(response)
    assert "secret detail" not in html_of(response)


def test_log_in_and_out(scene: Scene, client: Client) -> None:
    scene.alice.set_password("correct horse battery")
    scene.alice.save()

    wrong = client.post("/login/", {"username": "alice", "password": "wrong"})
    right = client.post("/login/", {"username": "alice", "password": "correct horse battery", "next": "/jobs/"})
    client.post("/logout/")

    assert 'value="alice"' in html_of(wrong)
    assert right.headers["Location"] == "/jobs/"
    assert client.get("/").status_code == 302


def test_pages_have_no_inline_script_or_style(scene: Scene, alices: Client) -> None:
    for path in ("/", "/jobs/", f"/jobs/{scene.first.pk}/", "/jobs/new/"):
        content = html_of(alices.get(path))
        assert "<style" not in content
        assert ' style="' not in content
        assert ' onclick="' not in content

"""Many trainings: what differs among them, in a table and as parallel coordinates."""

import re

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from core.parallel import Column
from insights.differences import default_axes
from jobs.models import Job
from tests.factories import JobFactory
from tests.html import html_of
from tests.scene import Scene

ADDRESS = "/jobs/compare/differences/"


def swept(scene: Scene, count: int) -> list[Job]:
    """Of one model, with their own learning rate and loss."""
    terms = {name: getattr(scene.done, name) for name in ("model", "dataset", "instance_group", "owner")}
    return [
        JobFactory(
            **terms,
            name=f"sweep-{number:03}",
            parameters={"lr": 10.0**-number, "optimizer": "Adam" if number % 2 else "SGD"},
            final_metrics={"loss": number / 10} if number else {},
        )
        for number in range(count)
    ]


def query(jobs: list[Job]) -> str:
    return ",".join(str(job.pk) for job in jobs)


def test_the_first_settings_and_results_are_drawn_by_default() -> None:
    columns = [
        *(Column("setting", f"setting {number}", [1, 2]) for number in range(8)),
        Column("setting", "fixed", [1, 1]),
        *(Column("metric", f"metric {number}", [1, 2]) for number in range(6)),
    ]
    assert default_axes(columns) == [*columns[:6], *columns[9:13]]


def test_only_what_differs_is_a_column(scene: Scene, alices: Client) -> None:
    page = html_of(alices.get(f"{ADDRESS}?jobs={query(swept(scene, 3))}"))
    heads = re.findall(r'aria-sort="\w+"><a href="[^"]*">([^<]+)<', page)
    assert heads == ["lr", "optimizer", "loss"]
    assert len(re.findall(r'<path class="shade-\w+" data-line', page)) == 3
    assert "<dt>Model</dt><dd>digits-cnn, version 1</dd>" in page


def test_rows_are_sorted_by_a_column_and_those_without_a_value_are_last(scene: Scene, alices: Client) -> None:
    jobs = swept(scene, 3)

    def order(sort: str) -> list[str]:
        page = html_of(alices.get(f"{ADDRESS}?jobs={query(jobs)}&sort={sort}"))
        return re.findall(r'<th scope="row"><a href="[^"]*">([^<]+)<', page)

    assert order("metric:loss") == ["sweep-001", "sweep-002", "sweep-000"]
    assert order("-metric:loss") == ["sweep-002", "sweep-001", "sweep-000"]
    assert order("setting:optimizer") == ["sweep-001", "sweep-000", "sweep-002"]
    assert order("no-such-column") == ["sweep-000", "sweep-001", "sweep-002"]


def test_axes_are_chosen(scene: Scene, alices: Client) -> None:
    jobs = query(swept(scene, 3))
    page = html_of(alices.get(f"{ADDRESS}?jobs={jobs}&axes=metric:loss&axes=setting:lr"))
    assert re.findall(r'class="parallel-name"[^>]*>([^<]+)<', page) == ["lr", "loss"]
    assert f'<input type="hidden" name="jobs" value="{jobs}">' in page
    assert "parallel-title" not in html_of(alices.get(f"{ADDRESS}?jobs={jobs}&axes=metric:none"))


def test_two_hundred_cost_no_more_queries_than_three(scene: Scene, alices: Client) -> None:
    jobs = swept(scene, 200)

    def queries(some: list[Job]) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert alices.get(f"{ADDRESS}?jobs={query(some)}").status_code == 200
        return len(captured)

    assert queries(jobs) == queries(jobs[:3])
    answer = html_of(alices.get(f"{ADDRESS}?matching=1&search=sweep&sort=name"))
    assert "Differences of 200 trainings" in answer
    JobFactory(owner=scene.alice, name="sweep-last")
    too_many = alices.get(f"{ADDRESS}?matching=1&search=sweep")
    assert (too_many.status_code, "More than 200 trainings are selected" in html_of(too_many)) == (400, True)
    assert alices.get(f"/jobs/compare/?jobs={query(jobs[:9])}")["Location"].startswith(ADDRESS)


def test_others_trainings_are_not_there(scene: Scene, bobs: Client, alices: Client) -> None:
    jobs = query([scene.first, scene.second])
    assert bobs.get(f"{ADDRESS}?jobs={jobs}").status_code == 404
    for wrong in ("jobs=1", "jobs=x"):
        assert alices.get(f"{ADDRESS}?{wrong}").status_code == 400
    assert alices.get(f"{ADDRESS}?matching=1&state=NONE").status_code == 404


def test_by_rest(scene: Scene, carol: User) -> None:
    api = APIClient()
    api.force_login(scene.alice)
    jobs = swept(scene, 2)
    answer = api.get(f"/api/v1/jobs/differences/?jobs={query(jobs)}").json()
    assert answer["jobs"] == [job.pk for job in jobs]
    columns = {column["name"]: column for column in answer["columns"]}
    assert columns["lr"] == {"kind": "setting", "name": "lr", "differs": True, "values": [1.0, 0.1]}
    assert columns["loss"]["values"] == [None, 0.1]
    assert columns["Model"]["differs"] is False
    refused = api.get("/api/v1/jobs/differences/?jobs=1")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["jobs"])

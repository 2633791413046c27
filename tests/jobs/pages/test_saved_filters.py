"""Filters that people give a name: their own, named once, and an address that can be shared."""

from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.models import ChosenColumns, SavedFilter
from tests.html import html_of
from tests.scene import Scene

LATELY = "state=FAILED&within=7d"


def saved(client: Client, name: str, query: str = LATELY) -> Any:
    return client.post(f"/jobs/filters/?{query}", {"name": name})


def test_a_filter_is_saved_opened_and_forgotten(scene: Scene, alices: Client) -> None:
    answer = saved(alices, "Failed lately")
    assert answer.headers["Location"] == f"/jobs/?{LATELY}"
    page = html_of(alices.get("/jobs/"))
    assert f'href="/jobs/?{LATELY.replace("&", "&amp;")}">Failed lately</a>' in page
    assert 'aria-current="true">Failed lately' in html_of(alices.get(f"/jobs/?{LATELY}"))

    [row] = SavedFilter.objects.all()
    page = html_of(alices.post(f"/jobs/filters/{row.pk}/forget/", follow=True))
    assert ">Undo<" in page
    assert not SavedFilter.objects.exists()


def test_only_what_is_a_filter_is_kept_of_an_address(scene: Scene, alices: Client) -> None:
    saved(alices, "mine", "state=RUNNING&after=x~1&page=2&q=1&sort=name&search=")

    assert SavedFilter.objects.get().parameters == "state=RUNNING&sort=name"


def test_what_cannot_be_saved_is_said_and_the_name_kept(scene: Scene, alices: Client) -> None:
    saved(alices, "taken")
    for name, query, sentence in [
        ("taken", LATELY, "You already have a filter “taken”"),
        (" ", LATELY, "Enter a name."),
        ("x" * 65, LATELY, "use at most 64"),
        ("all", "", "The filter is empty"),
        ("bad", "state=NONE", "Unknown state"),
        ("long", f"search={'x' * 2000}", "too long to be saved"),
    ]:
        answer = saved(alices, name, query)

        assert answer.status_code == 400, name
        assert sentence in html_of(answer)
        assert f'value="{name}"' in html_of(answer)
    assert SavedFilter.objects.count() == 1


def test_filters_are_ones_own(scene: Scene, alices: Client, bobs: Client, carols: Client) -> None:
    saved(alices, "alices secret")
    assert saved(bobs, "alices secret").status_code == 302
    [row] = SavedFilter.objects.filter(owner=scene.alice)

    for client in (bobs, carols):
        assert client.post(f"/jobs/filters/{row.pk}/forget/").status_code == 404
    assert "alices secret" not in html_of(carols.get("/jobs/"))
    assert Client().post(f"/jobs/filters/{row.pk}/forget/").status_code == 302
    assert SavedFilter.objects.filter(pk=row.pk).exists()


def test_the_same_by_rest(scene: Scene, carol: User) -> None:
    api = APIClient()
    api.force_login(scene.alice)
    answer = api.post("/api/v1/job-filters/", {"name": "lately", "parameters": LATELY}, format="json")
    assert (answer.status_code, answer.json()["parameters"]) == (201, LATELY)
    again = api.post("/api/v1/job-filters/", {"name": "lately", "parameters": LATELY}, format="json")
    assert (again.status_code, list(again.json()["fields"])) == (409, ["name"])
    assert [row["name"] for row in api.get("/api/v1/job-filters/").json()["results"]] == ["lately"]

    address = f"/api/v1/job-filters/{answer.json()['id']}/"
    other = APIClient()
    other.force_login(carol)
    assert other.get("/api/v1/job-filters/").json()["results"] == []
    assert (other.delete(address).status_code, APIClient().delete(address).status_code) == (404, 401)
    assert (api.delete(address).status_code, api.delete(address).status_code) == (204, 404)


def test_chosen_columns_stay_until_others_are_chosen(scene: Scene, alices: Client, bobs: Client) -> None:
    answer = alices.post("/jobs/columns/?state=RUNNING&after=", {"columns": ["reason", "metric:loss"]})
    assert answer["Location"] == "/jobs/?state=RUNNING&after=&columns=reason%2Cmetric%3Aloss"
    for address in ("/jobs/", "/jobs/rows/?search=T1"):
        assert 'title="Metric loss: its newest value"' in html_of(alices.get(address))
        assert "Metric loss" not in html_of(alices.get(f"{address}{'&' if '?' in address else '?'}columns=owner"))
        assert "Metric loss" not in html_of(bobs.get(address))

    page = html_of(alices.post("/jobs/columns/", {"columns": ["nothing"]}, follow=True))
    assert "The list has no column “nothing”" in page
    assert ChosenColumns.objects.get().columns == "reason,metric:loss"
    assert alices.post("/jobs/columns/")["Location"] == "/jobs/"
    assert not ChosenColumns.objects.exists()

"""The charts that a user chooses for the trainings of a model, on the page that compares them and on their own."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from jobs.models import ChosenCharts, Job
from jobs.queries.chosen_charts import chosen_charts
from tests.factories import JobFactory
from tests.html import html_of
from tests.scene import Scene

NOTHING = {"order": [], "hidden": [], "group": ""}


def choose(client: Client, *jobs: Job, **titles: list[str] | str) -> int:
    return client.post("/jobs/charts/", {"job": [job.pk for job in jobs], **titles}).status_code


def shown(client: Client, address: str) -> dict[str, Any]:
    found = re.search(r'<script id="chosen-charts"[^>]*>(.*?)</script>', html_of(client.get(address)))
    assert found
    chosen: dict[str, Any] = json.loads(found[1])
    return chosen


def test_a_choice_is_shown_on_compare_and_by_each_training_of_the_model(
    scene: Scene, alices: Client, carols: Client
) -> None:
    pages = [f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}", f"/jobs/{scene.done.pk}/"]
    jobs = [[scene.first.pk, scene.second.pk], [scene.done.pk]]
    assert [shown(alices, page) for page in pages] == [{"jobs": each, **NOTHING} for each in jobs]

    titles = ["Loss", "GPUs", "Loss"]
    assert choose(alices, scene.first, scene.second, order=titles, hidden=["F1 <b>"], group="tag") == 204

    kept = {"order": ["Loss", "GPUs"], "hidden": ["F1 <b>"], "group": "tag"}
    assert [shown(alices, page) for page in pages] == [{"jobs": each, **kept} for each in jobs]
    assert shown(carols, pages[1]) == {"jobs": jobs[1], **NOTHING}, "a choice is its user's"

    assert choose(alices, scene.first) == 204
    assert not ChosenCharts.objects.exists(), "nothing chosen is the usual order"


def test_trainings_of_several_models_show_the_newest_choice_for_any_of_them(scene: Scene, alices: Client) -> None:
    other = JobFactory(owner=scene.alice)
    choose(alices, scene.first, order=["Loss"])
    choose(alices, other, order=["F1"])
    assert chosen_charts(scene.alice, [scene.first, other])["order"] == ["F1"]

    choose(alices, other, scene.first, hidden=["GPUs"])
    assert [chosen_charts(scene.alice, [job])["hidden"] for job in (scene.first, other)] == [["GPUs"], ["GPUs"]]


@pytest.mark.parametrize(
    ("titles", "sentence"),
    [
        ({"order": [""]}, "A chart's title has 1 to 200 characters"),
        ({"hidden": ["x" * 201]}, "A chart's title has 1 to 200 characters"),
        ({"group": "x" * 201}, "A grouping has at most 200 characters"),
        ({"order": [f"f{number}" for number in range(91)]}, "At most 90 charts are kept, not 91"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    scene: Scene, alices: Client, titles: dict[str, list[str] | str], sentence: str
) -> None:
    body = {"job": scene.first.pk, **titles}
    answer = alices.post("/jobs/charts/", body, headers={"Accept": "application/json"})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, list(titles))
    assert sentence in answer.json()["error"]
    assert not ChosenCharts.objects.exists()


@pytest.mark.parametrize("job", ["", "x", "999999"])
def test_only_trainings_that_one_sees_have_charts(scene: Scene, alices: Client, bobs: Client, job: str) -> None:
    assert alices.post("/jobs/charts/", {"job": job, "order": "Loss"}).status_code == 404
    assert choose(bobs, scene.first, order=["Loss"]) == 404
    assert not ChosenCharts.objects.exists()

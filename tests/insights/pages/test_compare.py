"""Several trainings side by side."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from insights.comparison import (
    Compared,
    Line,
    Point,
    Quantity,
    compared_settings,
    comparison_figures,
    quantities_of,
    titles_of,
)
from jobs.models import Job, MetricPoint
from jobs.queries.curves import HELD_OUT, held_out_part
from models_registry.script_declarations import Argument, Declared
from reports.figures import figure_choices
from tests.factories import JobFactory
from tests.html import html_of
from tests.scene import Scene


def address(*jobs: Job) -> str:
    return f"/jobs/compare/?jobs={','.join(str(job.pk) for job in jobs)}"


def figures_of(content: str) -> list[dict[str, Any]]:
    found = re.search(r'<script id="figures-comparison"[^>]*>(.*?)</script>', content, re.DOTALL)
    assert found
    figures: list[dict[str, Any]] = json.loads(found[1])
    return figures


def test_one_chart_for_each_quantity_and_one_colour_for_each_training(scene: Scene, alices: Client) -> None:
    content = html_of(alices.get(address(scene.first, scene.second)))
    figures = figures_of(content)

    names = {figure["layout"]["meta"]["title"]: figure["layout"]["meta"]["name"] for figure in figures}
    assert {"Loss", "Accuracy (%)", "Test accuracy (%)", "GPUs"} <= set(names)
    assert all(f'data-chart="{name}"' in content for name in names.values())
    colours = {scene.first.pk: set(), scene.second.pk: set()}
    for figure in figures:
        for trace in figure["data"]:
            colours[trace["meta"]["job"]].add(trace["line"]["color"])
    assert [len(used) for used in colours.values()] == [1, 1]
    assert figures[0]["layout"]["yaxis"]["rangemode"] == "normal", "a long loss is no flat line at 0"


def test_what_scripts_name_themselves_has_a_chart_and_not_more_than_one_can_look_at(scene: Scene) -> None:
    metrics = {"f1": 0.5, **{f"zeta_{number:02}": 1.0 for number in range(20)}}
    job = JobFactory(owner=scene.alice, final_metrics={**metrics, "loss": 0.5}, started_at=scene.first.started_at)

    titles = [quantity.title for quantity in quantities_of([job, scene.first])]

    assert (titles[0], titles[-1], len(titles)) == ("Loss", "GPUs", 12)
    assert titles.index("F1") < titles.index("Zeta 00"), "the usual ones first, then by name"


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (["val_loss"], {"Validation loss": "val_loss"}),
        (["test_loss", "val_loss"], {"Test loss": "test_loss", "Validation loss": "val_loss"}),
        (["eval_accuracy", "val_accuracy"], {"Evaluation accuracy (%)": "", "Validation accuracy (%)": ""}),
        (["val_loss", "valid_loss"], {"Validation loss (val_loss)": "", "Validation loss (valid_loss)": ""}),
        ([f"{prefix}loss" for prefix in HELD_OUT if prefix not in ("valid_", "validation_")], {}),
    ],
)
def test_each_metric_has_the_title_of_its_own_data(scene: Scene, metrics: list[str], expected: dict[str, str]) -> None:
    reported = {"final_metrics": dict.fromkeys(["loss", *metrics], 0.5), "started_at": scene.first.started_at}
    jobs = [JobFactory(owner=scene.alice, **reported), JobFactory(owner=scene.alice, **reported)]

    drawn = {one.title: {line.metric for line in one.lines} for one in quantities_of(jobs) if one.title != "GPUs"}

    assert sorted(name for names in drawn.values() for name in names) == sorted(["loss", *metrics])
    assert {title: drawn.get(title) for title in expected} == {
        title: {name} if name else drawn[title] for title, name in expected.items()
    }
    for title, names in drawn.items():
        assert all(held_out_part(name)[0] in [*title.split(" "), ""] for name in names), "no claim about other data"
    assert [title for title in titles_of(jobs) if title != "GPUs"] == list(drawn)
    if metrics == ["val_loss"]:
        offered = {choice.key: choice.title for choice in figure_choices(jobs)}
        assert offered["chart:Validation loss"] == "Validation loss", "what a report publishes"
        assert "chart:Test loss" not in offered


def test_trainings_that_name_the_same_metric_otherwise_share_a_chart(scene: Scene) -> None:
    one, other = (JobFactory(owner=scene.alice, final_metrics={name: 0.5}) for name in ("val_loss", "valid_loss"))

    [drawn] = [quantity for quantity in quantities_of([one, other]) if quantity.title == "Validation loss"]

    assert [line.metric for line in drawn.lines] == ["val_loss", "valid_loss"]


def test_values_stand_at_their_step_and_their_time(scene: Scene) -> None:
    job = JobFactory(owner=scene.alice, final_metrics={"loss": 0.5}, started_at=scene.first.started_at)
    for step, seconds in ((1, 2.0), (2, 4.0)):
        at = scene.first.started_at + timedelta(seconds=seconds)
        MetricPoint.objects.create(job=job, name="loss", step=step, epoch=1, value=step / 10, at=at)

    loss, *_, gpus = quantities_of([job, scene.first])

    assert loss.lines[0].points == [Point(1, 2.0, 0.1, epoch=1), Point(2, 4.0, 0.2, epoch=1)]
    assert gpus.lines[0].points == []
    assert [point.value for point in gpus.lines[1].points] == [1, 8, 4, 3]
    steps = [point.step for point in gpus.lines[1].points]
    assert steps == sorted(steps)
    assert 0 < steps[-1] <= 820


def test_what_differs_is_marked(scene: Scene, alices: Client) -> None:
    words = ["--lr", "0.01"]  # a parameter, too: tidepool run train.py -- --lr 0.01
    Job.objects.filter(pk=scene.second.pk).update(parameters={"epochs": 20, "note": "<b>"}, arguments=words)
    scene.second.refresh_from_db()

    lines = {line.name: line for line in compared_settings([scene.first, scene.second])}
    assert lines["epochs"] == Compared("epochs", ["20", "20"])
    assert not lines["epochs"].differs
    assert (lines["lr"].values, lines["lr"].differs) == (["–", "0.01"], True)
    assert lines["Priority"].differs
    content = html_of(alices.get(address(scene.first, scene.second)))
    assert (
        '<tr class="differs"><th scope="row">lr <span class="tag">differs</span></th><td>–</td><td>0.01</td>' in content
    )
    assert "<td><b></td>" not in content
    marks = [line.startswith(' class="differs"') for line in content.split("<tbody>")[1].split("<tr")[1:]]
    assert marks == sorted(marks, reverse=True), "what differs comes first"


def test_a_parameter_that_is_not_set_has_the_default_of_the_script(scene: Scene) -> None:
    declared = Declared((Argument("lr", default=0.05), Argument("epochs", default=12), Argument("wd", default=0.1)))
    for job, parameters in ((scene.first, {}), (scene.second, {"lr": 0.5, "epochs": 12})):
        job.model.script, job.model.parameters, job.parameters = declared.to_json(), {}, parameters

    lines = {line.name: line for line in compared_settings([scene.first, scene.second])}
    assert (lines["lr"].values, lines["lr"].differs) == (["0.05", "0.5"], True)
    assert (lines["epochs"].values, lines["epochs"].differs) == (["12", "12"], False)
    assert "wd" not in lines, "nobody sets it"


def test_order_of_the_address_is_the_order_of_the_columns(scene: Scene, alices: Client) -> None:
    content = html_of(alices.get(address(scene.second, scene.first)))
    heads = re.findall(r'<th scope="col" data-job.*?<a href="/jobs/(\d+)/">', content, re.DOTALL)
    assert heads[:2] == [str(scene.second.pk), str(scene.first.pk)]


def test_a_trainings_page_leads_to_those_that_it_can_be_compared_with(scene: Scene, alices: Client) -> None:
    link = "/jobs/?model=digits-cnn"
    assert f'href="{link}"' in html_of(alices.get(f"/jobs/{scene.first.pk}/"))
    content = html_of(alices.get(link))
    assert scene.first.name in content
    assert scene.second.name in content


@pytest.mark.parametrize("query", ["", "?jobs=", "?jobs=1", "?jobs=x,y", "?jobs=1,1"])
def test_at_least_two_are_asked_for(scene: Scene, alices: Client, query: str) -> None:
    answer = alices.get(f"/jobs/compare/{query}")

    assert answer.status_code == (400 if query not in ("", "?jobs=") else 200)
    assert "2 to 200" in html_of(answer)


def test_others_jobs_are_not_compared(scene: Scene, alices: Client, bobs: Client, carols: Client) -> None:
    both = address(scene.first, Job.objects.get(name="bobs-secret"))

    assert alices.get(both).status_code == 404
    assert bobs.get(both).status_code == 404
    assert carols.get(both).status_code == 200
    assert Client().get(both).status_code == 302
    assert alices.get(f"/jobs/compare/?jobs={scene.first.pk},999999").status_code == 404


def test_lines_are_grouped_as_the_address_says_or_as_they_were_last(scene: Scene, alices: Client) -> None:
    both = address(scene.first, scene.second)
    for given in ("&group=tag", "&group="):
        content = html_of(alices.get(f"{both}{given}"))
        assert ("Groups by Tag" in content) == ("tag" in given)
    content = html_of(alices.get(f"{both}&group=tag"))
    assert '<option value="tag" selected>Tag</option>' in content
    assert f'hx-get="/jobs/compare/tables/?jobs={scene.first.pk}%2C{scene.second.pk}&amp;group=tag"' in content

    alices.post("/jobs/charts/", {"job": scene.first.pk, "group": "tag"})
    tables = both.replace("compare/", "compare/tables/")
    assert all("Groups by Tag" in html_of(alices.get(page)) for page in (both, tables))
    assert "Groups by" not in html_of(alices.get(f"{both}&group="))

    wrong = alices.get(f"{both}&group=setting:<b>")
    assert wrong.status_code == 400
    assert "The lines cannot be grouped by “setting:&lt;b&gt;”: choose another grouping." in html_of(wrong)


def test_each_training_costs_the_same(scene: Scene, alices: Client) -> None:
    def questions(*jobs: Job) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert alices.get(address(*jobs)).status_code == 200
        return len(queries)

    extra = [JobFactory(owner=scene.alice, final_metrics={"loss": 1.0, "accuracy": 2.0}) for _ in range(4)]
    two, four = questions(*extra[:2]), questions(*extra)
    assert four - two <= 2 * 7


def test_trainings_of_one_colour_differ_by_their_dashes() -> None:
    points = [Point(1, 1.0, 1.0)]
    [figure] = comparison_figures([Quantity("Loss", [Line(1, "<i>one</i>", points), Line(13, "two", points)])])

    first, second = figure["data"]
    assert first["line"]["color"] == second["line"]["color"]
    assert first["line"]["dash"] != second["line"]["dash"]
    assert first["name"] == "A · &lt;i&gt;one&lt;/i&gt;"


def test_what_a_page_fetches_is_what_it_was_rendered_with(scene: Scene, alices: Client) -> None:
    both = address(scene.first, scene.second)
    content = html_of(alices.get(both))

    assert alices.get(both.replace("compare/", "compare/curves.json")).json() == {"figures": figures_of(content)}
    tables = html_of(alices.get(both.replace("compare/", "compare/tables/")))
    assert tables.strip() in content


@pytest.mark.parametrize("part", ["curves.json", "tables/"])
def test_parts_are_for_who_may_see_the_jobs(
    scene: Scene, alices: Client, bobs: Client, carols: Client, part: str
) -> None:
    both = address(scene.first, scene.second).replace("compare/", f"compare/{part}")

    assert alices.get(both).status_code == carols.get(both).status_code == 200
    assert bobs.get(both).status_code == 404
    assert Client().get(both).status_code == 302
    assert alices.get(f"/jobs/compare/{part}?jobs={scene.first.pk}").status_code == 404


def test_many_trainings_are_drawn_with_fewer_points_each(scene: Scene) -> None:
    job = JobFactory(owner=scene.alice, final_metrics={"loss": 0.5}, started_at=scene.first.started_at)
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name="loss", step=step, epoch=1, value=1.0, at=scene.first.started_at)
        for step in range(1, 1201)
    )

    def drawn(count: int) -> tuple[int, int]:
        line = quantities_of([job] * count)[0].lines[0]
        return len(line.points), line.every

    assert drawn(2) == (600, 2)
    assert drawn(8) == (150, 8)


def test_trainings_that_are_over_and_made_no_step_have_no_chart(scene: Scene, alices: Client) -> None:
    over = {"owner": scene.alice, "state": "CANCELLED", "finished_at": timezone.now()}
    content = html_of(alices.get(address(JobFactory(**over), JobFactory(**over))))

    assert "These trainings made no steps, so there are no curves." in content
    assert "data-chart" not in content

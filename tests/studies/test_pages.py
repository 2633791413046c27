import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs.models import Checkpoint
from studies.models import Study, Trial
from tests.html import html_of
from tests.scene import Scene


def address(scene: Scene, rest: str = "") -> str:
    return f"/studies/{scene.study.pk}/{rest}"


def form(scene: Scene, **changes: str) -> dict[str, str]:
    return {
        "model": str(scene.model.model_id),
        "dataset": str(scene.dataset.dataset_id),
        "name": "rates",
        "instance_group": str(scene.first.instance_group_id),
        "space": "learning-rate = 1e-4:1e-1:log",
        "metric": "test_accuracy",
        "goal": "maximize",
        "value_of": "last",
        "sampler": "tpe",
        "pruner": "none",
        "trials": "5",
        "max_slots": "2",
        "priority": "5000",
        "seed": "0",
        "parameters": "epochs = 2",
        **changes,
    }


def test_lists_studies_with_their_best(alices: Client, bobs: Client, scene: Scene) -> None:
    page = alices.get("/studies/").content.decode()
    assert "Learning rates" in page
    assert "96.4" in page
    assert "Learning rates" not in bobs.get("/studies/").content.decode()


def test_creates_a_study(alices: Client, scene: Scene) -> None:
    answer = alices.post("/studies/new/", form(scene))
    study = Study.objects.get(name="rates")
    assert (answer.status_code, answer["Location"]) == (302, f"/studies/{study.pk}/")
    assert study.space == {"learning-rate": {"kind": "log_uniform", "low": 0.0001, "high": 0.1}}
    assert (study.trials_wanted, study.parameters, study.options["max_slots"]) == (5, {"epochs": 2}, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"space": "learning-rate"}, "Line 1 is not a parameter"),
        ({"space": "learning-rate = 0:1:log"}, "a logarithmic range begins above 0"),
        ({"sampler": "grid"}, "is continuous"),
        ({"metric": ""}, "Fill in this field"),
        ({"model": "99"}, "This choice is not offered"),
        ({"trials": "0"}, "Enter 1 or more"),
    ],
)
def test_an_error_keeps_what_was_typed(alices: Client, scene: Scene, changes: dict[str, str], sentence: str) -> None:
    answer = alices.post("/studies/new/", form(scene, **changes))
    page = answer.content.decode()
    assert answer.status_code == 400
    assert sentence in page
    assert 'value="rates"' in page
    assert not Study.objects.filter(name="rates").exists()


def test_shows_the_trials_the_best_first(alices: Client, scene: Scene) -> None:
    page = alices.get(address(scene)).content.decode()
    assert "Trial 1 is the best: its last test_accuracy, 96.4, is the highest" in page
    assert page.index('data-trial="1"') < page.index('data-trial="0"') < page.index('data-trial="3"')
    assert "KeyError: &#x27;x&#x27;" in page
    assert "2 complete, 1 pruned, 1 failed" in page


def test_a_version_is_made_of_the_best(alices: Client, scene: Scene) -> None:
    best = scene.study.trials.get(number=1)
    Checkpoint.objects.filter(job=best.job).delete()
    assert "Create a model version" not in html_of(alices.get(address(scene)))
    columns = {"step": 80, "epoch": 2, "size_bytes": 9, "created_at": timezone.now()}
    point = Checkpoint.objects.create(job=best.job, attempt=1, **columns)
    page = html_of(alices.get(address(scene, "now/")))
    assert "Checkpoint of trial 1, step 80:" in page
    assert f'action="/checkpoints/{point.pk}/version/"' in page


def test_the_fresh_part_takes_few_queries(alices: Client, scene: Scene, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(12):
        assert alices.get(address(scene, "now/")).status_code == 200


def test_the_page_has_a_panel_for_each_figure_and_the_fresh_part_leaves_them(alices: Client, scene: Scene) -> None:
    page, fresh = (alices.get(address(scene, rest)).content.decode() for rest in ("", "now/"))
    charts = ["history", "importance", "parallel", "slice", "curves", "gpus"]
    assert re.findall(r'data-chart="([a-z]+)"', page) == charts
    assert f'data-source="/studies/{scene.study.pk}/figures.json"' in page
    assert re.findall(r"<option>(\w+)</option>", page) == ["learning_rate", "width"]
    assert 'id="figures" data-own' in fresh
    assert "data-chart" not in fresh


def test_the_page_takes_few_queries(alices: Client, scene: Scene, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(25):
        assert alices.get(address(scene)).status_code == 200


def test_a_training_that_is_a_trial_links_to_its_study(alices: Client, carols: Client, scene: Scene) -> None:
    for client in (alices, carols):
        page = html_of(client.get(f"/jobs/{scene.done.pk}/"))
        assert f'Trial 1 of study <a href="/studies/{scene.study.pk}/">Learning rates</a>.' in page
    assert "of study" not in html_of(alices.get(f"/jobs/{scene.first.pk}/"))


def test_a_study_of_a_model_is_created_from_its_page(alices: Client, scene: Scene) -> None:
    link = f"/studies/new/?model={scene.model.model_id}"
    assert f'href="{link}"' in alices.get(f"/models/{scene.model.model_id}/").content.decode()
    assert f'<option value="{scene.model.model_id}" selected>' in alices.get(link).content.decode()


def test_pauses_resumes_and_stops(alices: Client, scene: Scene) -> None:
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        assert alices.post(address(scene, f"{verb}/")).status_code == 302
        scene.study.refresh_from_db()
        assert scene.study.state == state
    assert alices.post(address(scene, "explode/")).status_code == 404
    assert alices.post(address(scene, "delete/"))["Location"] == "/studies/"
    assert not Study.objects.filter(pk=scene.study.pk).exists()


def test_adds_trials_seeds_and_own_values(alices: Client, scene: Scene) -> None:
    alices.post(address(scene, "trials/"), {"more": "3"})
    alices.post(address(scene, "seeds/"), {"trial": "1", "count": "2"})
    alices.post(address(scene, "enqueue/"), {"values": "learning_rate = 0.02\nwidth = 64"})
    scene.study.refresh_from_db()
    assert scene.study.trials_wanted == 26
    added = scene.study.trials.filter(number__gt=4).order_by("number")
    assert list(added.values_list("origin", "job_seed")) == [("seed", 1), ("seed", 2), ("user", None)]
    answer = alices.post(address(scene, "enqueue/"), {"values": "learning_rate = 7\nwidth = 64"})
    assert answer.status_code == 400
    assert "is not in the range from 0.001 to 0.1" in answer.content.decode()
    assert "learning_rate = 7" in answer.content.decode()


def test_studies_of_others_do_not_exist(bobs: Client, scene: Scene) -> None:
    assert bobs.get(address(scene)).status_code == 404
    assert bobs.get(address(scene, "now/")).status_code == 404
    assert bobs.get(address(scene, "figures.json")).status_code == 404
    assert bobs.post(address(scene, "stop/")).status_code == 404
    assert not Trial.objects.filter(why__contains="Stopped").exists()

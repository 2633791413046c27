"""The figures of a study from the database: by few queries, however many trials there are."""

from datetime import timedelta
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from core.time import iso
from studies.models import Study, Trial
from tests.factories import JobFactory
from tests.scene import Scene


def figures_of(client: Client, study: Study) -> Any:
    answer = client.get(f"/studies/{study.pk}/figures.json")
    assert answer.status_code == 200
    return answer.json()


def add_trials(scene: Scene, count: int, jobs: int = 0) -> None:
    """Add complete trials; the last ones have a training."""
    now = timezone.now()
    Trial.objects.bulk_create(
        Trial(
            study=scene.study,
            number=number,
            job=JobFactory(owner=scene.alice) if number >= 5 + count - jobs else None,
            values={"learning_rate": 0.001 * (1 + number % 90), "width": 32 if number % 3 else 64},
            state=Trial.State.COMPLETE,
            value=number / 1000,
            created_at=now,
            finished_at=now,
        )
        for number in range(5, 5 + count)
    )


def test_every_figure_shows_the_trials_of_the_study(alices: Client, carols: Client, scene: Scene) -> None:
    made = figures_of(alices, scene.study)
    assert {"history", "parallel", "importance", "slice", "curves", "gpus"} < set(made)
    assert made["trains"] is False
    assert [axis["name"] for axis in made["parallel"]["axes"]] == ["learning_rate", "width", "test_accuracy"]
    assert [row[0] for row in made["parallel"]["places"]] == [1, 0, 2, 3, 4]
    assert made["parallel"]["drawing"].count("data-line") == 5
    assert [trace["name"] for trace in made["curves"]["data"]] == ["Trial 1"]
    [band] = [trace for trace in made["gpus"]["data"] if trace["meta"]["kind"] == "band"]
    assert band["meta"] == {"kind": "band", "job": scene.done.pk, "label": "Trial 1"}
    assert set(figures_of(carols, scene.study)) == set(made)


def test_a_study_without_trials_has_empty_figures(alices: Client, scene: Scene) -> None:
    scene.study.trials.all().delete()
    made = figures_of(alices, scene.study)
    assert made["parallel"]["axes"] == made["curves"]["data"] == []
    assert all(trace["x"] == [] for trace in made["history"]["data"])


def test_a_thousand_trials_cost_no_more_queries_than_few(alices: Client, scene: Scene) -> None:
    with CaptureQueriesContext(connection) as few:
        figures_of(alices, scene.study)
    add_trials(scene, 1000, jobs=30)
    with CaptureQueriesContext(connection) as many:
        made = figures_of(alices, scene.study)
    assert len(many) <= len(few) <= 25
    assert len(made["parallel"]["places"]) == 500
    assert made["parallel"]["note"] == made["slice"]["layout"]["meta"]["note"] != ""


def test_gpus_are_shown_from_the_creation_to_the_last_end(alices: Client, scene: Scene) -> None:
    assert figures_of(alices, scene.study)["gpus"]["layout"]["meta"]["end"] is None
    over = timezone.now() - timedelta(minutes=1)
    Study.objects.filter(pk=scene.study.pk).update(state=Study.State.STOPPED, finished_at=over)
    last = max(scene.study.trials.exclude(finished_at=None).values_list("finished_at", flat=True))
    end = figures_of(alices, scene.study)["gpus"]["layout"]["meta"]["end"]
    assert end == iso(last)

"""The best result of each version of a model: by one metric for all, of trainings that the reader may see."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from insights.version_results import Ended, best_by_version, results_by_version
from jobs.models import Job
from models_registry.models import RegisteredModelVersion
from tests.factories import JobFactory, RegisteredModelVersionFactory, UserFactory
from tests.html import html_of


def ended(job: int, version: int, **metrics: Any) -> Ended:
    return Ended(job, f"job-{job}", version, metrics)


@pytest.mark.parametrize(
    ("metrics", "chosen"),
    [
        ({"loss": 0.1, "accuracy": 90.0, "test_loss": 0.2, "test_accuracy": 88.0}, "test_accuracy"),
        ({"loss": 0.1, "accuracy": 90.0, "test_loss": 0.2}, "accuracy"),
        ({"loss": 0.1, "val_loss": 0.2, "learning_rate": 0.1}, "val_loss"),
        ({"loss": 0.1, "accuracy": float("nan"), "val_accuracy": None}, "loss"),
    ],
)
def test_accuracy_comes_before_loss_and_data_that_was_not_trained_on_before_that_which_was(
    metrics: dict[str, Any], chosen: str
) -> None:
    found = best_by_version([ended(1, 1, **metrics)])
    assert found is not None
    assert found.metric == chosen


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 1), ("loss", 2)])
def test_each_version_has_its_best_training_and_says_how_many_it_had(metric: str, best: int) -> None:
    trainings = [ended(4, 2), ended(3, 1, **{metric: 0.9}), ended(2, 1, **{metric: 0.2}), ended(1, 1, **{metric: 0.9})]
    found = best_by_version(trainings)
    assert found is not None
    second, first = found.versions
    assert (second.number, second.trainings, second.best, second.value) == (2, 1, None, None)
    assert (first.number, first.trainings) == (1, 3)
    assert first.best is not None
    assert first.best.job == best


def test_where_nobody_reports_accuracy_or_loss_there_is_nothing_to_show() -> None:
    assert best_by_version([]) is None
    assert best_by_version([ended(1, 1, learning_rate=0.1, loss="high")]) is None


@pytest.fixture
def versions(db: None) -> list[RegisteredModelVersion]:
    first = RegisteredModelVersionFactory(number=1)
    return [first, RegisteredModelVersionFactory(number=2, model=first.model)]


def finished(version: RegisteredModelVersion, **values: Any) -> Job:
    job: Job = JobFactory(model=version, state="SUCCEEDED", finished_at=timezone.now(), **values)
    return job


def test_trainings_of_others_and_those_that_go_on_do_not_count(versions: list[RegisteredModelVersion]) -> None:
    alice = UserFactory()
    mine = finished(versions[0], owner=alice, final_metrics={"accuracy": 80.0})
    finished(versions[0], final_metrics={"accuracy": 99.0})
    JobFactory(model=versions[1], owner=alice, state="RUNNING", final_metrics={"accuracy": 98.0})
    found = results_by_version(alice, versions[0].model)
    assert found is not None
    assert [(one.number, one.trainings, one.value) for one in found.versions] == [(1, 1, 80.0)]
    assert found.versions[0].best is not None
    assert found.versions[0].best.job == mine.pk
    admins = results_by_version(UserFactory(is_staff=True), versions[0].model)
    assert admins is not None
    assert admins.versions[0].value == 99.0


def test_more_versions_take_no_more_queries(versions: list[RegisteredModelVersion]) -> None:
    alice = UserFactory()
    for version in versions:
        finished(version, owner=alice, final_metrics={"accuracy": 80.0})
    with CaptureQueriesContext(connection) as seen:
        results_by_version(alice, versions[0].model)
    assert len(seen) == 1


def test_the_page_of_a_model_shows_them(versions: list[RegisteredModelVersion], client: Client) -> None:
    alice = UserFactory()
    client.force_login(alice)
    model = versions[0].model
    model.readers = "everybody"
    model.save()
    assert b"by version</h2>" not in client.get(f"/models/{model.pk}/").content
    job = finished(versions[1], owner=alice, final_metrics={"test_accuracy": 97.25})
    page = html_of(client.get(f"/models/{model.pk}/"))
    assert "Test accuracy by version</h2>" in page
    assert f'<a href="/jobs/{job.pk}/">{job.name}</a>' in page
    assert 'value="97.250"' in page
    assert "97.3 %" in page

"""Long trainings cost a page no more than short ones."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Job, MetricPoint
from jobs.queries.curves import chart_metrics, thinned_metrics
from jobs.queries.metrics import MAX_POINTS, thinned_curves, thinned_points
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return JobFactory(final_metrics={"loss": 1.0, "test_loss": 1.0})


def measure(job: Job, name: str, steps: range) -> None:
    now = timezone.now()
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name=name, step=step, epoch=0, value=float(step), at=now) for step in steps
    )


@pytest.mark.parametrize(
    ("steps", "every"),
    [
        (range(1, 101), 1),
        (range(1, 601), 1),
        (range(1, 602), 2),
        (range(1, 5001), 9),
        (range(68, 68 * 50, 68), 1),
        (range(68, 68 * 2000, 68), 4),
    ],
)
def test_the_points_of_a_metric_are_spread_evenly_and_end_with_the_last(job: Job, steps: range, every: int) -> None:
    measure(job, "loss", steps)

    thinned = thinned_points(job, "loss")

    shown = [sample.step for sample in thinned.samples]
    assert thinned.every == every
    assert len(shown) <= MAX_POINTS + 1
    assert shown[-1] == steps[-1]
    assert [sample.step for sample in thinned.even][:-1] == list(steps)[::every][: len(thinned.even) - 1]
    assert thinned.even[-1].step == steps[-1]


@pytest.mark.parametrize("place", [0, 1, 2, 1233, 2998, 2999])
@pytest.mark.parametrize("value", [1e6, -1e6, None])
def test_no_spike_is_lost_wherever_it_stands(job: Job, place: int, value: float | None) -> None:
    measure(job, "loss", range(10, 30_010, 10))
    MetricPoint.objects.filter(job=job, step=10 + 10 * place).update(value=value)

    thinned = thinned_points(job, "loss")

    assert len(thinned.samples) <= MAX_POINTS + 1
    assert [sample.value for sample in thinned.samples if sample.step == 10 + 10 * place] == [value]
    steps = [sample.step for sample in thinned.samples]
    assert steps == sorted(set(steps))


def test_uneven_steps_stay_within_bounds(job: Job) -> None:
    measure(job, "loss", range(1, 3001))
    measure(job, "loss", range(100_000, 101_000))

    assert 10 < len(thinned_points(job, "loss").samples) <= 2 * MAX_POINTS


def test_a_metric_that_nobody_reported_has_no_points(job: Job) -> None:
    assert list(thinned_metrics(job)["loss"].samples) == []


def test_queries_do_not_grow_with_the_steps(job: Job) -> None:
    measure(job, "loss", range(1, 2000))
    measure(job, "test_loss", range(68, 2000, 68))

    with CaptureQueriesContext(connection) as queries:
        thinned_metrics(job)

    assert len(queries) == 4


def test_scripts_that_report_hundreds_of_metrics_do_not_slow_the_page() -> None:
    job = JobFactory(final_metrics={f"metric_{number}": 1.0 for number in range(300)} | {"loss": 1.0})

    names = chart_metrics(job)

    assert names[0] == "loss"
    assert len(names) <= 12


def test_each_of_many_trainings_is_thinned_by_itself_in_two_queries(job: Job) -> None:
    short, none = JobFactory(), JobFactory()
    measure(job, "loss", range(1, 5001))
    measure(short, "loss", range(10, 200, 10))
    with CaptureQueriesContext(connection) as captured:
        curves = thinned_curves([job.pk, short.pk, none.pk], "loss", 100)

    assert len(captured) == 2
    assert set(curves) == {job.pk, short.pk}
    assert curves[job.pk] == thinned_points(job, "loss", 100)
    assert (curves[job.pk].every, len(curves[job.pk].samples)) == (50, 100)
    assert [sample.step for sample in curves[short.pk].samples] == list(range(10, 200, 10))
    assert thinned_curves([none.pk], "loss") == {}

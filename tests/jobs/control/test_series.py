"""Rows of long curves: few, and still right wherever their values count."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.control import series
from jobs.control.metrics import store_steps
from jobs.control.series import Point, thinned
from jobs.control.transition import lock_job
from jobs.files.exact_metrics import exact_values, newest_values
from jobs.files.job_folder import job_folder
from jobs.models import Job, MetricPoint
from jobs.queries.metrics import metric_series, thinned_points
from studies.measures import measured_at
from tests.factories import JobFactory, set_job

VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))


def points_of(values: dict[int, float | None]) -> list[Point]:
    return [Point(1, "loss", step, 0, value, datetime(2026, 1, 1, tzinfo=UTC)) for step, value in values.items()]


@given(st.dictionaries(st.integers(0, 300), VALUES, min_size=1), st.integers(0, 9))
def test_each_span_keeps_its_first_last_least_and_greatest(values: dict[int, float | None], k: int) -> None:
    kept = thinned(points_of(values), k)
    assert [point.step for point, _ in kept] == sorted({point.step for point, _ in kept})
    for span in {step >> k for step in values}:
        steps = [step for step in values if step >> k == span]
        here = [(point, is_first) for point, is_first in kept if point.step >> k == span]
        assert len(here) <= 4
        assert {point.step for point, is_first in here if is_first} == {min(steps)}
        assert here[-1][0].step == max(steps)
        numbers = [values[step] for step in steps if values[step] is not None]
        shown = [point.value for point, _ in here if point.value is not None]
        if numbers:
            assert max(shown) == max(numbers)
        if len(numbers) == len(steps):
            assert min(shown) == min(numbers)


@given(st.dictionaries(st.integers(0, 300), VALUES, min_size=1), st.integers(0, 4), st.integers(0, 4))
def test_thinning_in_two_goes_is_thinning_once(values: dict[int, float | None], k: int, more: int) -> None:
    points = points_of(values)
    assert thinned([point for point, _ in thinned(points, k)], k + more) == thinned(points, k + more)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_ROWS", 64)
    monkeypatch.setattr(series, "KEPT_ROWS", 32)


@pytest.fixture
def job(db: None, small: None) -> Job:
    job = JobFactory()
    set_job(job, state="RUNNING", attempt=1, step=0)
    return job


def loss(step: int) -> float:
    return 1000.0 if step == 333 else 1 / step


def train(job: Job, steps: Sequence[int], attempt: int = 1) -> None:
    records = [{"step": step, "epoch": 0, "at": 1e9 + step, "loss": loss(step), **FIXED} for step in steps]
    path = job_folder(job).attempt(attempt) / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    for first in range(0, len(records), 7):
        store_steps(lock_job(job.pk), records[first : first + 7])


FIXED = {"cursor": 1, "world_size": 1, "generation": 1, "attempt": 1, "progress": 0.5, "samples": 1}


def test_a_long_curve_keeps_few_rows_and_every_spike(job: Job) -> None:
    train(job, range(1, 1001))
    rows = MetricPoint.objects.filter(job=job, name="loss").order_by("step")
    k, count = Job.objects.get(pk=job.pk).run.series["loss"]
    assert k > 0
    assert count == rows.count() < 64
    steps = [row.step for row in rows]
    assert {1, 333, 1000} <= set(steps)
    first_of_spans = {min(step for step in range(1, 1001) if step >> k == span) for span in range((1000 >> k) + 1)}
    assert {row.step for row in rows if row.is_even} == first_of_spans
    curve = thinned_points(job, "loss", most=20)
    assert max(sample.value for sample in curve.samples if sample.value is not None) == 1000.0
    assert 333 not in [sample.step for sample in curve.even], "statistics are not of extremes"


def test_a_short_curve_keeps_all(job: Job) -> None:
    train(job, range(1, 60))
    assert MetricPoint.objects.filter(job=job, is_even=True).count() == 59
    assert Job.objects.get(pk=job.pk).run.series == {"loss": [0, 59]}


def test_exact_values_come_from_the_file(job: Job) -> None:
    train(job, range(1, 501))
    job = Job.objects.get(pk=job.pk)
    assert [point["step"] for point in metric_series(job, "loss", every=1)] == [*range(1, 501)]
    assert [point["step"] for point in metric_series(job, "loss", every=200)] == [1, 201, 401, 500]
    assert newest_values(job, "loss", {0, 77, 600}) == {77: 1 / 77, 600: 1 / 500}
    set_job(job, step=500, progress=1.0)
    assert measured_at(Job.objects.get(pk=job.pk), "loss", 0.431) == loss(216)


@pytest.mark.parametrize("at", ["1e300", "1e15", "-5"])
def test_what_a_script_writes_into_the_file_breaks_no_list(job: Job, at: str) -> None:
    """Trainings of all users were missing from an administrator's list of checkpoints."""
    train(job, range(1, 501))
    with (job_folder(job).attempt(1) / "metrics.jsonl").open("a") as stream:
        large = "1" + 400 * "0"
        stream.write(f'{{"step": 501, "at": {at}, "loss": 0.5}}\n{{"step": 502, "at": 1, "loss": {large}}}\n')
        stream.write(f'{{"step": {large}, "at": 1, "loss": 0.5}}\n')
    exact = list(exact_values(Job.objects.get(pk=job.pk), "loss"))[-2:]
    assert [(one.step, one.value) for one in exact] == [(501, 0.5), (502, None)]
    assert json.dumps(metric_series(Job.objects.get(pk=job.pk), "loss", every=1), default=str)


def test_a_later_attempt_replaces_the_steps_that_it_repeats(job: Job) -> None:
    train(job, range(1, 301))
    set_job(job, attempt=2)
    train(Job.objects.get(pk=job.pk), range(201, 401), attempt=2)
    exact = list(exact_values(Job.objects.get(pk=job.pk), "loss"))
    assert [one.step for one in exact] == [*range(1, 401)]
    assert exact[-1].at == datetime.fromtimestamp(1e9 + 400, UTC)


def test_reports_in_other_pieces_leave_the_same_rows(job: Job) -> None:
    other = JobFactory()
    set_job(other, state="RUNNING", attempt=1, step=0)
    train(job, range(1, 401))
    for first in range(1, 401, 100):
        train(other, range(first, first + 100))
    rows = [
        list(MetricPoint.objects.filter(job=each).order_by("step").values_list("step", "value", "is_even"))
        for each in (job, other)
    ]
    assert rows[0] == rows[1]

"""Tests of the outlook of a training: figures from measures, and an explanation where there are none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from django.utils import timezone
from tidepool.goodput.model import Bounds, ThroughputParameters

from insights.goodput import Outlook, goodput_figure, goodput_outlook, outlook_of, with_kinds
from jobs.models import Job, JobProfile, ThroughputPoint
from scheduling.policies.kind_ratios import Ratios
from scheduling.policies.speedups import Shape
from scheduling.snapshot import JobView, KindRatio, ProfileView
from tests.factories import JobFactory

#: A step is computed in 0.64 s on one GPU; the sum takes 10 ms on a host and 300 ms on several.
PARAMETERS = ThroughputParameters(0.0, 0.01, 0.01, 0.0, 0.3, 0.0, 1.0)
HOSTS = Shape((4, 4), "A")


def job_view(most: int = 8) -> JobView:
    profile = ProfileView(Bounds(64), {"A": PARAMETERS}, largest_ranks=2, points=2)
    return JobView(1, "one", "group", "RUNNING", 5000, 0.0, 1, most, profile=profile)


def measured(ranks: int, kind: str = "A", hosts: int = 1) -> ThroughputPoint:
    batch = 64 // ranks
    return ThroughputPoint(
        gpu_model=kind, hosts=hosts, ranks=ranks, micro_batch=batch, compute_seconds=batch / 100,
        step_seconds=batch / 100 + 0.01 * (ranks > 1), steps=80,
    )  # fmt: skip


def kinds(outlook: Outlook) -> Sequence[str]:
    return [trace["meta"]["kind"] for trace in goodput_figure(outlook)["data"]]


def test_points_lie_on_the_curve_that_was_fitted_to_them() -> None:
    outlook = outlook_of(job_view(), HOSTS, 2, [measured(1), measured(2), measured(1, kind="B")])
    by_size = {size.gpus: size for size in outlook.sizes}
    assert [(point.gpus, point.goodput) for point in outlook.measured] == [
        (count, pytest.approx(by_size[count].goodput)) for count in (1, 2)
    ]
    assert {count for count, size in by_size.items() if size.assumed} == {3, 4, 5, 6, 7, 8}
    assert (outlook.now, by_size[2].batch, by_size[2].micro_batch) == (by_size[2], 64, 32)
    assert kinds(outlook) == ["fitted", "assumed", "measured", "now", "knee"]


def test_the_sentence_says_the_knee_and_what_more_would_do() -> None:
    outlook = outlook_of(job_view(), HOSTS, 2, [measured(1), measured(2)])
    assert outlook.knee == 4
    faster = round(100 * (0.33 / 0.17 - 1))
    assert f"4 GPUs instead of 2 would make it {faster} % faster." in outlook.text
    assert "More than 4 GPUs would make it at most 1 % faster." in outlook.text


def beside_view(beside: float) -> JobView:
    view = job_view()
    assert view.profile is not None
    parameters = replace(PARAMETERS, beside_base=beside)
    return replace(view, profile=replace(view.profile, parameters={"A": parameters}))


def test_the_sentence_says_what_passes_beside_the_gradients() -> None:
    point = measured(1)
    point.step_seconds += 0.36
    outlook = outlook_of(beside_view(0.36), HOSTS, 1, [point])
    assert "36 % of a step on 1 GPU passes beside the gradients" in outlook.text
    assert outlook.measured[0].goodput == pytest.approx(outlook.sizes[0].goodput) == pytest.approx(1.0)
    assert "beside the gradients" not in outlook_of(job_view(), HOSTS, 1, [measured(1)]).text


def test_where_no_curve_fits_the_sentence_says_what_was_measured() -> None:
    view = job_view()
    assert view.profile is not None
    unknown = replace(view, profile=replace(view.profile, parameters={}))
    outlook = outlook_of(unknown, HOSTS, 2, [measured(1), measured(2)])
    assert "(0.64 s on 1 GPU with 64 samples on each, 0.33 s on 2 GPUs with 32 samples on each)" in outlook.text
    assert "a batch that may change stays" in outlook.text


def test_where_several_hosts_were_never_measured_they_are_assumed() -> None:
    view = job_view()
    spread = Shape((1, 1, 1), "A")
    assert outlook_of(view, spread, 2, [measured(1), measured(2)]).sizes[1].assumed
    assert not outlook_of(view, spread, 2, [measured(1), measured(2, hosts=2)]).sizes[1].assumed


def test_a_training_without_gpus_has_a_curve_and_no_present_size() -> None:
    outlook = outlook_of(job_view(), HOSTS, 0, [measured(1)])
    assert (outlook.now, "now" in kinds(outlook)) == (None, False)


def test_large_jobs_are_drawn_through_few_sizes() -> None:
    view = job_view(most=4096)
    assert view.profile is not None
    large = ProfileView(view.profile.bounds, view.profile.parameters, None, largest_ranks=1000)
    view = JobView(1, "one", "group", "RUNNING", 5000, 0.0, 1, 4096, profile=large)
    counts = [size.gpus for size in outlook_of(view, Shape((8,) * 512, "A"), 1000, []).sizes]
    assert len(counts) < 70
    assert {1, 1000, 4000} <= set(counts)


def test_other_kinds_have_a_speed_and_its_origin() -> None:
    view = replace(job_view(), code="mine")
    shapes = [HOSTS, *(Shape((4,), kind) for kind in ("B", "C", "D", "E", "F"))]
    ratios = Ratios(
        [
            KindRatio("B", "A", 2.0, 3, "mine"),
            KindRatio("C", "A", 0.5, 1),
            KindRatio("D", "C", 3.0, 4),
        ]
    )
    outlook = with_kinds(outlook_of(view, HOSTS, 2, [measured(1)]), view, shapes, ratios)
    assert [(kind.gpu_model, kind.speed, kind.source, kind.trainings) for kind in outlook.kinds] == [
        ("B", 2.0, "code", 3), ("C", 0.5, "others", 1), ("D", 1.5, "third", 1), ("E", 1.0, "unknown", 0),
        ("F", 1.0, "unknown", 0),
    ]  # fmt: skip
    assert (
        "One GPU of other kinds, against one A: B: 2 times as fast (median of 3 trainings of this code), "
        "C: 0.5 times as fast (median of 1 training of other code), "
        "D: 1.5 times as fast (estimated by way of C, from 1 training), "
        "E: 1 times as fast (assumed, no training was measured on both); and 1 more kind."
    ) in outlook.text


def test_a_kind_that_was_measured_says_so() -> None:
    view = job_view()
    assert view.profile is not None
    twice = replace(PARAMETERS, compute_per_sample=0.005)
    view = replace(view, profile=replace(view.profile, parameters={"A": PARAMETERS, "B": twice}))
    [kind] = with_kinds(outlook_of(view, HOSTS, 2, []), view, [HOSTS, Shape((4,), "B")], Ratios()).kinds
    assert (kind.speed, kind.source_text) == (pytest.approx(2.0), "measured")


@pytest.mark.django_db
@pytest.mark.parametrize("finished", [None, timezone.now()])
def test_without_a_profile_it_explains(finished: object) -> None:
    state = "SUCCEEDED" if finished else "PENDING"
    outlook = goodput_outlook(JobFactory(state=state, finished_at=finished))
    assert outlook.sizes == outlook.measured == ()
    assert ("ended" if finished else "no GPU yet") in outlook.text
    assert goodput_figure(outlook)["data"] == []


@pytest.mark.django_db
def test_a_training_that_is_over_keeps_its_curve() -> None:
    job: Job = JobFactory(state="SUCCEEDED", finished_at=timezone.now(), max_slots=4)
    fitted = {name: getattr(PARAMETERS, name) for name in PARAMETERS.__slots__}
    JobProfile.objects.create(job=job, batch_size=64, parameters={"A": fitted}, largest_ranks=2, at=timezone.now())
    point = measured(2)
    point.job, point.at = job, timezone.now()
    point.save()
    outlook = goodput_outlook(job)
    assert [size.gpus for size in outlook.sizes] == [1, 2, 3, 4]
    assert [point.gpus for point in outlook.measured] == [2]

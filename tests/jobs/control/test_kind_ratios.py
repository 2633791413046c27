"""Ratios of GPU models: written with profiles, kept beyond a training's end, read with snapshots."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from tidepool.goodput.model import Bounds, ThroughputParameters

from jobs.control import kind_ratios
from jobs.control.kind_ratios import REMEMBERED_FOR, remember, remembered
from jobs.models import Job, KindSpeedRatio
from scheduling.policies.kind_ratios import MeasuredRatio, medians
from scheduling.snapshot import ProfileView
from tests.factories import JobFactory, RegisteredModelVersionFactory

pytestmark = pytest.mark.django_db


def parameters(seconds: float) -> ThroughputParameters:
    return ThroughputParameters(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def profile(**seconds: float) -> ProfileView:
    """Return a profile with these seconds of a step by kind."""
    return ProfileView(Bounds(64), {kind: parameters(each) for kind, each in seconds.items()})


def ratios(job: Job) -> dict[tuple[str, str], float]:
    return {(row.kind, row.base): row.ratio for row in KindSpeedRatio.objects.filter(job=job)}


def test_the_newest_measurement_of_a_training_counts_once() -> None:
    job, now = JobFactory(), timezone.now()
    remember(job, profile(T4=0.4, A100=0.1), now - timedelta(hours=1))
    remember(job, profile(T4=0.4, A100=0.2), now)
    assert ratios(job) == {("T4", "A100"): pytest.approx(0.5)}
    [found] = remembered([], now)
    assert found == MeasuredRatio(job.pk, job.model.digest, "T4", "A100", pytest.approx(0.5))


def test_one_kind_yields_none() -> None:
    remember(JobFactory(), profile(T4=0.4), timezone.now())
    assert not KindSpeedRatio.objects.exists()


def test_ratios_outlive_their_training_and_the_name_of_its_model() -> None:
    job, now = JobFactory(), timezone.now()
    digest = job.model.digest
    remember(job, profile(T4=0.4, A100=0.1), now)
    job.model.model.name = "renamed"
    job.model.model.save()
    job.delete()
    [found] = remembered([digest], now)
    assert (found.code, found.ratio) == (digest, pytest.approx(0.25))


def test_ratios_are_forgotten_after_thirty_days() -> None:
    old, new, now = JobFactory(), JobFactory(), timezone.now()
    remember(old, profile(T4=0.4, A100=0.1), now - REMEMBERED_FOR - timedelta(seconds=1))
    assert remembered([old.model.digest], now) == []
    remember(new, profile(T4=0.4, A100=0.1), now)
    assert set(KindSpeedRatio.objects.values_list("job", flat=True)) == {new.pk}


def test_a_replay_of_the_past_reads_no_later_ratio() -> None:
    now = timezone.now()
    remember(JobFactory(), profile(T4=0.4, A100=0.1), now)
    assert remembered([], now - timedelta(seconds=1)) == []


def test_the_newest_trainings_of_a_code_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_ratios, "MOST_OF_A_CODE", 2)
    version, now = RegisteredModelVersionFactory(), timezone.now()
    jobs = [JobFactory(model=version) for _ in range(4)]
    other = JobFactory(model=RegisteredModelVersionFactory(digest="f" * 64))
    remember(other, profile(T4=0.4, A100=0.1), now - timedelta(hours=9))
    for number, job in enumerate(jobs):
        remember(job, profile(T4=0.4, A100=0.1), now + timedelta(seconds=number))
    kept = set(KindSpeedRatio.objects.values_list("job", flat=True))
    assert kept == {other.pk, jobs[2].pk, jobs[3].pk}


@pytest.mark.parametrize(
    "wrong", [{"ratio": 0.0}, {"ratio": 1e6}, {"kind": "A100", "base": "A100"}], ids=["nothing", "too fast", "one kind"]
)
def test_the_database_refuses_what_is_no_ratio(wrong: dict[str, Any]) -> None:
    row = {"job": JobFactory(), "code": "c", "kind": "T4", "base": "A100", "ratio": 1.0, "at": timezone.now(), **wrong}
    with pytest.raises(IntegrityError), transaction.atomic():
        KindSpeedRatio.objects.create(**row)


def test_changed_code_reads_what_others_have_shown() -> None:
    """A new version has another digest: the ratios of the former one are those of another code."""
    job, now = JobFactory(), timezone.now()
    remember(job, profile(T4=0.4, A100=0.1), now)
    changed = RegisteredModelVersionFactory(model=job.model.model, digest="c" * 64)
    codes = {changed.digest}
    [found] = medians(remembered(codes, now), codes)
    assert (found.code, found.ratio, found.trainings) == ("", pytest.approx(0.25), 1)

"""Times of steps from a coordinator's journal to rows, and what is not believed on the way."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from tidepool.goodput.model import Bounds, NoiseScale

from insights.batch import batch_now
from insights.speed import speed_of
from jobs.control import speed_profiles
from jobs.control.dispatch import launch_spec
from jobs.control.goodput_inputs import profile_of
from jobs.control.outcome import too_large
from jobs.control.snapshots import snapshot
from jobs.control.speed_profiles import refuse_micro_batch
from jobs.messages import text_of
from jobs.models import InstanceGroup, Job, JobProfile, JobRun, SlotClaim
from jobs.states import Reason
from scheduling.policies.speedups import Shape, batch_of, bounds_on
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db

POINT: dict[str, Any] = {
    "kind": "A", "hosts": 1, "ranks": 2, "batch": 32, "compute_seconds": 0.08, "step_seconds": 0.1, "steps": 60,
}  # fmt: skip


ADAPTED: dict[str, Any] = {
    "submitted": 64, "most": 256, "batch": 128, "least_micro_batch": 1, "most_micro_batch": 64, "micro_batch": 64,
    "accumulates": True, "accumulation": 0, "pinned": False, "gain": 1.5, "progress": 12.0, "variance": 30.0,
    "squared_gradient": 0.2, "rate_factors": [1.4, 1.2],
}  # fmt: skip


def tell(
    cluster: Cluster,
    job: Job,
    *times: dict[str, Any],
    batch_size: int = 64,
    adapted: dict[str, Any] | None = None,
    most_micro_batch: int = 0,
) -> None:
    job.refresh_from_db()
    entry = {"step": 9, "batch_size": batch_size, "times": [*times], "adapted": adapted}
    entry["most_micro_batch"] = most_micro_batch
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "profile", **entry)
    cluster.report()


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    job = submit(max_slots=2)
    cluster.turn(2)
    job.refresh_from_db()
    return job


def test_points_are_kept_by_shape_and_fitted(cluster: Cluster, job: Job) -> None:
    tell(cluster, job, POINT, POINT | {"ranks": 1, "batch": 64, "compute_seconds": 0.15, "step_seconds": 0.15})
    tell(cluster, job, POINT | {"step_seconds": 0.11, "steps": 90})
    told = [(point.ranks, point.micro_batch, point.step_seconds, point.steps) for point in job.throughput.all()]
    assert told == [(1, 64, 0.15, 60), (2, 32, 0.11, 90)]
    profile = JobProfile.objects.get(job=job)
    assert (profile.batch_size, profile.points, profile.largest_ranks, profile.revision) == (64, 2, 2, 2)
    [(kind, fitted)] = profile.parameters.items()
    assert kind == "A"
    assert fitted["compute_base"] + 32 * fitted["compute_per_sample"] == pytest.approx(0.08, rel=0.02)
    assert fitted["host_base"] > 0.005, "what two ranks add to computing"


def test_the_start_of_ranks_is_the_median_of_the_newest_claims(cluster: Cluster, job: Job) -> None:
    """A start of more than 30 s is left alone while it lasts; growth costs that time of its new GPUs."""
    InstanceGroup.objects.update(policy="goodput")
    first, second = SlotClaim.objects.filter(job=job).order_by("pk")
    for claim, seconds in ((first, 30.0), (second, 50.0)):
        SlotClaim.objects.filter(pk=claim.pk).update(trains_from=claim.claimed_at + timedelta(seconds=seconds))
    tell(cluster, job, POINT)
    assert JobProfile.objects.get(job=job).start_seconds == pytest.approx(40.0)
    [view] = snapshot(timezone.now()).jobs
    assert view.profile is not None
    assert (view.profile.start_seconds, view.profile.restart_seconds) == (pytest.approx(40.0), pytest.approx(40.0))
    assert {state: replace(view, state=state).is_restarting for state in ("PENDING", "STARTING", "RUNNING")} == {
        "PENDING": False, "STARTING": True, "RUNNING": False
    }  # fmt: skip
    quick = replace(view, state="STARTING", profile=replace(view.profile, restart_seconds=30.0))
    assert not quick.is_restarting


def test_the_largest_micro_batch_is_kept_by_kind(cluster: Cluster, job: Job) -> None:
    tell(cluster, job, POINT, most_micro_batch=48)
    [kind] = set(SlotClaim.objects.kept().filter(job=job).values_list("gpu_model", flat=True))
    assert JobProfile.objects.get(job=job).micro_batches == {kind: 48}
    job.refresh_from_db()
    refuse_micro_batch(job, "other", 20)
    found = profile_of(job.pk)
    assert found is not None
    assert (dict(found.micro_batches), bounds_on(found, "other").max_micro_batch) == ({kind: 48, "other": 10}, 10)


def test_steps_of_many_micro_batches_scale_as_these_do(cluster: Cluster, job: Job) -> None:
    # Eight micro-batches of a step on one GPU, one on each of eight: nothing but their number makes a step longer.
    InstanceGroup.objects.update(policy="goodput")
    tell(
        cluster, job, POINT | {"ranks": 1, "batch": 8, "compute_seconds": 0.1, "step_seconds": 0.1}, most_micro_batch=8
    )
    [view] = snapshot(timezone.now()).jobs
    assert view.profile is not None
    assert view.profile.bounds == Bounds(64, max_micro_batch=8)
    plans = [batch_of(view, Shape((8,), "A"), gpus) for gpus in (1, 2, 8)]
    assert [(plan.micro_batch, plan.accumulation) for plan in plans if plan] == [(8, 7), (8, 3), (8, 0)]
    assert [plan.goodput for plan in plans if plan] == pytest.approx([1.25, 2.5, 10], rel=0.01)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e300, "soon"])
def test_what_cannot_be_changes_nothing(cluster: Cluster, job: Job, seconds: Any) -> None:
    tell(cluster, job, POINT)
    tell(cluster, job, POINT | {"step_seconds": seconds, "steps": 99})
    assert [(point.step_seconds, point.steps) for point in job.throughput.all()] == [(0.1, 60)]
    assert JobProfile.objects.get(job=job).revision == 1


def test_a_batch_that_adapts_reaches_the_scheduler_and_people(cluster: Cluster, job: Job) -> None:
    InstanceGroup.objects.update(policy="goodput")
    JobRun.objects.filter(job=job).update(step=10, progress=0.5)
    tell(cluster, job, POINT, batch_size=128, adapted=ADAPTED)
    [view] = snapshot(timezone.now()).jobs
    assert view.profile is not None
    assert (view.profile.bounds, view.profile.noise) == (Bounds(64, 256, 1, 64), NoiseScale(30.0, 0.2))
    assert view.profile.remaining_steps == pytest.approx(10 * 12 / 9), "in steps at the submitted batch"
    plan = batch_of(view, Shape((2,), "A"), 2)
    assert plan is not None
    assert plan.batch > 64

    job.refresh_from_db()
    tiles = {tile.label: tile.value for tile in speed_of(job)["tiles"]}
    assert (tiles["Batch now"], tiles["Learning rate"]) == ("128", "× 1.2 to 1.4"), "as told, not as foretold"
    now = batch_now(job)
    assert now is not None
    assert (now.batch, now.micro_batch, now.accumulation, now.noise_scale) == (128, 64, 0, pytest.approx(150))
    assert now.efficiency == pytest.approx((150 + 64) / (150 + 128))
    tell(cluster, job, POINT | {"step_seconds": 0.12})
    assert batch_now(job) == now, "what is told without a batch leaves it"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, "much"])
@pytest.mark.parametrize("name", ["variance", "gain", "progress"])
def test_a_batch_that_cannot_be_changes_nothing(cluster: Cluster, job: Job, name: str, value: Any) -> None:
    assert batch_now(job) is None
    tell(cluster, job, adapted=ADAPTED)
    tell(cluster, job, adapted=ADAPTED | {name: value})
    profile = JobProfile.objects.get(job=job)
    assert (profile.adapted, profile.revision) == (ADAPTED, 1)


def test_a_loss_that_rose_is_an_event_once(cluster: Cluster, job: Job) -> None:
    tell(cluster, job, POINT, adapted=ADAPTED)
    for _ in range(2):
        tell(cluster, job, adapted=ADAPTED | {"pinned": True})
    event = job.events.get(reason=Reason.BATCH_PINNED)
    assert "stays at the submitted 64 samples" in text_of(event.detail)


def test_a_micro_batch_without_memory_is_halved_for_the_next_attempt(cluster: Cluster, job: Job) -> None:
    job.refresh_from_db()
    host = cluster.hosts[job.run.lead_host]
    for slot, samples in zip([*host.ranks], (44, 43), strict=True):
        told = {"kind": "A", "samples": samples}
        error = {"kind": "OutOfMemoryError", "message": "CUDA out of memory", "traceback": "", "micro_batch": told}
        host.end(slot, code=1, error=error)
    cluster.report()
    job.refresh_from_db()
    assert launch_spec(job).micro_batch_limits == {"A": 22}
    [said] = [event.text for event in job.events.filter(reason=Reason.OUT_OF_MEMORY) if "micro-batch" in event.text]
    assert "44 samples does not fit into the memory of A" in said


@pytest.mark.parametrize(
    "told", [None, 7, {}, {"kind": "A"}, {"kind": "", "samples": 8}, {"kind": "A", "samples": 1e300}]
)
def test_a_lack_of_memory_that_names_no_batch_halves_nothing(told: Any) -> None:
    assert too_large({"kind": "OutOfMemoryError", "message": "", "micro_batch": told}) is None
    assert too_large({"kind": "ValueError", "message": "", "micro_batch": {"kind": "A", "samples": 8}}) is None


def test_ranks_on_several_kinds_of_gpu_tell_nothing_of_one(cluster: Cluster, job: Job) -> None:
    first = SlotClaim.objects.filter(job=job)[0]
    SlotClaim.objects.filter(pk=first.pk).update(gpu_model="B")
    tell(cluster, job, POINT, POINT | {"ranks": 1})
    assert [point.ranks for point in job.throughput.all()] == [1]


def test_the_newest_shapes_are_kept(cluster: Cluster, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_profiles, "MOST_POINTS", 3)
    for batch in range(1, 6):
        tell(cluster, job, POINT | {"batch": batch})
    assert [point.micro_batch for point in job.throughput.all()] == [3, 4, 5]


def test_a_refusal_is_an_event(cluster: Cluster, job: Job) -> None:
    job.refresh_from_db()
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "profile_refused", why="step_seconds is nan")
    cluster.report()
    event = job.events.get(reason=Reason.PROFILE_REFUSED)
    assert "step_seconds is nan" in text_of(event.detail)

"""Times of steps from a coordinator's journal to rows, and what is not believed on the way."""

from typing import Any

import pytest

from jobs.control import profiles
from jobs.messages import text_of
from jobs.models import Job, JobProfile, SlotClaim
from jobs.states import Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db

POINT: dict[str, Any] = {
    "kind": "A", "hosts": 1, "ranks": 2, "batch": 32, "compute_seconds": 0.08, "step_seconds": 0.1, "steps": 60,
}  # fmt: skip


def tell(cluster: Cluster, job: Job, *times: dict[str, Any], batch_size: int = 64) -> None:
    job.refresh_from_db()
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "profile", step=9, batch_size=batch_size, times=[*times])
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


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e300, "soon"])
def test_what_cannot_be_changes_nothing(cluster: Cluster, job: Job, seconds: Any) -> None:
    tell(cluster, job, POINT)
    tell(cluster, job, POINT | {"step_seconds": seconds, "steps": 99})
    assert [(point.step_seconds, point.steps) for point in job.throughput.all()] == [(0.1, 60)]
    assert JobProfile.objects.get(job=job).revision == 1


def test_ranks_on_several_kinds_of_gpu_tell_nothing_of_one(cluster: Cluster, job: Job) -> None:
    first = SlotClaim.objects.filter(job=job)[0]
    SlotClaim.objects.filter(pk=first.pk).update(gpu_model="B")
    tell(cluster, job, POINT, POINT | {"ranks": 1})
    assert [point.ranks for point in job.throughput.all()] == [1]


def test_the_newest_shapes_are_kept(cluster: Cluster, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MOST_POINTS", 3)
    for batch in range(1, 6):
        tell(cluster, job, POINT | {"batch": batch})
    assert [point.micro_batch for point in job.throughput.all()] == [3, 4, 5]


def test_a_refusal_is_an_event(cluster: Cluster, job: Job) -> None:
    job.refresh_from_db()
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "profile_refused", why="step_seconds is nan")
    cluster.report()
    event = job.events.get(reason=Reason.PROFILE_REFUSED)
    assert "step_seconds is nan" in text_of(event.detail)

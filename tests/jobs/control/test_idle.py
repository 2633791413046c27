"""Tests of trainings that hold GPUs and use none of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from core.errors import Conflict
from jobs import actions
from jobs.control.idle import Idleness, IdleStep, idle_step, watch_idle
from jobs.control.snapshots import snapshot
from jobs.messages import text_of
from jobs.models import InstanceGroup, Job, JobRun
from jobs.states import JobState, Reason
from tests.html import html_of
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import GpuReading

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDLE = Idleness(T0, None, None, None, after=900, grace=300, reclaims=True, can_shrink=True)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("changes", "seconds", "step"),
    [
        ({}, 899, "none"),
        ({}, 900, "warn"),
        ({"after": 0}, 90_000, "none"),
        ({"since": None}, 900, "none"),
        ({"kept_until": at(2000)}, 900, "none"),
        ({"kept_until": at(800)}, 900, "warn"),
        ({"warned_at": at(900)}, 1199, "none"),
        ({"warned_at": at(900)}, 1200, "shrink"),
        ({"warned_at": at(900), "reclaims": False}, 90_000, "none"),
        ({"warned_at": at(900), "can_shrink": False}, 1200, "halt"),
        ({"warned_at": at(900), "shrunk_at": at(1200)}, 1499, "none"),
        ({"warned_at": at(900), "shrunk_at": at(1200)}, 1500, "halt"),
        ({"warned_at": at(900), "since": None}, 1000, "clear"),
        ({"warned_at": at(900), "shrunk_at": at(1200), "since": at(1300)}, 1400, "clear"),
    ],
)
def test_what_is_done_about_an_idle_training(changes: dict[str, object], seconds: int, step: IdleStep) -> None:
    assert idle_step(replace(IDLE, **changes), at(seconds)) == step  # type: ignore[arg-type]


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    """A training on four GPUs that has made a step, and uses none of its GPUs since."""
    job = submit(max_slots=4, min_slots=1)
    cluster.turn(2)
    cluster.train(job)
    idle(job)
    return fresh(job)


def idle(job: Job, minutes: float = 60) -> None:
    """All GPUs of the training have been idle for so long, by readings of now, and it made its last step then."""
    now = timezone.now()
    since = now - timedelta(minutes=minutes)
    job.claims.filter(released_at=None).update(claimed_at=since)
    JobRun.objects.filter(job=job).update(stepped_at=since)
    GpuReading.objects.filter(slot__claims__job=job).update(idle_since=since, at=now)


def fresh(job: Job) -> Job:
    return Job.objects.select_related("run", "instance_group").get(pk=job.pk)


def told(job: Job) -> list[str]:
    return [event.detail["message"] for event in job.events.filter(reason=Reason.GPUS_IDLE).order_by("seq")]


def later(job: Job, **times: float) -> None:
    """The training was warned or shrunk so many seconds ago."""
    JobRun.objects.filter(job=job).update(
        **{name: timezone.now() - timedelta(seconds=seconds) for name, seconds in times.items()}
    )


def reclaiming() -> None:
    InstanceGroup.objects.update(idle_reclaims=True)


def test_by_default_its_owner_is_warned_once_and_that_is_all(job: Job) -> None:
    watch_idle(timezone.now())
    watch_idle(timezone.now())
    later(job, idle_warned_at=10_000)
    watch_idle(timezone.now())
    assert (told(job), fresh(job).state) == (["idle_warned"], JobState.RUNNING)


def test_where_idle_gpus_are_reclaimed_it_shrinks_live_and_is_then_suspended(cluster: Cluster, job: Job) -> None:
    reclaiming()
    watch_idle(timezone.now())
    later(job, idle_warned_at=301)
    watch_idle(timezone.now())
    cluster.turn()
    shrunk = fresh(job)
    assert (shrunk.state, shrunk.run.attempt, shrunk.run.target_slots) == (JobState.RUNNING, 1, 1)
    assert "it has used none of its GPUs, so it has its minimum until it makes a step" in text_of(shrunk.reason_params)
    idle(job)
    later(job, idle_warned_at=700, idle_shrunk_at=301)
    watch_idle(timezone.now())
    stopped = fresh(job)
    assert (stopped.state, stopped.run.after_stop) == (JobState.PREEMPTING, JobState.SUSPENDED)
    assert stopped.run.halt_until is not None
    assert told(job) == ["idle_warned", "idle_shrinks", "idle_halts"]


def test_one_that_makes_a_step_again_grows_again(cluster: Cluster, job: Job) -> None:
    reclaiming()
    watch_idle(timezone.now())
    later(job, idle_warned_at=301)
    watch_idle(timezone.now())
    [view] = snapshot(timezone.now()).jobs
    assert (view.max_slots, view.is_idle) == (1, True)
    cluster.log_step(job, 2)
    cluster.report()
    watch_idle(timezone.now())
    [view] = snapshot(timezone.now()).jobs
    assert (view.max_slots, view.is_idle) == (4, False)
    assert fresh(job).run.idle_warned_at is None


def test_one_that_loads_before_its_first_step_is_not_idle(job: Job) -> None:
    JobRun.objects.update(stepped_at=None)
    watch_idle(timezone.now())
    assert told(job) == ["idle_warned"], "its hour is more than it may take to start"
    JobRun.objects.update(idle_warned_at=None)
    job.claims.update(claimed_at=timezone.now() - timedelta(seconds=settings.TIDEPOOL_LAUNCH_SECONDS + 60))
    watch_idle(timezone.now())
    assert told(job) == ["idle_warned"]


def test_one_gpu_that_works_is_enough(job: Job) -> None:
    GpuReading.objects.filter(pk=GpuReading.objects.filter(slot__claims__job=job)[0].pk).update(idle_since=None)
    watch_idle(timezone.now())
    assert told(job) == []


def test_old_readings_say_nothing(job: Job) -> None:
    GpuReading.objects.update(at=timezone.now() - timedelta(minutes=3))
    watch_idle(timezone.now())
    assert told(job) == []


def test_its_owner_keeps_the_gpus_three_times(job: Job) -> None:
    reclaiming()
    for left in (2, 1, 0):
        watch_idle(timezone.now())
        actions.keep_idle_gpus(job.pk, "alice")
        watch_idle(timezone.now())
        assert fresh(job).run.idle_warned_at is None
        assert job.events.filter(reason=Reason.GPUS_IDLE).last().detail["left"] == left  # type: ignore[union-attr]
        later(job, idle_kept_until=1)
    watch_idle(timezone.now())
    with pytest.raises(Conflict, match="three times already"):
        actions.keep_idle_gpus(job.pk, "alice")


def test_one_that_was_not_warned_has_nothing_to_keep(job: Job) -> None:
    with pytest.raises(Conflict, match="has not been warned"):
        actions.keep_idle_gpus(job.pk, "alice")


def test_the_page_and_rest_keep_them(job: Job, alice: User, alice_client: Client) -> None:
    page = f"/jobs/{job.pk}/notice/"
    assert " hidden>" in html_of(alice_client.get(page))
    watch_idle(timezone.now())
    shown = html_of(alice_client.get(page))
    assert "Keep GPUs for an hour" in shown
    assert "makes no step and uses none of its GPUs" in " ".join(shown.split())
    answer = alice_client.post(f"/api/v1/jobs/{job.pk}/keep-gpus/")
    assert answer.status_code == 200
    assert fresh(job).run.idle_keeps == 1
    assert alice_client.post(f"/api/v1/jobs/{job.pk}/keep-gpus/").status_code == 409

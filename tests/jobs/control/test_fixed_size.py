"""Fixed-size and single-process jobs, through the database alone: all or none, and what outlives a stop."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from jobs import actions
from jobs.control.checkpoints import MARKER, is_resumable, stop_words
from jobs.control.dispatch import build_sync, launch_spec
from jobs.control.hosts import reap_lost_hosts
from jobs.control.job_end import requeue_interrupted
from jobs.files.job_folder import job_folder
from jobs.messages import message
from jobs.models import Checkpoint, InstanceGroup, Job, Rank
from jobs.permissions import Refusal, Refused
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModelVersion
from scheduling.plan import PlanReason
from tests.jobs.cluster import Cluster, moment
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db


@pytest.fixture
def code(code: RegisteredModelVersion) -> RegisteredModelVersion:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    return code


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def started(cluster: Cluster, job: Job) -> Job:
    cluster.turn()
    cluster.train(job, plain=True)
    assert fresh(job).state == JobState.RUNNING
    return fresh(job)


def checkpoints(job: Job) -> Path:
    return job_folder(job).attempt(fresh(job).run.attempt) / "checkpoint"


def held_back_and_resumed(cluster: Cluster, job: Job) -> Job:
    actions.suspend(job.pk, "alice")
    cluster.settle()
    assert fresh(job).state == JobState.SUSPENDED
    actions.resume(job.pk, "alice")
    cluster.turn()
    assert fresh(job).state == JobState.STARTING
    return fresh(job)


def test_it_starts_on_all_its_gpus_and_keeps_them(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=6))
    assert launch_spec(job).engine == "fixed"
    submit(name="other", max_slots=2, priority=9000)
    cluster.turn(3)
    assert (fresh(job).run.slots, fresh(job).run.target_slots) == (6, 6)
    for host in cluster.hosts.values():
        for rank in list(host.ranks.values()):
            if rank.job == job.pk:
                host.end(rank.slot, code=0)
    cluster.report()
    assert fresh(job).state == JobState.SUCCEEDED


def test_it_waits_for_all_of_them(cluster: Cluster, submit: Submit) -> None:
    started(cluster, submit(max_slots=6))
    waiting = submit(name="other", max_slots=4)
    cluster.turn(2)
    assert (fresh(waiting).state, cluster.ranks(waiting)) == (JobState.PENDING, [])


def test_a_killed_rank_ends_the_others_and_all_start_again(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=4))
    [*_, last] = cluster.ranks(job)
    (checkpoints(job) / "half.pt").write_text("what it had written")
    later = time.time() + 3600  # the cluster's clock runs ahead
    os.utime(checkpoints(job) / "half.pt", (later, later))
    host = cluster.hosts[last.member_id.split(".")[0]]
    host.end(last.slot, signal=9)
    host.send()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.PENDING, Reason.RANK_LOST)
    assert (fresh(job).reason_params["message"], fresh(job).reason_params["resumable"]) == ("gang_lost", False)
    assert fresh(job).run.fruitless_starts == 0, "it had saved something"
    assert all(desired.stop for desired in build_sync(host.name).jobs)
    cluster.settle()
    cluster.turn()
    assert (fresh(job).state, fresh(job).run.attempt, len(cluster.ranks(job))) == (JobState.STARTING, 2, 4)
    assert list(checkpoints(job).iterdir()) == [], "its script has not said that it can be resumed"


def test_killed_again_and_again_without_saving_it_fails(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    for life in (1, 2, 3):
        started(cluster, job)
        assert fresh(job).run.attempt == life
        [rank] = cluster.ranks(job)
        host = cluster.hosts[rank.member_id.split(".")[0]]
        host.end(rank.slot, signal=9)
        host.send()
        cluster.settle()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.FAILED, Reason.RANK_LOST)
    assert "3 times in a row without a new file in CHECKPOINT_DIR" in fresh(job).error["message"]


@pytest.mark.parametrize("saves", [True, False])
def test_exit_0_after_sigterm_hands_the_checkpoints_on(cluster: Cluster, submit: Submit, *, saves: bool) -> None:
    job = started(cluster, submit(max_slots=4))
    for host in cluster.hosts.values():
        host.saves_when_stopped = saves
    (checkpoints(job) / "half.pt").write_text("what it had written")
    former = checkpoints(job)
    actions.suspend(job.pk, "alice")
    asked = fresh(job).reason_params
    assert (asked["message"], asked["seconds"]) == ("suspended_with_grace", 10)
    cluster.settle()
    held = fresh(job).reason_params
    assert (held["message"], held["resumable"]) == ("gang_held_back", saves)
    assert is_resumable(fresh(job)) is saves

    actions.resume(job.pk, "alice")
    cluster.turn()
    assert fresh(job).run.attempt == 2
    assert [path.name for path in checkpoints(job).iterdir()] == (["half.pt"] if saves else [])
    assert former.exists() is not saves, "a leftover process cannot write into what was handed on"


def test_once_it_has_said_so_a_kill_takes_nothing_either(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=1))
    for host in cluster.hosts.values():
        host.saves_when_stopped = True
    (checkpoints(job) / "a.pt").write_text("1")
    held_back_and_resumed(cluster, job)
    cluster.train(job, plain=True)
    [rank] = cluster.ranks(job)
    cluster.hosts[rank.member_id.split(".")[0]].end(rank.slot, signal=9)
    cluster.report()
    assert "its script continues from its CHECKPOINT_DIR" in fresh(job).reason_text
    cluster.settle()
    cluster.turn()
    assert (fresh(job).run.attempt, [path.name for path in checkpoints(job).iterdir()]) == (3, ["a.pt"])


def test_a_file_says_beforehand_that_it_can_be_resumed(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=1))
    (checkpoints(job) / MARKER).touch()
    assert is_resumable(fresh(job))
    held_back_and_resumed(cluster, job)
    assert [path.name for path in checkpoints(job).iterdir()] == [MARKER]


def test_what_a_session_saved_stays_where_it_is(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=1))
    for host in cluster.hosts.values():
        host.saves_when_stopped = True
    (checkpoints(job) / "step-5").mkdir()
    path = f"attempt-{job.run.attempt}/checkpoint/step-5"
    Checkpoint.objects.create(
        job=job, attempt=1, step=5, epoch=0, path=path, size_bytes=1, sha256="", created_at=timezone.now()
    )
    resumed = held_back_and_resumed(cluster, job)
    [checkpoint] = launch_spec(resumed).checkpoints
    assert Path(checkpoint).exists()


def test_a_higher_priority_stops_it_as_a_whole(cluster: Cluster, submit: Submit, group: InstanceGroup) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(policy=InstanceGroup.Policy.PRIORITY, preemption=True)
    for host in cluster.hosts.values():
        host.saves_when_stopped = True
    job = started(cluster, submit(max_slots=6))
    (checkpoints(job) / "a.pt").write_text("1")
    urgent = submit(name="urgent", max_slots=4, priority=9000)
    cluster.cycle()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.PREEMPTING, PlanReason.PREEMPTED_BY_PRIORITY)
    cluster.settle()
    assert (fresh(job).state, cluster.ranks(job)) == (JobState.PENDING, [])
    assert (
        fresh(job).reason_text
        == "Stopped. When GPUs are free for it, its script continues from its CHECKPOINT_DIR, if it reads it."
    )
    cluster.turn()
    assert (len(cluster.ranks(urgent)), cluster.ranks(job)) == (4, []), "four are left, and it needs six"
    actions.cancel(urgent.pk, "alice")
    cluster.settle()
    cluster.turn()
    assert (fresh(job).state, len(cluster.ranks(job))) == (JobState.STARTING, 6)
    assert [path.name for path in checkpoints(job).iterdir()] == ["a.pt"]


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_lost_host_ends_the_whole_gang(cluster: Cluster, submit: Submit, is_declared: bool) -> None:
    job = started(cluster, submit(max_slots=8))
    if is_declared:
        (checkpoints(job) / "resumable").touch()
    now = timezone.now()
    lease = timedelta(seconds=30)
    Host.objects.update(last_report_at=now)
    Host.objects.filter(name="gpu-host-2").update(last_report_at=now + 2 * lease)
    reap_lost_hosts(now, now + 2 * lease)
    assert (fresh(job).state, fresh(job).reason_code, fresh(job).run.slots) == (JobState.PENDING, Reason.HOST_LOST, 0)
    assert fresh(job).reason_params == message("gang_host_lost", host="gpu-host-1", resumable=is_declared)


def test_on_a_draining_host_it_finishes(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=8))
    Host.objects.filter(name="gpu-host-1").update(state=Host.State.DRAINING)
    cluster.turn(2)
    assert (fresh(job).state, fresh(job).run.slots, len(cluster.ranks(job))) == (JobState.RUNNING, 8, 8)


def test_its_number_of_gpus_changes_only_while_it_holds_none(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=4))
    with pytest.raises(Refused) as refused:
        actions.change_job(job.pk, actions.JobChange(max_slots=2), "alice")
    assert refused.value.why == Refusal.STARTED
    actions.suspend(job.pk, "alice")
    cluster.settle()
    actions.change_job(job.pk, actions.JobChange(max_slots=2), "alice")
    actions.resume(job.pk, "alice")
    cluster.turn()
    assert (launch_spec(fresh(job)).min_slots, len(cluster.ranks(job))) == (2, 2)


def test_when_the_stack_stops_it_says_how_it_goes_on(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=2))
    requeue_interrupted()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.PENDING, Reason.STACK_STOPPED)
    assert fresh(job).reason_params == message("stack_stopped_gang", resumable=False)


def test_a_checkpoint_of_ours_is_refused(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    folder = job_folder(job).path / "step-1"
    folder.mkdir()
    point = Checkpoint.objects.create(
        job=job, attempt=1, step=1, epoch=0, path="step-1", size_bytes=1, sha256="", created_at=timezone.now()
    )
    with pytest.raises(actions.InvalidSubmission, match="cannot load an initial state: remove it"):
        submit(checkpoint=point.pk)


def test_the_words_beforehand_follow_the_policy(group: InstanceGroup) -> None:
    group.policy, group.preemption = InstanceGroup.Policy.PRIORITY, True
    words = (
        "It cannot shrink. If stopped, it has 10 s to save to CHECKPOINT_DIR; otherwise it starts again; what it left "
        "in its working folder stays, and many scripts continue from it."
    )
    assert stop_words(group) == f"A training of higher priority may stop it. {words}"
    group.policy = InstanceGroup.Policy.FAIRSHARE
    assert stop_words(group) == words
    assert stop_words(group, resumable=True) == (
        "It cannot shrink. If stopped, it has 10 s to save, and continues from its CHECKPOINT_DIR."
    )


def test_what_was_saved_counts_also_where_the_hosts_clock_is_an_hour_ahead(cluster: Cluster, submit: Submit) -> None:
    job = started(cluster, submit(max_slots=1))
    [rank] = cluster.ranks(job)
    host = cluster.hosts[rank.member_id.split(".")[0]]
    Rank.objects.filter(job=job).update(started_at=rank.started_at + 3600)
    Host.objects.filter(name=host.name).update(clock_offsets=[-3600.0] * 20, clock_read_at=timezone.now())
    (checkpoints(job) / "half.pt").write_text("what it had written")
    later = time.time() + 5
    os.utime(checkpoints(job) / "half.pt", (later, later))
    host.end(rank.slot, signal=9)
    host.send(at=moment() + 3600)
    assert fresh(job).state == JobState.PENDING
    assert fresh(job).run.fruitless_starts == 0

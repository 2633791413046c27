"""Whole lives of jobs, from submission to the end, through the database alone."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from jobs import actions
from jobs.control.dispatch import build_sync
from jobs.control.job_end import give_up_halts, requeue_interrupted
from jobs.control.lifecycle import open_claims, resize
from jobs.control.transition import Why
from jobs.files.job_folder import job_folder
from jobs.messages import message, tried
from jobs.models import AllocationPoint, Job, JobEvent, MetricPoint, Rank, SlotClaim
from jobs.states import JobState, RankState, Reason
from scheduling.plan import PlanReason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def sizes(job: Job) -> list[int]:
    return [point.slots for point in AllocationPoint.objects.filter(job=job).order_by("id")]


def open_slots(job: Job) -> int:
    return SlotClaim.objects.filter(job=job, released_at__isnull=True).count()


def states(job: Job) -> list[str]:
    """Every state that its events led through."""
    events = JobEvent.objects.filter(job=job).order_by("seq")
    return [event.new for event in events if event.old != event.new]


def running(cluster: Cluster, job: Job) -> Job:
    cluster.turn()
    cluster.train(job)
    assert fresh(job).state == JobState.RUNNING
    return fresh(job)


def test_a_training_starts_runs_and_succeeds(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    assert fresh(job).state == JobState.STARTING
    assert (fresh(job).run.attempt, fresh(job).run.target_slots, fresh(job).run.slots) == (1, 8, 0)

    cluster.train(job, loss=0.5)
    assert fresh(job).state == JobState.RUNNING
    assert (fresh(job).run.slots, fresh(job).run.generation) == (8, 1)

    cluster.finish(job)
    cluster.settle()
    done = fresh(job)
    assert done.state == JobState.SUCCEEDED
    assert (done.run.slots, done.run.progress, done.reason_code) == (0, 1.0, Reason.COMPLETED)
    assert done.run.final_metrics == {"loss": 0.5}
    assert states(job) == ["PENDING", "STARTING", "RUNNING", "SUCCEEDED"]
    assert sizes(job) == [0, 8, 0]
    assert open_slots(job) == 0


def test_two_trainings_share_and_the_priority_moves_gpus(cluster: Cluster, submit: Submit) -> None:
    first = running(cluster, submit(name="T1"))
    pids = {rank.member_id: rank.pid for rank in cluster.ranks(first)}

    second = submit(name="T2")
    cluster.turn()
    assert fresh(first).run.slots == 8, "nothing is counted as given back before the ranks have switched"
    cluster.train(first, step=2)
    cluster.turn(2)
    cluster.train(second)
    assert (fresh(first).run.slots, fresh(second).run.slots) == (4, 4)

    actions.change_job(second.pk, actions.JobChange(priority=10000), "alice")
    cluster.turn()
    cluster.train(first, step=3)
    cluster.turn(2)
    cluster.train(second, step=2)
    assert (fresh(first).run.slots, fresh(second).run.slots) == (3, 5)
    assert {rank.member_id: rank.pid for rank in cluster.ranks(first)}.items() <= pids.items()

    cluster.finish(first)
    cluster.settle()
    cluster.turn()
    cluster.train(second, step=3)
    assert (fresh(first).state, fresh(second).run.slots) == (JobState.SUCCEEDED, 8)
    assert sizes(first) == [0, 8, 4, 3, 0]
    assert sizes(second) == [0, 4, 5, 8]
    assert states(second) == ["PENDING", "STARTING", "RUNNING"], "it never stopped"


def test_each_size_tells_why(cluster: Cluster, submit: Submit) -> None:
    first = running(cluster, submit(name="T1"))
    submit(name="T2")
    cluster.turn()
    cluster.train(first, step=2)
    points = AllocationPoint.objects.filter(job=first).order_by("id")
    assert [point.reason_code for point in points] == [
        PlanReason.GRANTED,
        PlanReason.GRANTED,
        PlanReason.SHRUNK_FOR_FAIR_SHARE,
    ]
    assert points[2].pause_ms == 12.5
    assert points[2].reason_text


def test_a_slot_is_not_released_while_its_rank_is_there(cluster: Cluster, submit: Submit) -> None:
    first = running(cluster, submit(name="T1"))
    submit(name="T2")
    cluster.turn(3)
    assert open_slots(first) == 8
    assert SlotClaim.objects.filter(job=first, vacating_at__isnull=False, released_at__isnull=True).count() == 4


ERROR = {"kind": "ValueError", "message": "no such layer", "traceback": "Traceback ..."}


def fail_everywhere(cluster: Cluster, job: Job, error: dict[str, str], step: int | None = None) -> None:
    for rank in cluster.ranks(job):
        cluster.hosts[rank.member_id.split(".")[0]].end(rank.slot, code=1, error=error, step=step)
    cluster.report()


def test_an_error_that_ends_all_ranks_is_tried_once_more_and_then_fails_the_job(
    cluster: Cluster, submit: Submit
) -> None:
    job = running(cluster, submit())
    fail_everywhere(cluster, job, ERROR)
    waiting = fresh(job)
    assert (waiting.state, waiting.reason_code) == (JobState.PENDING, Reason.EXIT_NONZERO)
    assert waiting.reason_params["message"] == "failed_once"
    assert waiting.run.error == ERROR

    cluster.settle()
    cluster.turn()
    assert (fresh(job).state, fresh(job).run.attempt, fresh(job).run.error) == (JobState.STARTING, 2, {})
    fail_everywhere(cluster, job, ERROR)
    failed = fresh(job)
    assert (failed.state, failed.reason_code) == (JobState.FAILED, Reason.EXIT_NONZERO)
    assert (failed.run.error, failed.error) == (ERROR, {**ERROR, "tried": tried(failed.reason_params)})
    assert failed.reason_params["tried"] == "same_error"
    cluster.settle()
    assert cluster.ranks(job) == []
    assert open_slots(job) == 0
    assert sizes(job) == [0, 8, 0]


def test_an_error_after_more_steps_is_another_attempt(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    for step in (5, 9, 12):
        cluster.log_step(job, step)
        fail_everywhere(cluster, job, {**ERROR, "step": step})  # type: ignore[dict-item]
        assert (fresh(job).state, fresh(job).run.failure["step"]) == (JobState.PENDING, step)
        cluster.settle()
        cluster.turn()
        job = fresh(job)


def test_an_error_of_one_rank_is_told_and_the_others_train_on(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    ended = cluster.hosts["gpu-host-2"].ranks[1].member_id
    cluster.hosts["gpu-host-2"].end(1, code=1, error=ERROR)
    end = {"member_id": ended, "host": "gpu-host-2", "slot": 1, "code": 1, "signal": None, "error": ERROR, "step": 4}
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "rank_failed", **end, generation=2, by_script=True)
    cluster.report()
    assert fresh(job).state == JobState.RUNNING
    event = job.events.order_by("-seq")[0]
    told = {**message("rank_failed"), "host": "gpu-host-2", "step": 4, "error": "ValueError: no such layer"}
    assert told.items() <= event.detail.items()
    assert event.detail["traceback"] == "Traceback ..."


@pytest.mark.parametrize("goes_on", [True, False], ids=["before the end", "after it"])
def test_an_error_that_the_others_got_past_does_not_fail_a_complete_training(
    cluster: Cluster, submit: Submit, goes_on: bool
) -> None:
    job = running(cluster, submit())
    failed = cluster.hosts["gpu-host-2"].ranks[1].member_id
    cluster.hosts["gpu-host-2"].end(1, code=1, error=ERROR)
    if goes_on:
        members = [member for member in job.generations.get(number=1).members if member["member_id"] != failed]
        values = {"generation": 2, "world_size": len(members), "step": 4, "pause_ms": 9.0, "members": members}
        values |= {"target_revision": job.run.target_revision, "cause": "failure"}
        cluster.hosts[job.run.lead_host].write(job, "coordinator", "generation_active", **values)
    cluster.finish(job)
    over = fresh(job)
    assert (over.state, bool(over.run.error)) == (("SUCCEEDED", False) if goes_on else ("FAILED", True))


def test_an_error_that_comes_again_at_its_step_fails_the_job(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    end = {"member_id": "gpu-host-1.0.1", "host": "gpu-host-1", "slot": 0, "code": 1, "signal": None, "error": ERROR}
    lead = cluster.hosts[job.run.lead_host]
    lead.write(job, "coordinator", "failed", **end, step=4, generation=3, by_script=True)
    lead.write(job, "coordinator", "lost", generation=3)
    cluster.report()
    failed = fresh(job)
    assert (failed.state, failed.reason_code) == (JobState.FAILED, Reason.EXIT_NONZERO)
    assert failed.reason_params["tried"] == "twice_in_two_ranks"
    assert failed.run.error["traceback"] == "Traceback ..."
    cluster.settle()
    assert open_slots(job) == 0


def test_a_rank_killed_while_others_live_is_nobodys_end(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    cluster.hosts["gpu-host-1"].end(0, signal=9)
    cluster.report()
    assert fresh(job).state == JobState.RUNNING
    assert open_slots(job) == 8


def kill_all(cluster: Cluster, job: Job) -> None:
    for host in cluster.hosts.values():
        for rank in [rank for rank in host.ranks.values() if rank.job == job.pk]:
            host.end(rank.slot, signal=9)
    cluster.report()


def test_all_ranks_killed_starts_again_from_the_checkpoint(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    path = str(job_folder(job).attempt(1) / "checkpoint" / "step-7")
    Path(path).mkdir(parents=True)
    lead = cluster.hosts[job.run.lead_host]
    lead.write(job, "coordinator", "checkpoint", step=7, epoch=0, path=path, size_bytes=3, sha256="0" * 64)
    cluster.log_step(job, 9, loss=0.1)
    cluster.report()

    kill_all(cluster, job)
    assert fresh(job).state == JobState.PENDING
    assert fresh(job).reason_code == Reason.RANK_LOST
    assert fresh(job).run.fruitless_starts == 0
    cluster.settle()
    cluster.turn()

    again = fresh(job)
    assert (again.state, again.run.attempt, again.run.step) == (JobState.STARTING, 2, 7)
    assert not MetricPoint.objects.filter(job=job, step__gt=7).exists()
    launch = lead.pull().jobs[0].launch
    assert launch.checkpoints == [path]
    assert launch.folder.endswith("attempt-2")
    cluster.train(job, step=8)
    assert sizes(job) == [0, 8, 0, 8]


def test_a_checkpoint_that_cannot_be_used_is_named_and_not_tried_again(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    lead = cluster.hosts[job.run.lead_host]
    paths = [job_folder(job).attempt(1) / "checkpoint" / f"step-{step}" for step in (7, 9)]
    for step, path in zip((7, 9), paths, strict=True):
        path.mkdir(parents=True)
        lead.write(job, "coordinator", "checkpoint", step=step, epoch=0, path=str(path), size_bytes=3, sha256="0" * 64)
    cluster.report()
    kill_all(cluster, job)
    cluster.settle()
    cluster.turn()
    again = fresh(job)
    assert again.run.step == 9
    assert lead.pull().jobs[0].launch.checkpoints == [str(path) for path in reversed(paths)]

    unusable = [{"path": str(paths[1]), "why": "the checkpoint step-9 is corrupt"}]
    lead = cluster.hosts[again.run.lead_host]
    lead.write(again, "coordinator", "restored", step=7, epoch=0, used=str(paths[0]), unusable=unusable)
    cluster.report()
    assert fresh(job).run.step == 7
    event = job.events.get(reason=Reason.RESTORED)
    assert (event.detail["step"], event.detail["unusable"]) == (7, ["the checkpoint step-9 is corrupt"])
    assert [point.step for point in job.checkpoints.filter(problem="")] == [7]

    lead.write(again, "coordinator", "checkpoint_failed", step=8, epoch=0, error="No space left on device")
    cluster.report()
    assert job.events.get(reason=Reason.CHECKPOINT_FAILED).detail["error"] == "No space left on device"


def test_checkpoints_of_former_attempts_make_room_for_new_ones(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    lead = cluster.hosts[job.run.lead_host]
    for attempt, step in ((1, 5), (1, 7), (2, 9)):
        path = job_folder(job).attempt(attempt) / "checkpoint" / f"step-{step}"
        path.mkdir(parents=True)
        lead.write(
            fresh(job), "coordinator", "checkpoint", step=step, epoch=0, path=str(path), size_bytes=3, sha256="0" * 64
        )
        cluster.report()
        if step == 7:
            kill_all(cluster, job)
            cluster.settle()
            cluster.turn()
            lead = cluster.hosts[fresh(job).run.lead_host]
    assert [(point.attempt, point.step) for point in job.checkpoints.order_by("step")] == [(1, 7), (2, 9)]
    assert not (job_folder(job).attempt(1) / "checkpoint" / "step-5").exists()


def test_checkpoints_that_the_training_removed_are_forgotten(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    lead = cluster.hosts[job.run.lead_host]
    for step in (7, 9):
        path = job_folder(job).attempt(1) / "checkpoint" / f"step-{step}"
        path.mkdir(parents=True)
        lead.write(job, "coordinator", "checkpoint", step=step, epoch=0, path=str(path), size_bytes=3, sha256="0" * 64)
        cluster.report()
    (job_folder(job).attempt(1) / "checkpoint" / "step-7").rmdir()
    path = job_folder(job).attempt(1) / "checkpoint" / "step-11"
    path.mkdir()
    lead.write(job, "coordinator", "checkpoint", step=11, epoch=0, path=str(path), size_bytes=3, sha256="0" * 64)
    cluster.report()

    assert [checkpoint.step for checkpoint in job.checkpoints.order_by("step")] == [9, 11]


def test_three_losses_before_a_step_fail_the_job(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    for _ in range(3):
        assert fresh(job).state == JobState.PENDING
        cluster.turn()
        assert fresh(job).state == JobState.STARTING
        kill_all(cluster, job)
        cluster.settle()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.FAILED, Reason.RANK_LOST)
    assert fresh(job).error["message"] == fresh(job).reason_text != ""


def test_a_lost_training_starts_again_although_its_ranks_came_back(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit(max_slots=2))
    lead = cluster.hosts[job.run.lead_host]
    slots = sorted(lead.ranks)
    for slot in slots:
        lead.end(slot, signal=9)
        lead.start(job.pk, 1, slot)
    cluster.report()
    assert fresh(job).state == JobState.RUNNING, "the coordinator may know of others that have the state"
    lead.write(job, "coordinator", "lost", generation=1)
    cluster.report()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.PENDING, Reason.RANK_LOST)


def test_a_script_without_a_session_succeeds(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    host = next(host for host in cluster.hosts.values() if host.ranks)
    host.end(next(iter(host.ranks)), code=0)
    cluster.report()
    assert fresh(job).state == JobState.SUCCEEDED
    assert states(job) == ["PENDING", "STARTING", "SUCCEEDED"]


def test_cancel_stops_the_ranks_first(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    actions.cancel(job.pk, "alice")
    assert fresh(job).state == JobState.CANCELLING
    assert open_slots(job) == 8
    cluster.settle()
    assert fresh(job).state == JobState.CANCELLED
    assert fresh(job).finished_at is not None
    assert open_slots(job) == 0
    assert sizes(job) == [0, 8, 0]


def test_suspend_and_resume(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    actions.suspend(job.pk, "alice")
    assert fresh(job).state == JobState.PREEMPTING
    cluster.settle()
    assert (fresh(job).state, fresh(job).reason_code) == (JobState.SUSPENDED, Reason.SUSPENDED_BY_USER)
    cluster.turn(2)
    assert fresh(job).state == JobState.SUSPENDED

    actions.resume(job.pk, "alice")
    cluster.turn()
    cluster.train(job, step=5)
    assert (fresh(job).state, fresh(job).run.attempt) == (JobState.RUNNING, 2)


def test_a_suspended_job_stops_by_itself_and_continues_after_that_step(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    lead = cluster.hosts[job.run.lead_host]
    actions.suspend(job.pk, "alice")
    desired_jobs = {name: build_sync(name).jobs[0] for name in cluster.hosts}
    assert {(desired.halt, desired.stop, tuple(desired.wanted)) for desired in desired_jobs.values()} == {
        (True, False, ())
    }
    assert {len(desired.members) for desired in desired_jobs.values()} == {8}

    for rank in cluster.ranks(job):
        cluster.hosts[rank.member_id.split(".")[0]].end(rank.slot, code=0)
    for host in cluster.hosts.values():
        host.applied = build_sync(host.name).revision
    cluster.report()
    assert (fresh(job).state, open_slots(job)) == (JobState.PREEMPTING, 0), "its coordinator has not said how far it is"

    path = job_folder(job).attempt(1) / "checkpoint" / "step-12"
    path.mkdir(parents=True)
    lead.write(fresh(job), "coordinator", "checkpoint", step=12, epoch=0, path=str(path), size_bytes=3, sha256="0" * 64)
    lead.write(fresh(job), "coordinator", "halted", step=12, epoch=0)
    cluster.report()
    assert fresh(job).state == JobState.SUSPENDED
    told = job.events.get(reason=Reason.HALTED)
    assert (told.detail["message"], told.detail["step"]) == ("halted", 12)
    assert all(not build_sync(name).jobs for name in cluster.hosts), "its shims end"

    actions.resume(job.pk, "alice")
    cluster.turn()
    assert (fresh(job).state, fresh(job).run.step) == (JobState.STARTING, 12)
    assert lead.pull().jobs[0].launch.checkpoints == [str(path)]


def test_a_job_that_does_not_stop_by_itself_is_ended(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    actions.suspend(job.pk, "alice")
    give_up_halts(timezone.now() + timedelta(seconds=30))
    assert not job.events.filter(reason=Reason.HALT_TIMEOUT).exists(), "it has a minute"
    give_up_halts(timezone.now() + timedelta(seconds=61))
    assert job.events.get(reason=Reason.HALT_TIMEOUT).detail["step"] is None, "it has no checkpoint"
    assert {desired.stop for name in cluster.hosts for desired in build_sync(name).jobs} == {True}
    cluster.settle()
    assert fresh(job).state == JobState.SUSPENDED


def test_a_job_that_loses_all_its_ranks_while_it_stops_is_held_back(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    actions.suspend(job.pk, "alice")
    for host in cluster.hosts.values():
        host.applied = build_sync(host.name).revision
    kill_all(cluster, job)
    cluster.hosts[job.run.lead_host].write(fresh(job), "coordinator", "lost", generation=1)
    cluster.report()
    assert fresh(job).state == JobState.SUSPENDED
    assert not job.events.filter(reason=Reason.HALTED).exists()


def test_a_job_that_finishes_while_it_is_stopped_has_succeeded(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    actions.suspend(job.pk, "alice")
    cluster.finish(job)
    assert fresh(job).state == JobState.SUCCEEDED


def test_the_lead_moves_when_its_slots_are_gone(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    assert job.run.lead_host == "gpu-host-1"
    leaving = [claim.slot for claim in open_claims(job) if claim.slot.host.name == "gpu-host-1"]
    why = Why(PlanReason.REBALANCED, message("rank_lost"), "scheduler")
    resize(job, [], leaving, 4, why)
    cluster.settle()
    assert fresh(job).run.lead_host == "gpu-host-1", "its ranks are still there"
    cluster.train(job, step=2)
    cluster.settle()
    assert fresh(job).run.lead_host == "gpu-host-2"
    assert [desired.lead for desired in cluster.hosts["gpu-host-2"].pull().jobs] == [True]


def test_stack_stopped_and_started(cluster: Cluster, submit: Submit) -> None:
    trains, stops, held = running(cluster, submit(max_slots=2)), submit(max_slots=2), submit(max_slots=2)
    cluster.turn()
    actions.cancel(stops.pk, "alice")
    actions.suspend(held.pk, "alice")
    waits = submit(name="waits")

    assert requeue_interrupted() == 1
    assert (fresh(trains).state, fresh(trains).reason_code) == (JobState.PENDING, Reason.STACK_STOPPED)
    after = [fresh(job).state for job in (stops, held, waits)]
    assert after == [JobState.CANCELLED, JobState.SUSPENDED, JobState.PENDING]
    assert not SlotClaim.objects.filter(released_at__isnull=True).exists()
    assert set(Rank.objects.values_list("state", flat=True)) == {RankState.LOST}
    assert cluster.cycle() is not None
    assert fresh(trains).state == JobState.PENDING, "no executor has reported yet"
    assert requeue_interrupted() == 0

    for host in cluster.hosts.values():
        host.ranks.clear()
        host.boot = "boot-2"
    cluster.report()
    cluster.settle()
    cluster.cycle()
    assert (fresh(trains).state, fresh(trains).run.attempt) == (JobState.STARTING, 2)


def test_times_of_a_life_are_in_order(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    cluster.finish(job)
    done = fresh(job)
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.submitted_at <= done.started_at <= done.finished_at <= timezone.now()

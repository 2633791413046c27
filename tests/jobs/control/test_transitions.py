"""States follow the table, one writer wins, and the events tell the whole story."""

import itertools

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs import actions
from jobs.control.job_end import finish, requeue_interrupted
from jobs.control.lifecycle import preempt
from jobs.control.transition import StaleJob, Why
from jobs.control.transition import transition as move
from jobs.messages import message
from jobs.models import Generation, Job, JobEvent, JobRun, SlotClaim
from jobs.permissions import Refused
from jobs.queries.serializers import JobStateOutput, as_json, changed_fields
from jobs.states import JOB_TRANSITIONS, TERMINAL, GenerationState, JobState, Reason
from scheduling.plan import PlanReason
from tests.factories import JobFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db

WHY = Why(Reason.COMPLETED, message("complete"), "system")
PAIRS = list(itertools.product(JobState, JobState))


def job_in(state: JobState) -> Job:
    job = JobFactory()
    finished = job.submitted_at if state in TERMINAL else None
    Job.objects.filter(pk=job.pk).update(state=state, finished_at=finished)
    job.refresh_from_db()
    return job


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_only_what_the_table_has_is_possible(old: JobState, new: JobState) -> None:
    job = job_in(old)
    changes = {"finished_at": job.submitted_at} if new in TERMINAL else {}
    if (old, new) in JOB_TRANSITIONS:
        move(job, new, WHY, **changes)
        expected = new
    else:
        with pytest.raises(StaleJob):
            move(job, new, WHY, **changes)
        expected = old
    assert Job.objects.get(pk=job.pk).state == expected
    assert JobEvent.objects.filter(job=job).count() == (expected != old)


def test_of_two_writers_one_wins() -> None:
    first = job_in(JobState.PENDING)
    second = Job.objects.get(pk=first.pk)
    move(first, JobState.SUSPENDED, WHY)
    with pytest.raises(StaleJob):
        move(second, JobState.STARTING, WHY, attempt=1)
    row = Job.objects.get(pk=first.pk)
    assert (row.state, row.run.attempt) == (JobState.SUSPENDED, 0)
    assert JobEvent.objects.filter(job=first).count() == 1


def test_a_stale_end_releases_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    seen = Job.objects.get(pk=job.pk)
    actions.cancel(job.pk, "alice")
    with pytest.raises(StaleJob):
        finish([seen], JobState.SUCCEEDED, WHY, progress=1.0)
    assert Job.objects.get(pk=job.pk).state == JobState.CANCELLING


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_what_is_over_stays_over(state: JobState) -> None:
    job = job_in(state)
    for ask in (actions.suspend, actions.resume):
        with pytest.raises(Refused):
            ask(job.pk, "alice")
    with pytest.raises(Refused):
        actions.change_job(job.pk, actions.JobChange(priority=1), "alice")
    with pytest.raises(Refused):
        actions.change_job(job.pk, actions.JobChange(max_slots=1), "alice")
    assert Job.objects.get(pk=job.pk).state == state


def test_cancelling_twice_is_cancelling_once(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    actions.cancel(job.pk, "alice")
    events = JobEvent.objects.count()
    assert actions.cancel(job.pk, "alice").state == JobState.CANCELLED
    assert JobEvent.objects.count() == events


def test_a_priority_outside_its_range_is_refused(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    for priority in (0, 10001, True, 1.5):
        with pytest.raises(actions.InvalidSubmission) as caught:
            actions.change_job(job.pk, actions.JobChange(priority=priority), "alice")  # type: ignore[arg-type]
        assert list(caught.value.fields) == ["priority"]


def test_limits_are_checked_again_when_they_change(cluster: Cluster, submit: Submit) -> None:
    job = submit(min_slots=2)
    for wrong in (1, 9):
        with pytest.raises(actions.InvalidSubmission):
            actions.change_job(job.pk, actions.JobChange(max_slots=wrong), "alice")
    actions.change_job(job.pk, actions.JobChange(max_slots=4), "alice")
    assert Job.objects.get(pk=job.pk).max_slots == 4


def test_asking_for_less_is_possible_while_hosts_are_away(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    Host.objects.update(state=Host.State.OFFLINE)
    actions.change_job(job.pk, actions.JobChange(max_slots=4), "alice")
    assert Job.objects.get(pk=job.pk).max_slots == 4
    with pytest.raises(actions.InvalidSubmission):
        actions.change_job(job.pk, actions.JobChange(max_slots=5), "alice")


def test_holding_back_a_job_that_is_being_stopped(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    preempt(Job.objects.get(pk=job.pk), Why(PlanReason.PREEMPTED_BY_PRIORITY, message("stopped"), "scheduler"))
    actions.suspend(job.pk, "alice")
    actions.resume(job.pk, "alice")
    actions.suspend(job.pk, "alice")
    cluster.settle()
    assert Job.objects.get(pk=job.pk).state == JobState.SUSPENDED


ASKED = ("cancel", "suspend", "resume", "raise priority", "fewer", "turn", "report", "train", "finish", "kill", "stop")


def act(cluster: Cluster, job: Job, asked: str) -> None:
    job.refresh_from_db()
    match asked:
        case "turn":
            cluster.turn()
        case "report":
            cluster.settle()
        case "train" if job.state in (JobState.STARTING, JobState.RUNNING):
            cluster.settle()
            if cluster.ranks(job):
                cluster.train(job, step=job.run.step + 1)
        case "finish" if job.state in (JobState.RUNNING, JobState.PREEMPTING):
            cluster.finish(job)
        case "kill":
            for host in cluster.hosts.values():
                for slot in [rank.slot for rank in host.ranks.values() if rank.job == job.pk]:
                    host.end(slot, signal=9)
            cluster.report()
        case "stop":
            requeue_interrupted()
            for host in cluster.hosts.values():
                host.ranks.clear()
        case "raise priority":
            actions.change_job(job.pk, actions.JobChange(priority=job.priority % 10000 + 1), "alice")
        case "fewer":
            actions.change_job(job.pk, actions.JobChange(max_slots=max(job.min_slots, job.max_slots - 1)), "alice")
        case "cancel" | "suspend" | "resume":
            getattr(actions, asked)(job.pk, "alice")


def check(job: Job) -> None:
    """Check what holds after every action."""
    row = Job.objects.get(pk=job.pk)
    state = ""
    for seq, event in enumerate(JobEvent.objects.filter(job=job).order_by("seq"), start=1):
        assert event.seq == seq
        assert event.old == state
        assert event.old in ("", event.new) or (event.old, event.new) in JOB_TRANSITIONS
        state = event.new
    assert row.state == state
    assert (row.finished_at is not None) == (row.state in TERMINAL)
    assert row.run.slots == 0 or row.state not in (*TERMINAL, JobState.PENDING, JobState.SUSPENDED)
    active = Generation.objects.filter(job=job, state=GenerationState.ACTIVE)
    assert active.count() == (row.run.slots > 0)
    claims = SlotClaim.objects.filter(job=job, released_at__isnull=True)
    if row.state not in (JobState.STARTING, JobState.RUNNING):
        assert not claims.filter(vacating_at__isnull=True).exists()


def play(submit: Submit, asked: list[tuple[int, str]]) -> None:
    cluster = Cluster.of("gpu-host-1", "gpu-host-2")
    jobs = [submit(name="T1"), submit(name="T2", min_slots=2)]
    for number, what in asked:
        try:
            act(cluster, jobs[number], what)
        except Refused:
            assert what in ("cancel", "suspend", "resume", "raise priority", "fewer")
        for job in jobs:
            check(job)
    for job in jobs:
        if Job.objects.get(pk=job.pk).state not in TERMINAL:
            actions.cancel(job.pk, "alice")
    cluster.settle()
    for job in jobs:
        check(job)
        assert Job.objects.get(pk=job.pk).state in TERMINAL
    assert not SlotClaim.objects.filter(released_at__isnull=True).exists()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(asked=st.lists(st.tuples(st.sampled_from((0, 1)), st.sampled_from(ASKED)), max_size=10))
def test_the_state_is_the_fold_of_the_events(submit: Submit, asked: list[tuple[int, str]]) -> None:
    with transaction.atomic():
        play(submit, asked)
        transaction.set_rollback(True)  # each example begins with an empty cluster


def test_the_fields_that_depend_on_columns_are_those_of_the_whole() -> None:
    job = JobFactory(state=JobState.RUNNING, step=7, final_metrics={"loss": 0.5})
    whole = as_json(JobStateOutput, job)
    every = {field.name for model in (Job, JobRun) for field in model._meta.get_fields()}
    assert changed_fields(JobStateOutput, job, every) == whole
    assert changed_fields(JobStateOutput, job, {"step", "final_metrics"}) == {
        "step": 7,
        "final_metrics": {"loss": 0.5},
    }
    assert changed_fields(JobStateOutput, job, {"reason_params"}) == {name: whole[name] for name in ("reason", "error")}
    assert changed_fields(JobStateOutput, job, {"series"}) == {}

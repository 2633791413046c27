"""Queues of instance groups follow each plan; their forecasts are bounded, and what did not change is not written."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import actions
from jobs.actions.bulk import cancel_many
from jobs.actions.groups import change_instance_group
from jobs.control import queues
from jobs.control.plans import LeadershipLost
from jobs.control.queues import KnownLengths, QueueWriter
from jobs.control.snapshots import snapshot
from jobs.management.commands.run_scheduler import Scheduler
from jobs.models import AllocationPoint, GroupQueue, InstanceGroup, Job, QueuedJob, SchedulerLease
from jobs.states import JobState
from scheduling.forecast import expected_starts
from scheduling.schedule import run_cycle
from tests.factories import InstanceGroupFactory, JobFactory, set_job
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@dataclass
class Plans:
    """A leading scheduler whose forecasts see a clock of the test's."""

    cluster: Cluster
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(threading.Event()))
    seconds: float = 1000.0

    def __post_init__(self) -> None:
        SchedulerLease.objects.all().delete()
        self.scheduler._queues = QueueWriter(lambda: self.seconds)

    def next(self) -> None:
        self.scheduler.cycle()
        self.cluster.epoch = SchedulerLease.objects.get().epoch


@pytest.fixture
def waiting(cluster: Cluster, submit: Submit) -> list[Job]:
    """One trains on all eight GPUs and is half done after five minutes; these wait for it, in this order."""
    first = submit(max_slots=8, min_slots=8, priority=9000)
    cluster.turn()
    cluster.train(first, 50)
    began = timezone.now() - timedelta(seconds=300)
    AllocationPoint.objects.filter(job=first).update(at=began)
    return [submit(name=f"W{number}", max_slots=8, min_slots=8, priority=5000 - 10 * number) for number in range(4)]


@pytest.fixture
def plans(cluster: Cluster, waiting: list[Job]) -> Plans:
    return Plans(cluster)


def queue() -> list[QueuedJob]:
    return [one for row in GroupQueue.objects.all() for one in row.queued()]


def order() -> list[int]:
    return [one.job for one in queue()]


def test_there_is_no_place_before_the_first_plan(waiting: list[Job], plans: Plans) -> None:
    assert order() == []
    plans.next()
    assert order() == [job.pk for job in waiting]


def _more_important(jobs: list[Job], carol: User) -> None:
    actions.change_job(jobs[3].pk, actions.JobChange(priority=8000), "alice")


def _fewer(jobs: list[Job], carol: User) -> None:
    cancel_many([jobs[1].pk], carol)


def _held_back(jobs: list[Job], carol: User) -> None:
    actions.suspend(jobs[0].pk, "alice")


def _in_order_of_submission(jobs: list[Job], carol: User) -> None:
    actions.change_job(jobs[3].pk, actions.JobChange(priority=8000), "alice")
    change_instance_group(jobs[0].instance_group_id, {"policy": "fifo"}, carol)


@pytest.mark.parametrize(
    ("change", "then"),
    [
        (_more_important, [3, 0, 1, 2]),
        (_fewer, [0, 2, 3]),
        (_held_back, [1, 2, 3]),
        (_in_order_of_submission, [0, 1, 2, 3]),
    ],
)
def test_the_next_plan_moves_them(
    waiting: list[Job], plans: Plans, carol: User, change: Callable[[list[Job], User], None], then: list[int]
) -> None:
    plans.next()
    change(waiting, carol)
    assert order() == [job.pk for job in waiting]

    plans.next()

    assert order() == [waiting[number].pk for number in then]


def test_a_new_training_is_queued_by_the_next_plan(waiting: list[Job], plans: Plans, submit: Submit) -> None:
    plans.next()
    newest = submit(name="newest", max_slots=8, min_slots=8, priority=4995)
    plans.next()
    assert order() == [waiting[0].pk, newest.pk, *(job.pk for job in waiting[1:])]


def test_the_plan_that_starts_a_training_takes_it_out(cluster: Cluster, waiting: list[Job], plans: Plans) -> None:
    plans.next()
    cluster.finish(Job.objects.get(state=JobState.RUNNING))
    cluster.settle()
    plans.next()
    assert Job.objects.get(pk=waiting[0].pk).state == JobState.STARTING
    assert order() == [job.pk for job in waiting[1:]]


def test_a_group_where_nobody_waits_any_more_has_no_queue(waiting: list[Job], plans: Plans, carol: User) -> None:
    plans.next()
    cancel_many([job.pk for job in waiting], carol)
    plans.next()
    assert not GroupQueue.objects.exists()


def test_each_group_has_a_queue_of_its_own(waiting: list[Job], plans: Plans) -> None:
    """The other group's training cannot start here either: all GPUs are held."""
    same = {name: getattr(waiting[0], name) for name in ("owner", "model", "dataset")}
    group = InstanceGroupFactory(name="other", resource_group=waiting[0].instance_group.resource_group)
    other = JobFactory(**same, instance_group=group, min_slots=8, max_slots=8)
    plans.next()
    rows = {row.group.name: [one.job for one in row.queued()] for row in GroupQueue.objects.select_related("group")}
    assert rows == {"sig-elastic": [job.pk for job in waiting], "other": [other.pk]}


def test_a_start_is_a_moment(waiting: list[Job], plans: Plans) -> None:
    """The rest of the first training takes as long as its first half: five minutes."""
    plans.next()
    first = queue()[0]
    assert first.earliest == pytest.approx(timezone.now().timestamp() + 300, abs=10)
    assert first.latest == pytest.approx(timezone.now().timestamp() + 300, abs=10)
    assert [(one.earliest, one.latest) for one in queue()[1:]] == [(None, None)] * 3, "nobody knows how long it takes"


def test_the_moment_stays_while_the_lengths_grow_old(
    waiting: list[Job], plans: Plans, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans.next()
    before = queue()[0]
    later = timezone.now() + timedelta(seconds=25)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    plans.seconds += 25
    newest = submit(name="newest", max_slots=8, min_slots=8, priority=4995)
    plans.next()
    assert newest.pk in order()
    after = plans.scheduler._queues._forecast[before.job]
    assert after.earliest == pytest.approx(before.earliest, abs=1)


def writes(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        act()
    return sum("jobs_groupqueue" in query["sql"] for query in queries)


def test_what_did_not_change_is_not_written(waiting: list[Job], plans: Plans) -> None:
    assert writes(plans.next) == 2
    plans.seconds += 1000
    assert [writes(plans.next) for _ in range(3)] == [0, 0, 0]


def test_a_start_that_moves_a_little_is_not_written(
    waiting: list[Job], plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    running = Job.objects.get(state=JobState.RUNNING)
    plans.next()
    counts = []
    for progress in (0.504, 0.6):
        now += timedelta(seconds=31)
        plans.seconds += 31
        AllocationPoint.objects.filter(job=running).update(at=now - timedelta(seconds=300))
        set_job(running, progress=progress)
        counts.append(writes(plans.next))
    assert counts[1] > 0
    assert queue()[0].earliest == pytest.approx(now.timestamp() + 200, abs=2)


@pytest.fixture
def forecasts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A 1 for each forecast of a queue."""
    made: list[int] = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return expected_starts(*given)

    monkeypatch.setattr(queues, "expected_starts", counted)
    return made


def test_a_forecast_is_made_again_only_if_a_plan_changes(
    waiting: list[Job], plans: Plans, forecasts: list[int], carol: User
) -> None:
    plans.next()
    plans.seconds += 1000
    plans.next()
    assert len(forecasts) == 1
    _fewer(waiting, carol)
    plans.next()
    assert len(forecasts) == 2


def test_how_far_others_are_is_forecast_anew_after_half_a_minute(
    waiting: list[Job], plans: Plans, forecasts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans.next()
    later = timezone.now() + timedelta(seconds=31)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    plans.seconds += 31
    plans.next()
    assert len(forecasts) == 2


def test_positions_do_not_wait_for_a_forecast(
    waiting: list[Job], plans: Plans, submit: Submit, forecasts: list[int]
) -> None:
    plans.next()
    newest = submit(name="newest", max_slots=8, min_slots=8, priority=8000)
    plans.seconds += 4
    plans.next()
    assert (queue()[0], len(forecasts)) == (QueuedJob(newest.pk, None, None), 1)
    plans.seconds += 1
    plans.next()
    assert (queue()[0].job, len(forecasts)) == (newest.pk, 2)
    assert queue()[0].earliest is not None


def test_dear_forecasts_are_rarer(
    waiting: list[Job], plans: Plans, carol: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two seconds: the next one comes after a hundred."""
    made = []

    def slow(*given: Any) -> Any:
        made.append(plans.seconds)
        plans.seconds += 2
        return expected_starts(*given)

    monkeypatch.setattr(queues, "expected_starts", slow)
    plans.next()
    _fewer(waiting, carol)
    for pause in (0, 99, 1):
        plans.seconds += pause
        plans.next()
    assert made == [1000.0, 1102.0]


def test_a_new_leader_writes_everything(waiting: list[Job], plans: Plans, group: InstanceGroup) -> None:
    plans.next()
    GroupQueue.objects.update(jobs=[])
    other = InstanceGroupFactory(name="other")
    GroupQueue.objects.create(group=other, jobs=[[1, None, None]])
    Plans(plans.cluster).next()
    assert order() == [job.pk for job in waiting]
    assert not GroupQueue.objects.filter(group=other).exists()


def test_who_lost_the_lead_writes_no_queue(waiting: list[Job], plans: Plans) -> None:
    now = timezone.now()
    epoch = SchedulerLease.objects.get_or_create(pk=1, defaults={"epoch": 7})[0].epoch
    with pytest.raises(LeadershipLost):
        QueueWriter().write(run_cycle(snapshot(now)), KnownLengths({}, now), epoch - 1)
    assert order() == []

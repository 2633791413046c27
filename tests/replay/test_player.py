"""Reading the recorded history, and the results of its replay."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from tidepool.protocol import AdaptedBatch, to_json

from core.models import AuditEntry
from jobs.messages import message
from jobs.models import (
    AllocationPoint,
    Generation,
    InstanceGroup,
    Job,
    JobEvent,
    JobProfile,
    JobRun,
    MetricPoint,
    SlotClaim,
    ThroughputPoint,
)
from jobs.states import JobState, Reason
from replay.actions import ReplaySpec, ask_for_replay
from replay.history import read_history
from replay.models import Replay
from replay.player import JOB_COLUMNS, alternative_of, run_replay
from replay.sentences import change_phrases
from replay.visibility import at_moment
from scheduling.replay.world import JobChange, Pool, Rules
from scheduling.snapshot import Share
from tests.factories import InstanceGroupFactory, JobFactory, ResourceGroupFactory, UserFactory, host_with_slots
from workers.models import CapacityPoint, Host, Slot

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
END = START + timedelta(hours=1)

pytestmark = pytest.mark.django_db


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def group() -> InstanceGroup:
    group: InstanceGroup = InstanceGroupFactory(
        name="all", resource_group=ResourceGroupFactory(name="gpus", slot_rule="ngpus"), policy="fifo", preemption=False
    )
    host = host_with_slots("a", 4)
    CapacityPoint.objects.filter(host=host).update(at=at(-3600))
    return group


def trained(group: InstanceGroup, came: float, began: float, seconds: float, **values: Any) -> Job:
    """Create a training that held all four GPUs; its start took 5 s, its end 1 s."""
    over = began + 5 + seconds
    usual = {"state": JobState.SUCCEEDED, "finished_at": at(over + 1), "progress": 1.0, "max_slots": 4}
    job: Job = JobFactory(instance_group=group, submitted_at=at(came), started_at=at(began), **{**usual, **values})
    members = [{"member_id": str(n), "rank": n, "host": "a", "slot": n} for n in range(4)]
    Generation.objects.create(job=job, attempt=1, number=1, state="ENDED", world_size=4, members=members)
    common = {"job": job, "attempt": 1, "reason_code": Reason.STARTED}
    AllocationPoint.objects.create(at=at(began), slots=0, generation=0, **common)
    AllocationPoint.objects.create(at=at(began + 5), slots=4, generation=1, **common)
    if job.finished_at is not None:
        AllocationPoint.objects.create(at=at(over), slots=0, generation=1, **common)
    for slot in Slot.objects.filter(host__name="a"):
        SlotClaim.objects.create(
            slot=slot, job=job, attempt=1, claimed_at=at(began), released_at=job.finished_at, trains_from=at(began + 5)
        )
    return job


def profiled(job: Job) -> None:
    """Give the job a profile by which it is nearly as fast on one GPU."""
    parameters = {
        "compute_base": 1.0, "compute_per_sample": 1e-4, "host_base": 0.1, "host_per_rank": 0.0, "network_base": 0.1,
        "network_per_rank": 0.0, "overlap": 1.0,
    }  # fmt: skip
    JobProfile.objects.create(job=job, batch_size=64, parameters={"virtual": parameters}, points=1, at=job.submitted_at)
    ThroughputPoint.objects.create(
        job=job, gpu_model="virtual", hosts=1, ranks=4, micro_batch=16, compute_seconds=1.0, step_seconds=1.1,
        steps=50, at=job.submitted_at,
    )  # fmt: skip


def test_measures_and_sizes_are_of_a_kind_of_gpu(group: InstanceGroup) -> None:
    """Measurements of all GPU models are read with one query."""
    job = trained(group, 0, 0, 600)
    profiled(job)
    [profile] = JobProfile.objects.all()
    slower = {**profile.parameters["virtual"], "compute_base": 2.0}
    JobProfile.objects.update(parameters={**profile.parameters, "old": slower})
    Slot.objects.update(device_model="virtual")
    SlotClaim.objects.update(gpu_model="old")
    [found] = read_history(START, END, END).jobs
    assert [segment.kind for segment in found.segments] == ["old"]
    assert found.known is not None
    assert (found.known.kind, list(found.known.others)) == ("virtual", ["old"])
    assert found.known.on("old")[1].compute_base == 2.0
    result, _, _ = run_replay(new_replay(), END, lambda part: None)
    assert result["same"][0]["average"] == pytest.approx(6 + 600 * 1.1 / 2.1, rel=0.02)


def new_replay(**values: Any) -> Replay:
    return ask_for_replay(ReplaySpec(START, END, **values), UserFactory(is_staff=True))


def test_wishes_for_cores_and_memory_are_replayed(group: InstanceGroup) -> None:
    trained(group, 0, 0, 60)
    assert read_history(START, END, END).shares == {}
    asking = trained(group, 100, 100, 60, cpus_per_gpu=8, memory_gib_per_gpu=16)
    Host.objects.update(cores=16.0, ngpus=4, memory_bytes=2**36, usable_memory_bytes=2**36)
    history = read_history(START, END, END)
    wishes = {job.view.id: job.view.wish for job in history.jobs if job.view.wish}
    assert wishes == {asking.pk: Share(8, 16 * 2**30)}
    assert history.shares["a"].cores == 4.0


def test_a_replay_may_count_gpus_by_their_model(group: InstanceGroup) -> None:
    trained(group, 0, 0, 600)
    rules = {"policy": "fairshare", "preemption": True, "gpu_weights": "A100=4,T4=1"}
    replay = new_replay(groups={"all": rules})
    assert replay.alternative["groups"]["all"]["gpu_weights"] == "A100=4, T4=1"
    assert change_phrases(replay) == [
        "all: policy fair share, preemption on, weights of GPU models A100=4, T4=1",
    ]
    given = alternative_of(replay.alternative).groups["all"]
    assert given["gpu_weights"] == (("A100", 4.0), ("T4", 1.0))
    assert alternative_of({"groups": {"all": {"gpu_weights": ""}}}).groups["all"]["gpu_weights"] == ()
    result, _, _ = run_replay(replay, END, lambda part: None)
    assert result["other"]


def test_a_replay_without_changes_is_accurate_and_one_with_changes_shows_gains(group: InstanceGroup) -> None:
    first, second = trained(group, 0, 0, 600), trained(group, 10, 606, 60)
    for job in (first, second):
        profiled(job)
    result, rows, moments = run_replay(
        new_replay(groups={"all": {"policy": "fairshare", "preemption": True}}), END, lambda part: None
    )
    assert result["is_good"]
    assert max(result["errors"].values()) < 0.01
    assert result["recorded"]["average"] == pytest.approx((606 + 662) / 2)
    by_job = {row[0]: dict(zip(JOB_COLUMNS, row, strict=True)) for row in rows}
    assert by_job[second.pk]["recorded_wait"] == 596
    assert by_job[second.pk]["other_wait"] < 10
    assert by_job[second.pk]["other_high"] < 100 < by_job[second.pk]["same_low"]
    assert by_job[first.pk]["other_low"] == pytest.approx(606, rel=0.05)
    assert [band["job"] for band in result["series"]["other"]] == [first.pk, second.pk]
    assert result["groups"]["all"]["other"][0]["average"] == result["other"][0]["average"]
    assert result["groups"]["all"]["other"][0]["idle_gpu_hours"] is None
    replay = Replay(start=START, end=END, result=result, jobs=rows, moments=moments)
    under_fifo, shared = (at_moment(replay, "same", at(300)), at_moment(replay, "other", at(300)))
    assert under_fifo is not None
    assert [(one.job, one.recorded, one.replayed) for one in under_fifo] == [(first.pk, 4, 4), (second.pk, 0, 0)]
    assert "waits" in under_fifo[1].text.lower() or "line" in under_fifo[1].text.lower()
    assert shared is not None
    assert [one.job for one in shared] == [first.pk], "the second one is over"
    assert at_moment(replay, "other", at(-1)) == []


def adapting(job: Job, steps: int) -> None:
    """Let a step take 64 to 256 samples; in the second half, with noisier gradients, 256 are worth three of 64."""
    profiled(job)
    told = AdaptedBatch(
        submitted=64, most=256, batch=256, least_micro_batch=1, most_micro_batch=256, micro_batch=64, accumulates=True,
        accumulation=0, pinned=False, gain=3.0, progress=2.0 * steps, variance=900.0, squared_gradient=1.0,
        rate_factors=[1.0],
    )  # fmt: skip
    JobProfile.objects.filter(job=job).update(adapted=to_json(told), micro_batches={"virtual": 256})
    JobRun.objects.filter(job=job).update(step=steps)
    common = {"job": job, "epoch": 0, "at": job.submitted_at}
    for step in range(1, steps + 1):
        late = step > steps / 2
        MetricPoint.objects.create(name="gain", step=step, value=3.0 if late else 1.0, **common)
        if step % 8 == 0:
            MetricPoint.objects.create(name="noise_scale", step=step, value=900.0 if late else 9.0, **common)


def test_the_noise_of_gradients_is_read_by_progress(group: InstanceGroup) -> None:
    own, other = trained(group, 0, 0, 600), trained(group, 700, 700, 60)
    adapting(own, 640)
    Job.objects.filter(pk=other.pk).update(model=own.model)
    first, second = read_history(START, END, END).jobs
    assert first.known is not None
    assert second.known == first.known, "of its model's version"
    assert first.known.micro_batches == {"virtual": 256}
    at = [(progress, noise.samples) for progress, noise in first.known.phases]
    assert at[0] == (0.0, 9.0)
    assert [noise for _, noise in at] == [9.0] * 16 + [900.0] * 16
    assert at[16][0] == pytest.approx(320.0)
    assert at[-1][0] == pytest.approx(320 + 15 * 60)


def test_user_commands_rules_and_pool_are_read(group: InstanceGroup) -> None:
    job = trained(group, 0, 0, 600, priority=9000)
    for seq, (seconds, reason, detail) in enumerate(
        [
            (100, Reason.PRIORITY_CHANGED, message("changed", by="a", field="priority", old=5000, new=9000)),
            (200, Reason.SUSPENDED_BY_USER, message("suspended", by="a")),
            (300, Reason.RESUMED_BY_USER, message("resumed", by="a")),
        ],
        start=1,
    ):
        JobEvent.objects.create(
            job=job, seq=seq, old="RUNNING", new="RUNNING", reason=reason, detail=detail, actor="a", at=at(seconds)
        )
    AuditEntry.objects.create(
        at=at(400), actor="c", verb="changed", kind="instance group", key=str(group.pk), name="all",
        before={"policy": "priority", "quota": 2}, after={"policy": "fifo", "quota": None},
    )  # fmt: skip
    CapacityPoint.objects.create(host=Slot.objects.first().host, at=at(500), slots=3)
    past = read_history(START, END, END)
    assert (past.groups[0].policy, past.groups[0].quota) == ("priority", 2)
    assert past.jobs[0].view.priority == 5000
    assert len(past.slots) == 4
    told = [(moment - START.timestamp(), change) for moment, change in past.changes]
    assert [moment for moment, _ in told] == [100, 200, 300, 400, 500]
    assert [change.verb for _, change in told if isinstance(change, JobChange)] == ["change", "hold", "resume"]
    assert [change.groups[0].policy for _, change in told if isinstance(change, Rules)] == ["fifo"]
    assert [len(change.slots) for _, change in told if isinstance(change, Pool)] == [3]


def test_trainings_that_began_before_or_are_unfinished(group: InstanceGroup) -> None:
    there = trained(group, -700, -700, 1000)
    going = trained(group, 400, 400, 0, state=JobState.RUNNING, finished_at=None, progress=0.25)
    gone = trained(group, 500, 500, 10, state=JobState.CANCELLED)
    other = JobFactory(instance_group=group, submitted_at=at(-900), finished_at=at(-800), state=JobState.CANCELLED)
    past = read_history(START, END, END)
    by_id = {job.view.id: job for job in past.jobs}
    assert other.pk not in by_id
    assert by_id[there.pk].before == 1
    assert [segment.seconds for segment in by_id[there.pk].segments] == [695, 305]
    assert len(by_id[there.pk].slots) == 4
    assert (by_id[going.pk].outcome, by_id[going.pk].progress) == ("unfinished", 0.25)
    assert by_id[gone.pk].outcome == "withdrawn"
    assert past.costs.start == 5.0
    assert past.costs.end == 1.0


def test_the_costs_of_a_start_and_an_end_are_the_recorded_ones(group: InstanceGroup) -> None:
    """The recorded costs differ from the defaults."""
    job = trained(group, 0, 0, 600)
    AllocationPoint.objects.filter(job=job, slots=4).update(at=at(2))
    late = SlotClaim.objects.filter(job=job, slot__index__gte=2)
    SlotClaim.objects.filter(job=job).update(trains_from=at(2), vacating_at=at(606), released_at=at(610))
    late.update(trains_from=at(10))
    costs = read_history(START, END, END).costs
    assert (costs.start, costs.end, costs.free) == (6.0, 1.0, 4.0)  # a start's cost is the mean of its ranks


def test_the_end_of_a_cancelled_training_is_not_a_measured_cost(group: InstanceGroup) -> None:
    gone = trained(group, 0, 0, 60, state=JobState.CANCELLED)
    Job.objects.filter(pk=gone.pk).update(finished_at=at(900))
    trained(group, 100, 100, 60)
    assert read_history(START, END, END).costs.end == 1.0


def test_a_script_that_reported_no_training_takes_as_long_as_it_held_gpus(group: InstanceGroup) -> None:
    silent, other = trained(group, 0, 0, 600), trained(group, 700, 700, 60)
    AllocationPoint.objects.filter(job=silent, slots=4).delete()
    SlotClaim.objects.filter(job=silent).update(trains_from=None, released_at=at(609))
    SlotClaim.objects.filter(job=other).update(released_at=at(700 + 66 + 3))
    result, rows, _ = run_replay(new_replay(), END, lambda part: None)
    by_job = {row[0]: dict(zip(JOB_COLUMNS, row, strict=True)) for row in rows}
    assert by_job[silent.pk]["same_low"] == by_job[silent.pk]["recorded_seconds"] == 606
    assert max(result["errors"].values()) < 1e-6


def test_the_number_of_queries_does_not_depend_on_the_data(group: InstanceGroup) -> None:
    trained(group, 0, 0, 60)
    with CaptureQueriesContext(
        connection,
    ) as few:
        read_history(START, END, END)
    for number in range(5):
        trained(group, 100 * number, 100 * number + 70, 10)
    with CaptureQueriesContext(connection) as many:
        read_history(START, END, END)
    assert len(many) == len(few)

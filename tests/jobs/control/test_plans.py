"""A plan is written whole and by the leader only, and gives nobody what somebody else holds."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from core.live import current_seqs
from jobs import actions
from jobs.control.plans import LeadershipLost, apply
from jobs.control.snapshots import snapshot
from jobs.files.job_folder import job_folder
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobEvent, JobRun, SchedulerLease, SlotClaim
from jobs.states import JobState, Reason
from jobs.topics import job_topic
from scheduling.plan import Explanation, JobPlan, Plan, PlanReason
from scheduling.schedule import schedule
from scheduling.snapshot import SlotRef
from tests.factories import JobFactory, SlotClaimFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.scene import shares
from workers.actions import drain_host
from workers.models import Host, Slot

pytestmark = pytest.mark.django_db


def refs(*names: str) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(host, int(index)) for host, index in (name.split(":") for name in names))


def line(job: Job, *claim: str, target: int | None = None, **changes: object) -> JobPlan:
    slots = refs(*claim)
    values = {
        "job": job.pk,
        "target": len(slots) if target is None else target,
        "slots": slots,
        "claim": slots,
        "vacate": (),
        "preempt": False,
        "reason": Explanation(PlanReason.GRANTED, shares(len(slots), "maximum")),
    }
    return JobPlan(**{**values, **changes})  # type: ignore[arg-type]


def open_claims(job: Job) -> list[str]:
    claims = SlotClaim.objects.filter(job=job, released_at__isnull=True).order_by("id")
    return [str(claim.slot) for claim in claims.select_related("slot__host")]


def test_a_stale_epoch_writes_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    plan = schedule(snapshot(timezone.now()))
    SchedulerLease.objects.update(epoch=2)
    desired_jobs = list(Host.objects.values_list("desired_revision", flat=True))
    with pytest.raises(LeadershipLost):
        apply(plan, epoch=1)
    job.refresh_from_db()
    assert (job.state, job.run.attempt) == (JobState.PENDING, 0)
    assert not SlotClaim.objects.exists()
    assert JobEvent.objects.filter(job=job).count() == 1
    assert list(Host.objects.values_list("desired_revision", flat=True)) == desired_jobs
    assert not job_folder(job).attempt(1).exists()


def test_a_start_claims_in_rank_order(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    assert apply(Plan((line(job, "gpu-host-2:1", "gpu-host-1:3"),)), 1) == [job.pk]
    job.refresh_from_db()
    assert open_claims(job) == ["gpu-host-2:1", "gpu-host-1:3"]
    assert (job.state, job.run.attempt, job.run.target_revision, job.run.target_slots) == (JobState.STARTING, 1, 1, 2)
    assert job.run.lead_host == "gpu-host-2"
    assert job.reason_params == shares(2, "maximum")
    assert (job_folder(job).path / "current").readlink().name == "attempt-1"
    assert (job_folder(job).path / "log").is_dir()
    event = JobEvent.objects.filter(job=job).last()
    assert event is not None
    assert event.detail == {**shares(2, "maximum"), "target_revision": 1}


def test_the_kind_of_gpu_that_a_job_shall_have_is_kept(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    apply(Plan((line(job, "gpu-host-1:0", kind="A"),)), 1)
    assert JobRun.objects.get(job=job).target_kind == "A"
    held = refs("gpu-host-1:0")
    apply(Plan((line(job, slots=held, target=1, kind="B"),)), 1)
    assert JobRun.objects.get(job=job).target_kind == "B"
    apply(Plan((line(job, "gpu-host-1:1", slots=held, target=2),)), 1)
    assert JobRun.objects.get(job=job).target_kind == ""


def test_a_start_on_reserved_slots_knows_to_whom_it_gives_way(cluster: Cluster, submit: Submit) -> None:
    first, job = submit(name="first"), submit()
    apply(Plan((line(job, "gpu-host-1:0", backfilled_for=first.pk, over_quota=True),)), 1)
    [view] = [view for view in snapshot(timezone.now()).jobs if view.id == job.pk]
    assert (view.backfilled_for, view.over_quota) == (first.pk, True)
    stops = Explanation(PlanReason.GAVE_WAY, {"message": "closed", "group": "g"})
    [held] = refs("gpu-host-1:0")
    apply(Plan((line(job, slots=(), target=0, vacate=(held,), preempt=True, reason=stops),)), 1)
    cluster.settle()
    job = Job.objects.get(pk=job.pk)
    assert (job.state, job.reason_code, job.run.backfilled_for) == (JobState.PENDING, PlanReason.GAVE_WAY, None)


def test_a_lost_race_leaves_the_job_as_it_was(cluster: Cluster, submit: Submit) -> None:
    job, other = submit(), submit(name="T2")
    SlotClaimFactory(slot=Slot.objects.get(host__name="gpu-host-1", index=1), job=JobFactory())
    plan = Plan((line(job, "gpu-host-1:0", "gpu-host-1:1"), line(other, "gpu-host-2:0")))
    assert apply(plan, 1) == [other.pk]
    job.refresh_from_db()
    assert (job.state, job.run.attempt) == (JobState.PENDING, 0)
    assert open_claims(job) == []
    assert open_claims(other) == ["gpu-host-2:0"]


def test_a_lost_race_does_not_resize(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    apply(Plan((line(job, "gpu-host-1:0"),)), 1)
    SlotClaimFactory(slot=Slot.objects.get(host__name="gpu-host-1", index=1), job=JobFactory())
    grow = line(job, "gpu-host-1:1", slots=refs("gpu-host-1:0", "gpu-host-1:1"), target=2)
    assert apply(Plan((grow,)), 1) == []
    job.refresh_from_db()
    assert (job.run.target_revision, job.run.target_slots) == (1, 1)


def test_a_job_cancelled_after_the_snapshot_stays_cancelled(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    plan = schedule(snapshot(timezone.now()))
    actions.cancel(job.pk, "alice")
    assert apply(plan, 1) == []
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    assert not SlotClaim.objects.exists()


def test_fewer_than_the_minimum_start_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit(min_slots=2)
    apply(Plan((line(job, "gpu-host-1:0"),)), 1)
    job.refresh_from_db()
    assert (job.state, open_claims(job)) == (JobState.PENDING, [])


def test_an_unchanged_plan_writes_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.cycle()
    events = JobEvent.objects.count()
    reason = Job.objects.get(pk=job.pk).reason_params
    revisions = list(Host.objects.values_list("desired_revision", flat=True))
    assert cluster.cycle() == []
    assert JobEvent.objects.count() == events
    assert Job.objects.get(pk=job.pk).reason_params == reason
    assert list(Host.objects.values_list("desired_revision", flat=True)) == revisions


def test_a_waiting_job_says_why(cluster: Cluster, submit: Submit) -> None:
    submit(min_slots=8)
    waits = submit(name="T2", min_slots=8)
    cluster.cycle()
    waits.refresh_from_db()
    assert waits.state == JobState.PENDING
    assert waits.reason_code != Reason.SUBMITTED
    assert waits.reason_text


def test_what_is_told_to_many_that_wait_costs_no_more_than_to_few(cluster: Cluster, submit: Submit) -> None:
    first = submit(max_slots=8, min_slots=8, priority=9000)
    cluster.turn()

    def cost(waiting: int) -> int:
        for _ in range(waiting):
            JobFactory(instance_group=first.instance_group, max_slots=8, min_slots=8, priority=100)
        with CaptureQueriesContext(connection) as queries:
            changed = cluster.cycle()
        assert len(changed) >= waiting
        return len(queries)

    cost(2)  # topics are made
    assert cost(20) == cost(60)
    waiting = Job.objects.filter(state=JobState.PENDING)
    assert {job.reason_code for job in waiting} == {PlanReason.WAITING_FOR_SLOTS}
    assert len({str(job.reason_params) for job in waiting}) > 1
    assert all(current_seqs([job_topic(job.pk) for job in waiting]).values())


def test_shrinking_marks_slots_and_raises_the_hosts_desired(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    apply(Plan((line(job, "gpu-host-1:0", "gpu-host-2:0"),)), 1)
    before = Host.objects.get(name="gpu-host-2").desired_revision
    shrink = line(job, claim=(), slots=refs("gpu-host-1:0"), vacate=refs("gpu-host-2:0"), target=1)
    assert apply(Plan((shrink,)), 1) == [job.pk]
    claim = SlotClaim.objects.get(slot__host__name="gpu-host-2")
    assert claim.vacating_at is not None
    assert claim.vacate_revision == Host.objects.get(name="gpu-host-2").desired_revision == before + 1
    assert apply(Plan((shrink,)), 1) == [], "what is being given back is not taken away again"


def test_preempting_stops_and_queues_again(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    reason = Explanation(PlanReason.PREEMPTED_BY_PRIORITY, message("no_progress", text="Another one comes first."))
    apply(Plan((line(job, claim=(), slots=(), preempt=True, reason=reason),)), 1)
    job.refresh_from_db()
    assert job.state == JobState.PREEMPTING
    cluster.settle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == (JobState.PENDING, PlanReason.PREEMPTED_BY_PRIORITY)


def test_another_policy_says_anew_why_a_training_keeps_what_it_has(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=8)
    submit(max_slots=8)
    cluster.turn(3)
    job.refresh_from_db()
    by_fair_share = job.reason_params
    assert (by_fair_share["policy"], by_fair_share["message"], job.run.target_slots) == ("fairshare", "compared", 4)
    cluster.turn()
    job.refresh_from_db()
    assert job.reason_params == by_fair_share
    InstanceGroup.objects.update(policy="fifo")
    cluster.turn()
    job.refresh_from_db()
    assert (job.reason_code, job.reason_params["policy"], job.run.target_slots) == (PlanReason.UNCHANGED, "fifo", 4)
    assert job.reason_params["message"] != "compared"
    assert job.reason_text


def reason(job: Job) -> tuple[str, str]:
    job.refresh_from_db()
    return job.reason_code, job.reason_text


def test_a_reason_does_not_outlast_the_move_that_it_tells_of(cluster: Cluster, submit: Submit) -> None:
    """The page said "moves off gpu-host-1" until the next move."""
    job = submit(max_slots=4)
    cluster.turn(2)
    [host] = {claim.split(":")[0] for claim in open_claims(job)}
    drain_host(host, "carol")
    cluster.cycle()
    moving = reason(job)
    assert moving[0] == PlanReason.REBALANCED
    assert f"moves off {host}" in moving[1]
    cluster.cycle()
    assert reason(job) == moving, "its GPUs there are not released yet"
    cluster.pull()
    cluster.train(job)
    cluster.turn()
    assert {claim.split(":")[0] for claim in open_claims(job)}.isdisjoint({host})
    cluster.turn()
    assert reason(job) == (PlanReason.UNCHANGED, "4 of 4 GPUs: its maximum is 4.")
    assert cluster.cycle() == []


def test_a_trial_that_keeps_its_gpus_tells_the_present_size_of_its_study(cluster: Cluster, submit: Submit) -> None:
    trials = [submit(bundle=7, max_slots=2) for _ in range(8)]
    cluster.turn(2)
    assert "its study has 8 GPUs for 8 trainings" in reason(trials[0])[1]
    submit(max_slots=4)
    cluster.turn(4)
    going_on = [trial for trial in trials if open_claims(trial)]
    assert len(going_on) == 4
    assert all("its study has 4 GPUs for 4 trainings" in reason(trial)[1] for trial in going_on)
    assert cluster.cycle() == []


def test_a_reason_does_not_outlast_gpus_that_a_training_no_longer_waits_for(cluster: Cluster, submit: Submit) -> None:
    first, second = submit(max_slots=8, priority=2500), submit(max_slots=8, priority=7500)
    cluster.turn(3)
    assert (len(open_claims(first)), len(open_claims(second))) == (2, 6)
    Job.objects.filter(pk=first.pk).update(priority=7500)
    cluster.cycle()
    assert "2 of them are being released" in reason(first)[1]
    Job.objects.filter(pk=first.pk).update(max_slots=2)
    cluster.cycle()
    assert reason(first) == (PlanReason.UNCHANGED, "2 of 8 GPUs: its maximum is 2.")


@pytest.mark.parametrize(
    "told",
    [
        {"missing": 2},
        {"moving_off": ["gpu-host-1"]},
        {"leaving": ["gpu-host-1"]},
        {"moves_to_kind": True},
        {"message": "pinned", "hosts": ["gpu-host-1"], "elastic": True},
    ],
)
def test_a_reason_that_tells_of_a_move_is_replaced_and_costs_nothing_afterwards(
    cluster: Cluster, submit: Submit, told: dict[str, object]
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert cluster.cycle() == []
        return len(queries)

    job = submit(max_slots=4)
    cluster.turn(2)
    job.refresh_from_db()
    quiet, params = cost(), job.reason_params
    Job.objects.filter(pk=job.pk).update(reason_params=params | told)
    assert cluster.cycle() == [job.pk]
    assert reason(job) == (PlanReason.UNCHANGED, "4 of 8 GPUs: its maximum is 4.")
    assert cost() == quiet

"""Tests of the values of a submission that the scheduler's snapshot has, and of what they do to jobs."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs import actions
from jobs.control.snapshots import snapshot
from jobs.messages import text_of
from jobs.models import InstanceGroup, Job, JobRun, SlotClaim
from jobs.states import JobState
from scheduling.plan import PlanReason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.isolation import gives, part_of, with_parts
from workers.models import Host

pytestmark = pytest.mark.django_db


def test_a_bundle_is_stored_and_not_cloned(submit: Submit, alice: User) -> None:
    trial, other = submit(bundle=7), submit()
    assert (trial.bundle, trial.bundle_rank, other.bundle) == (7, 0, None)
    assert actions.clone(trial, alice).bundle is None


def test_the_snapshot_has_bundles_and_ranks(submit: Submit) -> None:
    trial, other = submit(bundle=7), submit()
    Job.objects.filter(pk=trial.pk).update(bundle_rank=2)
    views = {view.id: (view.bundle, view.bundle_rank) for view in snapshot(timezone.now()).jobs}
    assert views == {trial.pk: (7, 2), other.pk: (None, 0)}


def test_a_host_of_a_former_release_gets_no_training_while_those_that_run_are_sealed(
    cluster: Cluster, submit: Submit
) -> None:
    job = submit(min_slots=1, max_slots=1)
    cluster.turn(2)
    [host] = SlotClaim.objects.values_list("slot__host__name", flat=True)
    JobRun.objects.filter(job=job).update(sealed=False)

    def offered() -> dict[str, set[tuple[bool, str]]]:
        found: dict[str, set[tuple[bool, str]]] = {}
        for slot in snapshot(timezone.now()).slots:
            found.setdefault(slot.ref.host, set()).add((slot.claimable, slot.out))
        return found

    before = offered()
    Host.objects.filter(name=host).update(handshake=False)
    assert offered() == before, "the training began without the handshake"
    JobRun.objects.filter(job=job).update(sealed=True)
    after = offered()
    assert after.pop(host) == {(True, "former"), (False, "former")}, "the slot that it holds stays its own"
    assert after == {name: slots for name, slots in before.items() if name != host}
    Job.objects.filter(pk=job.pk).update(state=JobState.PENDING)
    assert offered()[host] == before[host]


def test_trials_stop_for_a_training_and_wait_with_their_reason(
    cluster: Cluster, submit: Submit, group: InstanceGroup
) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(reclaim_grace_seconds=60)
    trials = [submit(bundle=7, max_slots=1) for _ in range(8)]
    cluster.turn(2)
    other = submit(max_slots=8)
    cluster.cycle()
    stopping = list(Job.objects.filter(state=JobState.PREEMPTING).select_related("run").order_by("pk"))
    assert stopping == trials[4:]
    assert all(job.run.halt_until for job in stopping)
    assert {job.reason_code for job in stopping} == {PlanReason.SHRUNK_FOR_FAIR_SHARE}
    cluster.turn(3)
    waiting = Job.objects.get(pk=trials[7].pk)
    assert (waiting.state, JobRun.objects.get(job=other).target_slots) == (JobState.PENDING, 4)
    sentence = "Waits: its study has 4 of 8 GPUs for 4 trainings, and counts as one training with priority 5000."
    assert waiting.reason_text == sentence


def test_a_group_gets_the_hosts_that_keep_trainings_apart_as_it_demands(
    cluster: Cluster, submit: Submit, group: InstanceGroup
) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(least_isolation="separate")
    Host.objects.update(isolation="walled")
    job = submit(min_slots=1, max_slots=1)
    cluster.turn(2)
    job.refresh_from_db()
    assert job.state == JobState.PENDING
    assert "does not keep trainings apart as the group demands" in text_of(job.reason_params)
    apart = Host.objects.order_by("name")[1]
    Host.objects.filter(pk=apart.pk).update(isolation="separate")
    cluster.turn(2)
    assert [claim.slot.host for claim in SlotClaim.objects.filter(job=job)] == [apart]


@pytest.mark.parametrize(
    ("has", "least", "is_enough"),
    [
        ("separate", "separate", True),
        ("separate", "walled", True),
        ("walled", "walled", True),
        ("walled", "separate", False),
        ("shared", "walled", False),
        ("none", "walled", False),
        ("", "walled", False),
    ],
)
def test_a_level_contains_those_below(has: str, least: str, is_enough: bool) -> None:
    assert gives(Host(isolation=has), least) is is_enough
    names = with_parts(Host(isolation=has), ["gpus"], {least})
    assert (part_of("gpus", least) in names) is is_enough

"""Tests of other rules: the next plan with them, beside the next plan without them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.preview import TargetChange, compare, with_group
from scheduling.snapshot import GroupView, JobView, Snapshot
from tests.scheduling.cluster import Policy, SimulatedCluster, group, hold, job, running, slots, targets
from tests.scheduling.strategies import snapshots

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Two trainings that share eight GPUs by 3 and 5, and one that needs all of them.
SHARED = Snapshot(
    at=100.0,
    groups=(group("fairshare"),),
    slots=hold(slots(4, 4), {"h1:0-2": 1, "h1:3": 2, "h2:0-3": 2}),
    jobs=(running(job(1)), running(job(2, 10000)), job(3, 1, least=8)),
)


@pytest.mark.parametrize(
    ("policy", "preemption", "changes", "moves"),
    [
        ("fairshare", True, (), 0),
        ("fairshare", False, (), 0),
        ("fifo", True, (), 0),
        ("priority", False, (), 0),
        ("priority", True, (TargetChange(1, 3, 0, True), TargetChange(2, 5, 8, False)), 3),
    ],
)
def test_another_policy_over_two_trainings(
    policy: Policy, preemption: bool, changes: tuple[TargetChange, ...], moves: int
) -> None:
    seen = compare(SHARED, with_group(SHARED, group(policy, preemption=preemption)))
    assert (seen.changes, seen.moves) == (changes, moves)


@thorough
@given(snapshots())
def test_the_same_rules_change_nothing(snapshot: Snapshot) -> None:
    assert compare(snapshot, snapshot).changes == ()


@thorough
@given(snapshots(), st.sampled_from(["fifo", "priority", "fairshare"]), st.booleans(), st.sampled_from([None, 1, 4]))
def test_it_is_the_next_plan_with_the_rules_and_without(
    snapshot: Snapshot, policy: Policy, preemption: bool, quota: int | None
) -> None:
    changed = with_group(snapshot, replace(snapshot.groups[0], policy=policy, preemption=preemption, quota=quota))
    changes = {change.job: change for change in compare(snapshot, changed).changes}

    before, after = (SimulatedCluster(each).cycle() for each in (snapshot, changed))
    stopped = {line.job for line in after.jobs if line.preempt}
    for view in snapshot.jobs:
        wanted = targets(before)[view.id], targets(after)[view.id]
        assert (view.id in changes) == (wanted[0] != wanted[1])
        if change := changes.get(view.id):
            assert (change.before, change.after) == wanted
            assert change.stops == (view.id in stopped)


def test_a_group_is_changed_by_its_name() -> None:
    other = GroupView("other", "rg", "fifo", preemption=True)
    snapshot = replace(SHARED, groups=(*SHARED.groups, other))
    changed = with_group(snapshot, replace(other, quota=3))
    assert changed.groups == (SHARED.groups[0], replace(other, quota=3))
    assert changed.jobs == snapshot.jobs


def test_a_training_of_fixed_size_ends_where_it_is() -> None:
    """Keep slots that are no more of its group until the training ends; nobody is stopped for the change itself."""
    fixed: JobView = running(job(1, most=4, least=4, elastic=False))
    elsewhere = tuple(replace(slot, resource_groups=("there",)) for slot in slots(0, 4))
    snapshot = Snapshot(at=100.0, groups=(group(),), slots=(*hold(slots(4), {"h1:0-3": 1}), *elsewhere), jobs=(fixed,))
    seen = compare(snapshot, with_group(snapshot, group(rg="there")))
    assert (seen.changes, seen.moves) == ((), 0)

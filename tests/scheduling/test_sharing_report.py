"""Parts, loans and pending_reclaims between instance groups: tables, and what holds for every snapshot."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from scheduling.schedule import schedule
from scheduling.sharing_report import PendingReclaim, SharingPool, fair_share, split
from scheduling.snapshot import GroupView, Snapshot
from tests.scheduling.cluster import group, hold, job, running, slots, targets
from tests.scheduling.strategies import snapshots

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tenant(name: str, **terms: Any) -> GroupView:
    return replace(group(name=name), **terms)


def held_by(groups: tuple[GroupView, ...], holders: dict[str, int], *jobs: Any) -> SharingPool:
    """Eight slots on two hosts."""
    [pool] = fair_share(Snapshot(100.0, groups, hold(slots(4, 4), holders), jobs)).sharing_pools
    return pool


def test_a_group_without_trainings_lends_what_another_one_holds_over_its_quota() -> None:
    """b borrows 2 of a's 4: its own 4 come first."""
    groups = (tenant("a", quota=4), tenant("b", quota=4))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-1": 1}, running(job(1, group="b", most=6)))
    a, b = pool.groups
    assert (a.held, a.deserved, a.borrowed, a.lent) == (0, 0, 0, 2)
    assert (b.held, b.deserved, b.borrowed, b.lent) == (6, 6, 2, 0)
    assert (pool.total, pool.free, pool.pending_reclaims) == (8, 2, ())


def test_what_belongs_to_nobody_is_used_before_anything_is_borrowed() -> None:
    groups = (tenant("a", quota=2), tenant("b"))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-1": 1}, running(job(1, group="b", most=6)))
    assert [(share.borrowed, share.lent) for share in pool.groups] == [(0, 0), (0, 0)]


def test_what_was_lent_comes_back_to_whoever_waits_for_it() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4, reclaim_grace_seconds=10))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-3": 1}, running(job(1, group="b")), job(2, group="a"))
    a, b = pool.groups
    assert (a.held, a.target, a.lent) == (0, 4, 4)
    assert (b.held, b.target, b.borrowed) == (8, 4, 4)
    assert pool.pending_reclaims == (PendingReclaim("a", "b", 4, returning=True, stops_within_seconds=None),)


def test_who_must_be_stopped_has_its_groups_grace() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4, reclaim_grace_seconds=10))
    jobs = (running(job(1, group="b", least=6)), job(2, group="a"))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-3": 1}, *jobs)
    assert pool.pending_reclaims == (PendingReclaim("a", "b", 8, returning=True, stops_within_seconds=10),)


def test_what_is_kept_for_a_minimum_run_time_is_owed_and_does_not_come_yet() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4, minimum_run_seconds=60))
    young = replace(running(job(1, group="b", least=8)), started_at=90.0)
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-3": 1}, young, job(2, group="a"))
    assert pool.pending_reclaims == (PendingReclaim("a", "b", 4, returning=False, stops_within_seconds=None),)


def test_two_who_wait_are_owed_by_two_who_hold_and_no_slot_twice() -> None:
    groups = tuple(tenant(name, quota=2) for name in "abcd")
    holders = (running(job(1, group="c")), running(job(2, group="d")))
    waiting = (job(3, group="a", most=2), job(4, group="b", most=2))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-3": 2}, *holders, *waiting)
    assert [(one.owner, one.holder, one.slots) for one in pool.pending_reclaims] == [("a", "c", 2), ("b", "d", 2)]


def test_what_is_being_given_back_already_counts_as_given_back() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4))
    there = tuple(
        replace(slot, vacating=slot.ref.host == "h2") for slot in hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    )
    seen = Snapshot(100.0, groups, there, (running(job(1, group="b")), job(2, group="a")))
    [pool] = fair_share(seen).sharing_pools
    assert [share.held for share in pool.groups] == [0, 4]
    assert pool.pending_reclaims == (PendingReclaim("a", "b", 4, returning=True, stops_within_seconds=None),)


def test_each_holder_keeps_for_now_what_is_beyond_its_own_part() -> None:
    quotas = {"a": 4, "b": 2, "c": 1, "d": 1}
    groups = tuple(tenant(name, quota=quota, minimum_run_seconds=60) for name, quota in quotas.items())
    jobs = [
        replace(running(job(number, group=name, least=size, most=size)), started_at=90.0)
        for number, name, size in ((1, "b", 2), (2, "c", 3), (3, "d", 3))
    ]
    pool = held_by(groups, {"h1:0-1": 1, "h1:2-3": 2, "h2:0": 2, "h2:1-3": 3}, *jobs, job(4, group="a", most=4))
    owed = [(one.owner, one.holder, one.slots, one.returning) for one in pool.pending_reclaims]
    assert owed == [("a", "c", 2, False), ("a", "d", 2, False)]


def test_a_group_without_a_quota_lends_nothing() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4), tenant("c"))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-3": 1}, running(job(1, group="b")))
    assert [(share.borrowed, share.lent) for share in pool.groups] == [(0, 4), (4, 0), (0, 0)]


def test_a_group_has_what_all_its_trainings_have() -> None:
    jobs = (running(job(1, 7000, most=2)), running(job(2, most=3)), job(3, most=3))
    found = fair_share(Snapshot(100.0, (tenant("g"),), hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 2}), jobs))
    assert [(one.priority, one.held, one.deserved, one.wants) for one in found.jobs] == [
        (7000, 2, 2, 2),
        (5000, 2, 3, 3),
        (5000, 0, 3, 3),
    ]
    [[share]] = [pool.groups for pool in found.sharing_pools]
    assert (share.wants, share.held, share.target) == (8, 4, 8)


def test_what_its_owner_cannot_use_is_owed_to_nobody() -> None:
    """b's training needs 6 at once, and 4 are b's: a uses them meanwhile."""
    groups = (tenant("a", quota=4), tenant("b", quota=4))
    jobs = (running(job(1, group="a")), job(2, group="b", least=6))
    assert held_by(groups, {"h1:0-3": 1, "h2:0-3": 1}, *jobs).pending_reclaims == ()


def test_what_trainings_of_one_group_hand_over_is_no_debt_between_groups() -> None:
    groups = (tenant("a", quota=4), tenant("b", quota=4))
    jobs = (running(job(1, group="a")), job(2, group="a"), running(job(3, group="b", most=2)))
    pool = held_by(groups, {"h1:0-3": 1, "h2:0-1": 3}, *jobs)
    assert pool.pending_reclaims == ()


def test_groups_on_other_slots_are_another_circle() -> None:
    other = tuple(replace(slot, resource_groups=("other",)) for slot in slots(0, 0, 2))
    groups = (tenant("a"), tenant("b", resource_group="other"), tenant("c"))
    found = fair_share(Snapshot(100.0, groups, (*slots(4), *other), (job(1, group="a"),)))
    assert [(pool.resource_groups, pool.total) for pool in found.sharing_pools] == [(("rg",), 4), (("other",), 2)]
    assert [share.group.name for share in found.sharing_pools[0].groups] == ["a", "c"]


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [
        (3, {"a": 4, "b": 4}, {"a": 2, "b": 1}),
        (4, {"a": 5, "b": 1}, {"a": 3, "b": 1}),
        (5, {"a": 1, "b": 4}, {"a": 1, "b": 4}),
        (0, {"a": 3}, {"a": 0}),
        (0, {"a": 0, "b": 0}, {"a": 0, "b": 0}),
        (2, {"a": 0, "b": 3, "c": 3}, {"a": 0, "b": 1, "c": 1}),
    ],
)
def test_splitting_in_whole_numbers(total: int, parts: dict[str, int], expected: dict[str, int]) -> None:
    assert split(total, parts) == expected


@thorough
@given(snapshots())
def test_the_figures_add_up(snapshot: Snapshot) -> None:
    found = fair_share(snapshot)
    assert {share.job: share.deserved for share in found.jobs} == targets(schedule(snapshot))
    held = sum(not slot.vacating and slot.held_by in {view.id for view in snapshot.jobs} for slot in snapshot.slots)
    assert sum(share.held for share in found.jobs) == held
    for pool in found.sharing_pools:
        assert sum(share.borrowed for share in pool.groups) == sum(share.lent for share in pool.groups)
        for share in pool.groups:
            quota = share.group.quota or 0
            assert 0 <= share.borrowed <= max(0, share.held - quota)
            assert 0 <= share.lent <= max(0, quota - share.held)
            assert share.held == sum(one.held for one in found.jobs if one.group == share.group.name)


@thorough
@given(snapshots())
def test_debts_are_of_what_is_held_and_owed(snapshot: Snapshot) -> None:
    for pool in fair_share(snapshot).sharing_pools:
        shares = {share.group.name: share for share in pool.groups}
        for reclaim in pool.pending_reclaims:
            assert reclaim.slots > 0
            assert reclaim.owner != reclaim.holder
            if not reclaim.returning:
                assert shares[reclaim.owner].target + reclaim.slots <= shares[reclaim.owner].deserved
                assert shares[reclaim.holder].held - reclaim.slots >= shares[reclaim.holder].deserved

"""Tests of the capacity that would be of use."""

from dataclasses import replace

import pytest
from tidepool.goodput.model import Bounds, ThroughputParameters

from scheduling.capacity import HostShape, cheapest_to_leave, wanted_hosts
from scheduling.snapshot import JobView, ProfileView, SlotView, Snapshot
from tests.scheduling.cluster import group, hold, job, running, slots

FOUR = HostShape(("rg",), "", 4)


def scene(*jobs: JobView, there: tuple[SlotView, ...] = (), **terms: object) -> Snapshot:
    return Snapshot(1000.0, (group(**terms),), there, jobs)  # type: ignore[arg-type]


def fixed(number: int, size: int, **fields: object) -> JobView:
    return job(number, least=size, most=size, elastic=False, **fields)  # type: ignore[arg-type]


def scaling(view: JobView, *, network: float = 1e-6, ranks: int = 4) -> JobView:
    """The training makes a step of 48 samples: 10 ms for each, and `network` seconds between ranks."""
    parameters = ThroughputParameters(1e-6, 0.01, network, 1e-6, network, 1e-6, 1.0)
    return replace(view, profile=ProfileView(Bounds(48), {"": parameters}, largest_ranks=ranks))


def test_nothing_is_wanted_where_nobody_waits() -> None:
    assert wanted_hosts(scene(), FOUR, 8, 0.5).hosts == 0


def test_a_training_that_fits_nowhere_wants_whole_hosts() -> None:
    found = wanted_hosts(scene(fixed(1, 6), there=slots(1)), FOUR, 8, 0.5)
    assert (found.waiting_hosts, found.waiting_slots, found.waiting) == (2, 6, (1,))
    assert found.paying_hosts == 0


def test_only_what_is_missing_is_wanted() -> None:
    held = hold(slots(4), {"h1:0-1": 1})
    assert wanted_hosts(scene(running(fixed(1, 2)), fixed(2, 2), there=held), FOUR, 8, 0.5).hosts == 0
    assert wanted_hosts(scene(running(fixed(1, 2)), fixed(2, 3), there=held), FOUR, 8, 0.5).waiting_hosts == 1


def test_a_quota_that_is_used_wants_nothing() -> None:
    held = hold(slots(2), {"h1:0-1": 1})
    found = wanted_hosts(scene(running(fixed(1, 2)), fixed(2, 2), there=held, quota=2, borrows=False), FOUR, 8, 0.5)
    assert (found.hosts, found.unhelped) == (0, (2,))


def test_a_stopped_group_wants_nothing() -> None:
    found = wanted_hosts(scene(fixed(1, 2), started=False), FOUR, 8, 0.5)
    assert (found.hosts, found.unhelped) == (0, (1,))


def test_hosts_of_another_resource_group_are_of_no_use() -> None:
    assert wanted_hosts(scene(fixed(1, 2)), replace(FOUR, resource_groups=("other",)), 8, 0.5).hosts == 0


def test_the_limit_is_kept_and_said() -> None:
    found = wanted_hosts(scene(*(fixed(number, 4) for number in range(1, 6))), FOUR, 3, 0.5)
    assert (found.waiting_hosts, found.limited) == (3, True)
    assert not wanted_hosts(scene(*(fixed(number, 4) for number in range(1, 4))), FOUR, 3, 0.5).limited


@pytest.mark.parametrize("policy", ["fairshare", "goodput"])
def test_hosts_come_while_a_training_grows_nearly_as_fast_as_they_do(policy: str) -> None:
    held = hold(slots(4), {"h1:0-3": 1})
    good = scaling(running(job(1, most=12)))
    found = wanted_hosts(scene(good, there=held, policy=policy), FOUR, 8, 0.5)
    assert (found.waiting_hosts, found.paying_hosts) == (0, 2)
    assert found.gain == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize("policy", ["fairshare", "goodput"])
def test_no_host_comes_for_a_training_that_would_gain_little(policy: str) -> None:
    held = hold(slots(4), {"h1:0-3": 1})
    slow = scaling(running(job(1, most=12)), network=0.2)
    assert wanted_hosts(scene(slow, there=held, policy=policy), FOUR, 8, 0.5).hosts == 0


def test_growth_of_a_training_that_was_not_measured_pays_for_nothing() -> None:
    held = hold(slots(4), {"h1:0-3": 1})
    assert wanted_hosts(scene(running(job(1, most=12)), there=held), FOUR, 8, 0.5).hosts == 0


def test_the_dearer_a_host_the_fewer_pay() -> None:
    held = hold(slots(4), {"h1:0-3": 1})
    fair = scaling(running(job(1, most=32)), network=0.02, ranks=8)
    counts = [wanted_hosts(scene(fair, there=held), FOUR, 8, worth).paying_hosts for worth in (0.1, 0.5, 0.9)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_an_empty_host_leaves_first() -> None:
    held = hold(slots(4, 4, 4), {"h1:0-3": 1, "h3:0-1": 1})
    order = cheapest_to_leave(scene(running(job(1, least=2)), there=held), ["h1", "h2", "h3"])
    assert order[0].host == "h2"
    assert (order[0].stops, order[0].stays, order[0].moved) == (0, 0, 0)


def test_a_host_whose_training_cannot_move_leaves_after_one_whose_training_can() -> None:
    held = hold(slots(4, 4), {"h1:0-1": 1, "h2:0-1": 2})
    order = cheapest_to_leave(scene(running(fixed(1, 2)), running(job(2, most=4)), there=held), ["h1", "h2"])
    assert [(one.host, one.stays, one.moved) for one in order] == [("h2", 0, 2), ("h1", 2, 0)]


def test_a_host_without_which_a_training_waits_leaves_last() -> None:
    held = hold(slots(4, 2), {"h1:0-3": 1})
    order = cheapest_to_leave(scene(running(job(1, least=4)), fixed(2, 2), there=held), ["h1", "h2"])
    assert order[0].host == "h1"
    assert order[1].stops == 1

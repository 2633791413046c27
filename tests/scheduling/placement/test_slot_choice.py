"""Tests of the placement of jobs."""

from scheduling.placement.packing import pack
from scheduling.placement.slot_choice import choose_kept
from scheduling.placement.slots_by_host import SlotsByHost, by_host
from scheduling.snapshot import SlotRef, Snapshot
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots


def refs(*spans: str) -> list[SlotRef]:
    """`"h1:0-3"`: four slots of h1."""
    result = []
    for span in spans:
        host, indices = span.split(":")
        first, _, last = indices.partition("-")
        result += [SlotRef(host, index) for index in range(int(first), int(last or first) + 1)]
    return result


def test_shrinking_to_half_leaves_a_whole_host_free() -> None:
    assert choose_kept(tuple(refs("h1:0-3", "h2:0-3")), 4) == tuple(refs("h1:0-3"))


def test_shrinking_by_one_gives_it_back_where_the_job_has_fewest() -> None:
    assert choose_kept(tuple(refs("h1:0-1", "h2:0-2")), 4) == tuple(refs("h1:0", "h2:0-2"))


def test_shrinking_keeps_the_smallest_host_that_is_enough() -> None:
    assert choose_kept(tuple(refs("h1:0-3", "h2:0-1")), 2) == tuple(refs("h2:0-1"))


def test_keeping_all_or_nothing() -> None:
    assert choose_kept(tuple(refs("h1:0-1", "h2:0")), 3) == tuple(refs("h1:0-1", "h2:0"))
    assert choose_kept(tuple(refs("h1:0-1")), 0) == ()


def test_growing_prefers_hosts_that_the_job_is_on() -> None:
    free = SlotsByHost(by_host(refs("h1:0-3", "h2:2-3")))
    assert pack({1: 2}, {1: tuple(refs("h2:0-1"))}, free) == {1: refs("h2:2-3")}


def test_growing_takes_the_rest_from_as_few_other_hosts_as_possible() -> None:
    free = SlotsByHost(by_host(refs("h1:0", "h2:3", "h3:0-2", "h4:0-1")))
    assert pack({1: 3}, {1: tuple(refs("h2:0-2"))}, free) == {1: refs("h2:3", "h4:0-1")}


def test_starting_takes_the_tightest_host_that_is_enough() -> None:
    assert SlotsByHost(by_host(refs("h1:0-3", "h2:0-1", "h3:0"))).take(2) == refs("h2:0-1")


def test_starting_spreads_over_the_largest_hosts_where_none_is_enough() -> None:
    assert SlotsByHost(by_host(refs("h1:0-1", "h2:0-3", "h3:0-3"))).take(6) == refs("h2:0-3", "h1:0-1")


def test_fewer_free_slots_than_wanted_are_all_taken() -> None:
    assert SlotsByHost(by_host(refs("h1:0", "h2:0"))).take(5) == refs("h1:0", "h2:0")


def test_nothing_moves_only_to_be_packed_better() -> None:
    scattered = hold(slots(4, 4), {"h1:0": 1, "h2:0": 1})
    snapshot = Snapshot(0.0, (group(),), scattered, (running(job(1, most=2)),))
    line = lines(SimulatedCluster(snapshot).cycle())[1]
    assert (line.claim, line.vacate) == ((), ())


def test_two_small_jobs_leave_a_host_whole_for_a_large_one() -> None:
    small = (job(1, most=2), job(2, most=2), job(3, least=4, most=4))
    packed = SimulatedCluster(Snapshot(0.0, (group(),), slots(4, 4), small))
    packed.settle()
    assert {ref.host for ref in packed.held(1) + packed.held(2)} == {"h1"}
    assert {ref.host for ref in packed.held(3)} == {"h2"}

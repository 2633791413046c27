"""Tests of the holders of slots that are taken away, as the next plan decides it."""

from dataclasses import replace

from scheduling.preview import Move, lost_slots, moves, without_host
from scheduling.snapshot import JobView, SlotRef, SlotView, Snapshot
from tests.scheduling.cluster import group, hold, job, running, slots


def drained(held: tuple[SlotView, ...], *jobs: JobView) -> list[Move]:
    after = without_host(Snapshot(0.0, (group(),), held, jobs), "h1")
    return moves(after, {slot.ref for slot in after.slots if slot.ref.host == "h1"})


def test_an_elastic_job_moves_off_and_trains_on_with_what_remains() -> None:
    found = drained(hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 1, "h2:2-3": 2}), running(job(1)), running(job(2)))
    assert found == [Move(1, held=4, kept=0, elastic=True, target=2)]


def test_a_fixed_size_job_finishes_where_it_is() -> None:
    held = hold(slots(4, 4), {"h1:0-3": 1})
    assert drained(held, running(job(1, most=4, elastic=False))) == [Move(1, 4, kept=4, elastic=False, target=4)]


def test_one_whose_minimum_fits_nowhere_else_stays() -> None:
    held = hold(slots(4, 2), {"h1:0-3": 1})
    assert drained(held, running(job(1, least=3))) == [Move(1, 4, kept=4, elastic=True, target=4)]


def test_who_waits_for_room_is_told_to_move_too() -> None:
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    assert drained(held, running(job(1)), running(job(2))) == [Move(1, 4, kept=0, elastic=True, target=2)]


def test_nobody_moves_off_a_host_that_nobody_holds() -> None:
    assert drained(hold(slots(4, 4), {"h2:0-3": 1}), running(job(1))) == []


def test_who_is_leaving_already_is_not_told_again() -> None:
    held = tuple(replace(slot, vacating=slot.ref.host == "h1") for slot in hold(slots(2, 2), {"h1:0-1": 1, "h2:0": 1}))
    assert drained(held, running(job(1))) == []


def test_a_group_that_loses_slots_moves_its_own_jobs_and_no_others() -> None:
    both = tuple(replace(slot, resource_groups=("a", "b")) for slot in slots(4))
    groups = (group(name="in-a", rg="a"), group(name="in-b", rg="b"))
    jobs = (running(job(1, group="in-a")), running(job(2, group="in-b")))
    before = Snapshot(0.0, groups, hold(both, {"h1:0-1": 1, "h1:2-3": 2}), jobs)
    fewer = tuple(replace(slot, resource_groups=("b",) if slot.ref.index else ("a", "b")) for slot in before.slots)
    after = replace(before, slots=fewer)

    lost = lost_slots(before, after, "a")
    assert lost == {SlotRef("h1", 1), SlotRef("h1", 2), SlotRef("h1", 3)}
    assert lost_slots(before, after, "b") == set()
    assert moves(after, lost) == [Move(1, held=1, kept=0, elastic=True, target=1)]

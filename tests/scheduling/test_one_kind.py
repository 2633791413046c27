"""A training whose results depend on the model of its GPUs gets GPUs of one model, that on which it began."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.capacity import HostShape, with_hosts
from scheduling.plan import JobPlan, PlanReason
from scheduling.preparation import run_prepared_cycle
from scheduling.preview import preview, with_job
from scheduling.schedule import run_cycle
from scheduling.snapshot import JobView, SlotView, Snapshot
from tests.scheduling.cluster import Policy, group, hold, job, lines, of_kinds, running, slots, text_for
from tests.scheduling.strategies import snapshots
from tests.scheduling.test_properties import thorough

MIXED = of_kinds((2, "T4"), (4, "A100"))
POLICIES: list[Policy] = ["fifo", "priority", "fairshare", "goodput"]


def bitwise(number: int, began_on: str = "", **fields: Any) -> JobView:
    return job(number, one_kind=True, began_on=began_on, **fields)


def planned(
    offered: tuple[SlotView, ...], *jobs: JobView, held: dict[str, int] | None = None, policy: Policy = "fairshare"
) -> dict[int, JobPlan]:
    snapshot = Snapshot(0.0, (group(policy),), hold(offered, held or {}), jobs)
    return lines(run_prepared_cycle(snapshot).plan())


@pytest.mark.parametrize("policy", POLICIES)
def test_it_begins_on_the_model_of_which_most_gpus_are_free(policy: Policy) -> None:
    line = planned(MIXED, bitwise(1), policy=policy)[1]
    assert ({ref.host for ref in line.claim}, line.began_on) == ({"h2"}, "A100")
    busy = planned(MIXED, bitwise(1), running(job(2)), held={"h2:0-3": 2}, policy=policy)[1]
    assert {ref.host for ref in busy.claim} <= {"h1"}


@pytest.mark.parametrize("policy", POLICIES)
def test_it_grows_on_its_model_alone(policy: Policy) -> None:
    line = planned(MIXED, running(bitwise(1, "T4")), held={"h1:0-0": 1}, policy=policy)[1]
    assert ({ref.host for ref in line.claim}, line.target, line.vacate) == ({"h1"}, 2, ())
    full = planned(MIXED, running(bitwise(1, "T4")), held={"h1:0-1": 1}, policy=policy)[1]
    assert (full.target, full.claim, full.vacate) == (2, (), ())


def test_it_says_that_no_more_are_of_its_model() -> None:
    line = planned(MIXED, running(bitwise(1, "T4")), held={"h1:0-1": 1})[1]
    assert text_for(line) == (
        "2 of 6 GPUs: all that its group can use of T4 (exactness bitwise: other models compute other bits)."
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_it_goes_on_where_it_began_and_waits_for_that_with_the_reason(policy: Policy) -> None:
    line = planned(MIXED, bitwise(1, "T4"), policy=policy)[1]
    assert ({ref.host for ref in line.claim}, line.began_on) == ({"h1"}, "T4")
    gone = planned(of_kinds((4, "A100")), bitwise(1, "T4", least=2), policy=policy)[1]
    assert (gone.target, gone.claim, gone.reason.code) == (0, (), PlanReason.WAITING_FOR_SLOTS)
    assert text_for(gone) == (
        "Waits for 2 GPUs, all T4: its group can use none of them now (exactness bitwise: other models compute other "
        "bits)."
    )


def test_others_keep_gpus_that_are_of_no_use_to_it() -> None:
    waits = bitwise(1, "T4", priority=9000)
    found = planned(of_kinds((4, "A100")), waits, running(job(2)), held={"h1:0-3": 2}, policy="priority")
    assert (found[2].target, found[2].vacate) == (4, ())
    # Half of its model is another one's, who has it for good: it waits, and names the hosts that would not do.
    behind = bitwise(1, "T4", least=2, most=2)
    fixed = running(job(2, elastic=False, least=2, most=2))
    line = planned(MIXED, behind, fixed, held={"h1:0-1": 2})[1]
    assert (line.target, line.reason.code) == (0, PlanReason.PREPARING)
    assert text_for(line) == (
        "Waits: it uses T4 alone, of which h2 has none (exactness bitwise: other models compute other bits)."
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_it_does_not_move_off_a_draining_host_to_another_model(policy: Policy) -> None:
    draining = tuple(replace(slot, claimable=slot.ref.host != "h1") for slot in MIXED)
    line = planned(draining, running(bitwise(1, "T4")), held={"h1:0-1": 1}, policy=policy)[1]
    assert not line.claim
    assert {ref.host for ref in line.slots} <= {"h1"}
    [other] = planned(draining, running(job(1)), held={"h1:0-1": 1}, policy=policy).values()
    assert {ref.host for ref in other.claim} == {"h2"}


def test_a_host_of_several_models_counts_as_a_model_of_its_own() -> None:
    odd = tuple(replace(slot, device=["A100", "T4"][slot.ref.index]) for slot in slots(2))
    line = planned(odd, bitwise(1))[1]
    assert (line.began_on, len(line.claim)) == ("A100 + T4", 2)
    again = planned(odd, bitwise(1, "A100 + T4"))[1]
    assert len(again.claim) == 2
    assert not planned(odd, bitwise(1, "A100"))[1].claim


def test_previews_and_wanted_capacity_know_its_model() -> None:
    without = Snapshot(0.0, (group(),), hold(MIXED, {"h2:0-3": 2}), (running(job(2, elastic=False, least=4, most=4)),))
    line = preview(without, with_job(without, bitwise(9, least=3)), 9).line
    assert (line.target, line.claim) == (0, ())
    waits = Snapshot(0.0, (group(),), MIXED[2:], (bitwise(1, "T4", least=2),))
    helped = {
        kind: run_cycle(with_hosts(waits, HostShape(("rg",), kind, 2), 1)).placed[1].claim for kind in ("T4", "A")
    }
    assert (len(helped["T4"]), len(helped["A"])) == (2, 0)


@thorough
@given(snapshots(), st.data())
def test_no_plan_gives_it_gpus_of_several_models(snapshot: Snapshot, data: st.DataObject) -> None:
    kinds = {host: data.draw(st.sampled_from("AB")) for host in sorted({slot.ref.host for slot in snapshot.slots})}
    offered = tuple(replace(slot, device=kinds[slot.ref.host]) for slot in snapshot.slots)
    pinned = {view.id for view in snapshot.jobs if view.elastic and data.draw(st.booleans())}
    views = tuple(replace(view, one_kind=view.id in pinned) for view in snapshot.jobs)
    began = {number: {kinds[slot.ref.host] for slot in offered if slot.held_by == number} for number in pinned}
    plan = run_prepared_cycle(replace(snapshot, slots=offered, jobs=views)).plan()
    for line in plan.jobs:
        if line.job in pinned:
            claimed = {kinds[ref.host] for ref in line.claim}
            assert len(claimed) <= 1
            assert claimed <= {line.began_on}
            assert not began[line.job] or line.began_on in began[line.job]

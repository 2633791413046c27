"""Check that remedies are what the scheduler then decides, and that their arithmetic is that of the sentence."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from insights.why import Term, remedy_text, terms
from scheduling.preview import with_changes
from scheduling.remedies import remedies
from scheduling.schedule import run_cycle, schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import Policy, group, hold, job, lines, running, slots
from tests.scheduling.strategies import snapshots


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_every_remedy_is_true_by_the_scheduler(snapshot: Snapshot) -> None:
    before = lines(schedule(snapshot))
    for view in snapshot.jobs[:3]:
        for remedy in remedies(snapshot, view.id):
            if remedy.places is not None:
                raised = with_changes(snapshot, view.id, priority=remedy.value)
                assert remedy.places == (place(raised, view.id), place(snapshot, view.id), waiting(snapshot, view.id))
                assert place(raised, view.id) < place(snapshot, view.id)
                continue
            assert remedy.target > before[view.id].target or remedy.starts_now
            if remedy.kind in ("end", "hosts"):
                continue
            after = lines(schedule(with_changes(snapshot, view.id, **{remedy.kind: remedy.value})))[view.id]
            assert after.target == remedy.target
            assert remedy.starts_now == (bool(after.slots) and not before[view.id].slots)


def line(snapshot: Snapshot, number: int) -> list[int]:
    return [demand.id for demand in run_cycle(snapshot).decision(number).pool.demands if not demand.running]


def place(snapshot: Snapshot, number: int) -> int:
    return line(snapshot, number).index(number) + 1


def waiting(snapshot: Snapshot, number: int) -> int:
    return len(line(snapshot, number))


@pytest.mark.parametrize("policy", ["fairshare", "priority"])
def test_the_last_of_many_that_wait_can_overtake_them(policy: Policy) -> None:
    holds = tuple(running(job(number, 9000, least=1)) for number in range(1, 9))
    pool = hold(slots(4, 4), {f"h{1 + number // 4}:{number % 4}": number + 1 for number in range(8)})
    many = tuple(job(number, 5000, submitted_at=float(number)) for number in range(10, 211))
    snapshot = Snapshot(0.0, (replace(group(policy), preemption=False),), pool, (*holds, *many))

    [priority] = remedies(snapshot, 210)

    assert (priority.kind, priority.value, priority.places) == ("priority", 5001, (1, 201, 201))
    assert remedy_text(priority) == (
        "Priority 5001 instead of 5000: it would be the next in the queue instead of number 201 of 201."
    )
    assert all(remedy.kind == "end" for remedy in remedies(snapshot, 10))


def test_who_asks_for_less_starts_now() -> None:
    pool = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 1})
    snapshot = Snapshot(0.0, (group("fifo"),), pool, (running(job(1, least=6, most=6)), job(2, least=5, most=8)))

    [minimum, end] = remedies(snapshot, 2)

    assert (minimum.kind, minimum.value, minimum.starts_now) == ("min_slots", 2, True)
    assert remedy_text(minimum) == "A minimum of 2 GPUs instead of 5: it would start now, on 2."
    assert (end.kind, end.value, end.target) == ("end", 1, 8)


def test_a_minimum_that_others_would_give_back_for_is_named() -> None:
    pool = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    snapshot = Snapshot(0.0, (group(),), pool, (running(job(1, least=4)), job(2, least=6)))

    [minimum, end] = remedies(snapshot, 2)

    assert (minimum.kind, minimum.value, minimum.target, minimum.starts_now) == ("min_slots", 4, 4, False)
    assert remedy_text(minimum) == "A minimum of 4 GPUs instead of 6: it would get 4 GPUs, when they are released."
    assert end.kind == "end"


def test_the_least_priority_that_helps_is_named() -> None:
    pool = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    snapshot = Snapshot(0.0, (group(),), pool, (running(job(1)), running(job(2))))

    [priority, *ends] = remedies(snapshot, 1)

    def share(value: int) -> int:
        return lines(schedule(with_changes(snapshot, 1, priority=value)))[1].target

    assert (share(priority.value), share(priority.value - 1)) == (5, 4)
    assert remedy_text(priority) == (f"Priority {priority.value} instead of 5000: it would have 5 GPUs instead of 4.")
    assert [remedy.kind for remedy in ends] == ["end"]


def test_nothing_helps_who_has_all_that_there_is() -> None:
    snapshot = Snapshot(0.0, (group(),), hold(slots(4), {"h1:0-3": 1}), (running(job(1, most=4)),))

    assert remedies(snapshot, 1) == ()
    few = replace(snapshot, jobs=(running(job(1, most=2)),))
    assert [remedy.kind for remedy in remedies(few, 1)] == ["max_slots"]


def test_the_terms_reckon_what_the_sentence_says() -> None:
    snapshot = Snapshot(
        0.0, (group(),), hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1}), (running(job(1)), job(2, 10000))
    )
    reason = lines(schedule(snapshot))[1].reason

    rows = terms(reason.params)

    assert Term("GPUs that the trainings of the instance group share", "8") in rows
    assert Term("another user's training", "5 GPUs, priority 10000, requests 1 to 8", 2) in [
        replace(row, name="another user's training") for row in rows
    ]
    assert rows[-1].value == "8 × 5000 / 15000 = 2.67"


def test_the_return_of_a_host_is_named_and_no_priority_that_would_not_start_it() -> None:
    pool = tuple(
        replace(slot, claimable=slot.ref.host == "h1", out="" if slot.ref.host == "h1" else "lost")
        for slot in slots(4, 4)
    )
    many = tuple(job(number, 5000, least=8, elastic=False, submitted_at=float(number)) for number in range(1, 5))
    [hosts] = remedies(Snapshot(0.0, (group("fifo"),), pool, many[:1]), 1)
    assert (hosts.kind, hosts.value, hosts.hosts, hosts.starts_now) == ("hosts", 4, (("h2", "lost"),), True)
    assert remedy_text(hosts) == "Once h2 reports again: it would start now, on 8."
    # Behind others the host alone is not enough, and being first would start it on no GPU either.
    assert remedies(Snapshot(0.0, (group("priority"),), pool, many), 4) == ()


def test_hosts_are_named_together_where_one_alone_does_not_help() -> None:
    pool = tuple(replace(slot, claimable=False, out="draining") for slot in slots(4, 4))
    [hosts] = remedies(Snapshot(0.0, (group(),), pool, (job(1, least=8, elastic=False),)), 1)
    assert remedy_text(hosts) == "Once h1 and h2 are in service again: it would start now, on 8."
    one_at_a_time = remedies(Snapshot(0.0, (group(),), pool, (job(1),)), 1)
    assert [remedy.hosts for remedy in one_at_a_time] == [(("h1", "draining"),), (("h2", "draining"),)]

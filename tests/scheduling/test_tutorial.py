"""The tutorial's moments, and what else happens to a cluster over several cycles."""

from jobs.messages import text_of
from scheduling.plan import PlanReason
from scheduling.remedies import remedies
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import (
    Policy,
    SimulatedCluster,
    group,
    hold,
    job,
    lines,
    running,
    slots,
    targets,
    text_for,
)


def cluster(policy: Policy = "fairshare", *, preemption: bool = True) -> SimulatedCluster:
    return SimulatedCluster(Snapshot(at=0.0, groups=(group(policy, preemption=preemption),), slots=slots(4, 4)))


def hosts_of(cluster: SimulatedCluster, number: int) -> dict[str, int]:
    refs = cluster.held(number)
    return {host: sum(ref.host == host for ref in refs) for host in sorted({ref.host for ref in refs})}


def test_two_trainings_share_eight_gpus_as_in_the_tutorial() -> None:
    tutorial = cluster()

    tutorial.submit(job(1))
    first = lines(tutorial.cycle())[1]
    assert (len(first.claim), first.reason.code) == (8, PlanReason.GRANTED)
    assert text_for(first) == "8 of 8 GPUs: its maximum is 8."

    tutorial.submit(job(2))
    told = lines(tutorial.cycle())
    assert text_for(told[1]) == "4 of 8 GPUs: T2 has the same priority (5000)."
    assert told[1].reason.code == PlanReason.SHRUNK_FOR_FAIR_SHARE
    assert (told[2].target, told[2].claim) == (4, ())
    assert text_for(told[2]) == "Waits: 4 of 4 GPUs are being released by T1."
    tutorial.settle()
    assert hosts_of(tutorial, 1) == {"h1": 4}
    assert hosts_of(tutorial, 2) == {"h2": 4}

    tutorial.change(2, priority=10000)
    told = lines(tutorial.cycle())
    assert text_for(told[1]) == "3 of 8 GPUs: T2 has twice your priority (10000 to 5000)."
    assert text_for(told[2]) == (
        "5 of 8 GPUs: you have twice the priority of T1 (10000 to 5000); 1 of them is being released by T1."
    )
    tutorial.settle()
    assert hosts_of(tutorial, 1) == {"h1": 3}
    assert hosts_of(tutorial, 2) == {"h1": 1, "h2": 4}

    tutorial.end(1)
    told = lines(tutorial.cycle())
    assert (told[2].target, told[2].reason.code) == (8, PlanReason.GREW_INTO_FREE_SLOTS)
    assert hosts_of(tutorial, 2) == {"h1": 4, "h2": 4}
    assert lines(tutorial.cycle())[2].reason.code == PlanReason.UNCHANGED


def test_slots_being_given_back_are_not_claimed_and_not_vacated_again() -> None:
    busy = cluster()
    busy.submit(job(1))
    busy.cycle()
    busy.submit(job(2))
    busy.cycle()
    again = lines(busy.cycle())
    assert again[1].vacate == again[2].claim == ()
    assert targets(busy.plans[-1]) == {1: 4, 2: 4}


def test_a_job_whose_target_rises_while_it_shrinks_gets_its_slots_back_once_they_are_free() -> None:
    busy = cluster()
    busy.submit(job(1))
    busy.cycle()
    busy.submit(job(2))
    busy.cycle()
    busy.end(2)
    line = lines(busy.cycle())[1]
    assert (line.target, len(line.slots), line.claim) == (8, 4, ())
    assert text_for(line).endswith("; 4 of them are being released by this training itself.")
    busy.settle()
    assert len(busy.held(1)) == 8


def test_a_waiting_job_starts_only_when_its_minimum_is_free() -> None:
    half = cluster()
    half.submit(job(1, least=1, most=6))
    half.cycle()
    half.submit(job(2, least=4))
    line = lines(half.cycle())[2]
    assert (line.target, line.claim) == (4, ())
    assert text_for(line) == "Waits: 2 of 4 GPUs are being released by T1."
    half.settle()
    assert len(half.held(2)) == 4


def test_a_waiting_job_starts_at_once_on_its_minimum_and_grows_later() -> None:
    half = cluster()
    half.submit(job(1, most=6))
    half.cycle()
    half.submit(job(2))
    line = lines(half.cycle())[2]
    assert (line.target, len(line.claim), line.reason.code) == (4, 2, PlanReason.GRANTED)
    half.settle()
    assert len(half.held(2)) == 4


def test_higher_priority_stops_a_lower_job_which_runs_again_afterwards() -> None:
    strict = cluster("priority")
    strict.submit(job(1, least=4))
    strict.cycle()
    strict.submit(job(2, 9000, most=6))
    line = lines(strict.cycle())[1]
    assert line.preempt
    assert text_for(line) == "Stops for now and releases 8 GPUs: T2 has a higher priority than yours (9000 to 5000)."
    strict.settle()
    assert (len(strict.held(1)), len(strict.held(2))) == (0, 6)
    waits = lines(strict.plans[-1])[1].reason
    assert waits.code == PlanReason.BEHIND_HIGHER_PRIORITY
    assert text_of(waits.params) == "Waits for 2 more GPUs: it needs 4, and 6 of 8 are in use."
    strict.end(2)
    strict.settle()
    assert len(strict.held(1)) == 8


def test_without_preemption_the_second_waits_until_the_first_ends() -> None:
    polite = cluster(preemption=False)
    polite.submit(job(1))
    polite.cycle()
    polite.submit(job(2, 10000))
    polite.settle()
    assert (len(polite.held(1)), len(polite.held(2))) == (8, 0)
    polite.end(1)
    polite.settle()
    assert len(polite.held(2)) == 8


def test_slots_of_a_job_that_is_being_stopped_are_waited_for() -> None:
    snapshot = Snapshot(0.0, (group(),), hold(slots(4), {"h1:0-3": 7}), (job(1, most=4),))
    stopping = SimulatedCluster(snapshot)
    line = lines(stopping.cycle())[1]
    assert (line.target, line.claim) == (4, ())
    assert text_for(line) == "Waits: 4 of 4 GPUs are being released by a training that is ending."
    stopping.settle()
    assert len(stopping.held(1)) == 4


def test_a_lowered_maximum_shrinks_the_job_and_says_so() -> None:
    alone = cluster(preemption=False)
    alone.submit(job(1))
    alone.cycle()
    alone.change(1, max_slots=3)
    line = lines(alone.cycle())[1]
    assert (line.target, line.reason.code) == (3, PlanReason.LIMIT_CHANGED)
    assert text_for(line) == "3 of 8 GPUs: its maximum is 3."


def test_a_job_whose_newcomers_fail_keeps_its_size_and_says_so() -> None:
    alone = cluster(preemption=False)
    alone.submit(job(1))
    alone.cycle()
    alone.change(1, max_slots=3, newcomers_fail=True)
    line = lines(alone.cycle())[1]
    assert text_for(line) == "3 of 8 GPUs: new processes of it failed twice with the same error, so it keeps this size."
    assert not remedies(alone.snapshot, 1)


def test_a_job_without_elasticity_gets_exactly_what_it_asks_or_nothing() -> None:
    mixed = Snapshot(
        0.0, (group(),), hold(slots(4, 4), {"h1:0-3": 1}), (running(job(1)), job(2, least=1, most=8, elastic=False))
    )
    assert targets(SimulatedCluster(mixed).cycle()) == {1: 8, 2: 0}

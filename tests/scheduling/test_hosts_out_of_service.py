"""Jobs on hosts where nothing new may be claimed: they move if they can, live, and otherwise stay."""

from scheduling.plan import PlanReason
from scheduling.snapshot import JobView, SlotView, Snapshot
from tests.scheduling.cluster import Policy, SimulatedCluster, group, hold, job, lines, running, slots, text_for


def draining(
    held: tuple[SlotView, ...], *jobs: JobView, host: str = "h1", policy: Policy = "fairshare", preemption: bool = True
) -> SimulatedCluster:
    cluster = SimulatedCluster(Snapshot(0.0, (group(policy, preemption=preemption),), held, jobs))
    cluster.drain(host)
    return cluster


def test_moves_at_once_where_replacements_are_free() -> None:
    for policy in ("fairshare", "priority", "fifo"):
        cluster = draining(hold(slots(4, 4), {"h1:0-3": 1}), running(job(1)), policy=policy)
        line = lines(cluster.cycle())[1]
        assert (len(line.claim), len(line.vacate), line.target) == (4, 4, 4)
        assert line.reason.code == PlanReason.REBALANCED
        assert text_for(line) == "4 of 4 GPUs: all available GPUs; moves off h1."


def test_gives_up_what_cannot_be_replaced_if_its_minimum_remains() -> None:
    cluster = draining(hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1}), running(job(1)))
    line = lines(cluster.cycle())[1]
    assert (line.target, line.claim, {ref.host for ref in line.vacate}) == (4, (), {"h1"})


def test_others_make_room_for_it_and_it_keeps_its_share_meanwhile() -> None:
    busy = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    cluster = draining(busy, running(job(1)), running(job(2)))
    line = lines(cluster.cycle())[1]
    assert (line.target, len(line.slots), line.claim) == (2, 2, ())
    assert text_for(line).endswith("; leaves h1 when other GPUs are free.")
    cluster.settle()
    assert [ref.host for ref in cluster.held(1)] == ["h2", "h2"]


def test_stays_where_its_minimum_fits_nowhere_else() -> None:
    cluster = draining(hold(slots(4, 2), {"h1:0-3": 1}), running(job(1, least=3)))
    line = lines(cluster.cycle())[1]
    assert (line.target, line.vacate, line.reason.code) == (4, (), PlanReason.UNCHANGED)
    assert text_for(line) == "4 GPUs: stays on h1, which is draining, because its minimum of 3 fits nowhere else."


def test_nothing_changes_while_every_host_is_silent() -> None:
    cluster = draining(hold(slots(4), {"h1:0-1": 1, "h1:2-3": 2}), running(job(1)), running(job(2)))
    assert cluster.settle() == 0


def test_a_fixed_size_job_finishes_where_it_is() -> None:
    cluster = draining(hold(slots(4, 4), {"h1:0-3": 1}), running(job(1, least=4, most=4, elastic=False)), job(2))
    line = lines(cluster.cycle())[1]
    assert (line.target, line.claim, line.vacate) == (4, (), ())
    assert "because it runs on a fixed number of GPUs" in text_for(line)
    assert len(cluster.held(2)) == 4


def test_a_running_job_without_preemption_shrinks_nobody_to_move() -> None:
    busy = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    cluster = draining(busy, running(job(1)), running(job(2)), preemption=False)
    assert cluster.settle() == 0


def test_free_slots_out_of_service_are_nobodys() -> None:
    cluster = draining(slots(4, 4), job(1))
    assert {ref.host for ref in lines(cluster.cycle())[1].claim} == {"h2"}

"""Jobs on hosts where nothing new may be claimed: they move if they can, live, and otherwise stay."""

from dataclasses import replace

from scheduling.plan import PlanReason
from scheduling.schedule import schedule
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


def out(pool: tuple[SlotView, ...], **states: str) -> tuple[SlotView, ...]:
    """Take hosts out of service: `out(pool, h2="draining")`."""
    return tuple(
        replace(slot, claimable=False, out=states[slot.ref.host]) if slot.ref.host in states else slot for slot in pool
    )


def waits(pool: tuple[SlotView, ...], *jobs: JobView, policy: Policy = "fairshare") -> str:
    """The sentence of the last job."""
    return text_for(lines(schedule(Snapshot(0.0, (group(policy),), pool, jobs)))[jobs[-1].id])


def test_names_the_hosts_that_do_not_keep_trainings_apart_enough() -> None:
    pool = tuple(
        replace(slot, resource_groups=("rg", "rg (apart)")) if slot.ref.host == "h1" else slot for slot in slots(2, 4)
    )
    demanding = group(rg="rg (apart)", part_of="rg")
    wide, narrow = job(1, least=4), job(2, least=2, most=2)
    plan = lines(schedule(Snapshot(0.0, (demanding,), pool, (wide,))))
    assert text_for(plan[1]) == (
        "Needs 4 GPUs at once: its group has 2 to share now; h2 (4 GPUs) does not keep trainings apart as the group "
        "demands."
    )
    assert {ref.host for ref in lines(schedule(Snapshot(0.0, (demanding,), pool, (narrow,))))[2].claim} == {"h1"}
    drained = out(pool, h1="draining", h2="lost")
    assert text_for(lines(schedule(Snapshot(0.0, (demanding,), drained, (wide,))))[1]).endswith(
        "; h1 (2 GPUs) is draining and h2 (4 GPUs) does not report."
    )


def test_names_the_hosts_with_which_it_would_start() -> None:
    eight = job(1, least=8, elastic=False)
    assert waits(out(slots(4, 4), h2="draining"), eight) == (
        "Needs 8 GPUs at once: its group has 4 to share now; h2 (4 GPUs) is draining."
    )
    assert waits(out(slots(4, 4), h1="lost", h2="offline"), job(1)) == (
        "Needs 1 GPU at once: its group has 0 to share now; h1 (4 GPUs) does not report and h2 (4 GPUs) is offline."
    )
    assert waits(out(slots(4, 4), h2="unwalled"), eight) == (
        "Needs 8 GPUs at once: its group has 4 to share now; h2 (4 GPUs) cannot keep trainings apart."
    )
    assert waits(out(slots(4, 4), h2="former"), eight) == (
        "Needs 8 GPUs at once: its group has 4 to share now; h2 (4 GPUs) is of a former release, whose processes "
        "cannot join the trainings that run now, and has to be upgraded."
    )
    busy = out(hold(slots(4, 4, 4), {"h1:0-3": 1, "h2:0-2": 1}), h3="lost")
    assert waits(busy, running(job(1, least=7, most=7)), job(2, least=4)) == (
        "Waits for 3 more GPUs: it needs 4, and 7 of 8 are the minimum of other trainings; h3 (4 GPUs) does not report."
    )
    whole = job(1, least=4, most=4, elastic=False, one_host=True)
    assert waits(out(slots(2, 4, 2), h2="draining", h3="lost"), whole) == (
        "Waits for 4 GPUs on one host: no host has more than 2 for it; h2 (4 GPUs) is draining."
    )


def test_names_no_host_that_would_not_help() -> None:
    assert waits(out(slots(4, 2), h2="draining"), job(1, least=8, elastic=False)) == (
        "Needs 8 GPUs at once: its group has 4 to share now."
    )
    elsewhere = out((*slots(4), *slots(0, 4, rg="other")), h2="draining")
    assert waits(elsewhere, job(1, least=8, elastic=False)) == "Needs 8 GPUs at once: its group has 4 to share now."


def test_a_job_with_nothing_in_service_is_not_stopped_for_one_that_is_protected() -> None:
    """T1 stays on its draining host. T2 keeps the only GPU in service, which another group is due: T1 was stopped."""
    groups = (group(name="a"), group("priority", name="b", minimum_run_seconds=60))
    jobs = (
        running(job(1, group="b")),
        running(job(2, group="b", started_at=90.0)),
        job(3, group="a", most=1, elastic=False, submitted_at=0.0),
    )
    cluster = SimulatedCluster(Snapshot(100.0, groups, hold(slots(1, 1), {"h1:0": 2, "h2:0": 1}), jobs))
    cluster.drain("h2")
    line = lines(cluster.cycle())[1]
    assert (line.target, line.vacate, line.preempt) == (1, (), False)
    assert "stays on h2" in text_for(line)

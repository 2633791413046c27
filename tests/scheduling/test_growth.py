"""Check that the cost of a cycle grows with jobs and slots, not with their square: in steps of the interpreter."""

import sys
from types import FrameType
from typing import Any

import pytest

from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import Policy, SimulatedCluster, group, job, slots

GROWTH = 8


def many_jobs(policy: Policy, jobs: int, hosts: int) -> Snapshot:
    """Every job waits for up to 8 of its own, every slot is free."""
    views = tuple(job(number, 1000 + number % 7, least=1 + number % 3) for number in range(1, jobs + 1))
    return Snapshot(0.0, (group(policy),), slots(*[4] * hosts), views)


def steps(snapshot: Snapshot) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        schedule(snapshot)
    finally:
        sys.settrace(former)
    return count


@pytest.mark.parametrize("policy", ["fairshare", "priority", "fifo"])
@pytest.mark.parametrize("many_hosts", [True, False])
@pytest.mark.parametrize("cycles", [0, 2])
def test_a_cycle_costs_in_proportion(policy: Policy, many_hosts: bool, cycles: int) -> None:
    """On as many hosts as jobs, and where nearly everybody waits; before anybody runs, and after some cycles."""

    def steps_with(jobs: int) -> int:
        cluster = SimulatedCluster(many_jobs(policy, jobs, jobs if many_hosts else 2))
        for _ in range(cycles):
            cluster.cycle()
        return steps(cluster.snapshot)

    assert steps_with(40 * GROWTH) < 1.5 * GROWTH * steps_with(40)

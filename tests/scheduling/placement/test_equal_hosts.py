"""The same number of slots on each host, on as few hosts as possible."""

import pytest

from jobs.messages import text_of
from scheduling.placement.slots_by_host import SlotsByHost
from scheduling.schedule import schedule
from scheduling.snapshot import SlotRef, Snapshot
from tests.scheduling.cluster import group, hold, job, lines, running, slots

FOUND = [
    ({"a": 4, "b": 4}, 4, {"a": 4}),
    ({"a": 4, "b": 3}, 6, {"a": 3, "b": 3}),
    ({"a": 2, "b": 2}, 3, {}),
    ({"a": 1, "b": 2}, 3, {}),
    ({"a": 1, "b": 2, "c": 3}, 3, {"c": 3}),
    ({"a": 1, "b": 2, "c": 2}, 3, {"a": 1, "b": 1, "c": 1}),
    ({"a": 4, "b": 2, "c": 2}, 4, {"a": 4}),
    ({"a": 3, "b": 2, "c": 2}, 4, {"b": 2, "c": 2}),
]


@pytest.mark.parametrize(("free", "count", "expected"), FOUND)
def test_hosts_have_equal_numbers(free: dict[str, int], count: int, expected: dict[str, int]) -> None:
    refs = {host: tuple(SlotRef(host, index) for index in range(size)) for host, size in free.items()}
    chosen = SlotsByHost(refs).take_equal(count)
    assert {host: sum(ref.host == host for ref in chosen) for host in {ref.host for ref in chosen}} == expected
    assert len(set(chosen)) == len(chosen)


def test_two_jobs_share_no_slot() -> None:
    refs = {host: tuple(SlotRef(host, index) for index in range(4)) for host in "ab"}
    free = SlotsByHost(refs)
    first, second = free.take_equal(6), free.take_equal(2)
    assert {ref.host for ref in second} == {"a", "b"}
    assert not set(first) & set(second)


def test_a_job_waits_until_hosts_have_equal_numbers() -> None:
    held = job(2, least=2, most=2, elastic=False)
    waiting = job(1, least=6, most=6, elastic=False, equal_hosts=True)
    free = hold(slots(4, 4), {"h1:0-1": 2})
    plan = schedule(Snapshot(at=100.0, groups=(group(),), slots=free, jobs=(running(held), waiting)))
    line = lines(plan)[1]
    assert (line.target, line.claim) == (6, ())
    assert text_of(line.reason.params) == "Waits until 6 GPUs are free, as many on each host."
    [started] = schedule(Snapshot(at=100.0, groups=(group(),), slots=slots(4, 4), jobs=(waiting,))).jobs
    assert sorted(ref.host for ref in started.claim) == [*["h1"] * 3, *["h2"] * 3]

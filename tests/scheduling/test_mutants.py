"""Planted mistakes: a compact set of checks catches each of them, so these checks (and the suite) can fail."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.scheduling import snapshot as snapshot_module
from jobs.scheduling.snapshot import JobView, SlotView, Snapshot
from jobs.states import Reason
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import Policy, Scheduler, SimulatedCluster, group, hold, job, lines, running, slots
from tests.scheduling.test_reasons import check_reasons

SOURCE = Path(snapshot_module.__file__).parent
#: (file, right, wrong)
Mutant = tuple[str, str, str]
Loader = Callable[[Mutant | None], Scheduler]

#: What goes wrong -> how.
MUTANTS: dict[str, Mutant] = {
    "rounding by priority instead of the largest fraction": (
        "policies/fairshare.py",
        "(-exact.rest.get(demand.id, 0), by_priority(demand))",
        "by_priority(demand)",
    ),
    "the remainder is lost": ("policies/fairshare.py", "line[:remainder]", "line[:0]"),
    "no maximum": (
        "policies/fairshare.py",
        "d.max_slots * total) for d in unclamped",
        "left * total) for d in unclamped",
    ),
    "no minimum": (
        "policies/fairshare.py",
        "max(wish[d.id], least[d.id] * total)",
        "wish[d.id]",
    ),
    "running minimums no longer come first": (
        "policies/fairshare.py",
        "(not demand.running, by_priority(demand))",
        "by_priority(demand)",
    ),
    "shrinks without preemption": ("policies/fairshare.py", "if preemption else d.kept", "if True else d.kept"),
    "waiting jobs are overtaken": (
        "policies/fairshare.py",
        "        elif not demand.running and demand.min_slots <= capacity:\n            break\n",
        "",
    ),
    "lower priority first": ("demand.py", "(-demand.priority,", "(demand.priority,"),
    "later submission first": (
        "demand.py",
        "return (demand.submitted_at, demand.id)",
        "return (-demand.submitted_at, demand.id)",
    ),
    "fifo shrinks": ("policies/fifo.py", "demand.id: demand.kept for", "demand.id: demand.min_slots for"),
    "priority stops without preemption": ("policies/priority.py", "if not preemption:", "if False:"),
    "equals stop each other": (
        "policies/priority.py",
        "more = min(demand.kept - given[demand.id], left)",
        "more = 0",
    ),
    "slots being given back are free": ("pool.py", "        elif offered:", "        elif False:"),
    "slots being given back are forgotten": ("pool.py", " + sum(map(len, self.coming.values()))", ""),
    "slots being given back are still held": ("pool.py", " and not slot.vacating", ""),
    "lost and draining hosts are used": ("pool.py", "slot.claimable and resource_group", "resource_group"),
    "other resource groups are used": ("pool.py", " and resource_group in slot.resource_groups", ""),
    "another group's reserve is taken": ("pool.py", " and ref not in counted_on", ""),
    "free slots are reserved before returning ones": (
        "schedule.py",
        "(vacated + coming + unclaimed)",
        "(unclaimed + vacated + coming)",
    ),
    "starts below its minimum": ("placement.py", "wanted < demand.min_slots", "wanted < 1"),
    "one slot for two jobs": ("packing.py", "after = before[count:]", "after = before[max(0, count - 1) :]"),
    "fixed sizes are moved": ("decision.py", "if not job.elastic and pool.away.get(job.id)", "if False"),
    "moves though its minimum fits nowhere": ("decision.py", "        if not stranded:\n", "        if True:\n"),
    "shrinking leaves pieces of every host": (
        "packing.py",
        "self._sizes[position] if position",
        "self._sizes[0] if position",
    ),
    "starting takes the largest host": ("packing.py", "self._sizes[position] if", "self._sizes[-1] if"),
    "growing ignores the hosts it is on": (
        "packing.py",
        "own_hosts = {ref.host for ref in beside}",
        "own_hosts: set[str] = set()",
    ),
    "gives back slots without need": (
        "placement.py",
        "kept = choose_kept(pool.held.get(demand.id, ()), target)",
        "kept = choose_kept(pool.held.get(demand.id, ()), target)[1:]",
    ),
    "a stopped job is only shrunk": (
        "schedule.py",
        "preempt=placed.preempt",
        "preempt=False",
    ),
    "the sentence compares the wrong way round": (
        "explain.py",
        'wording.compared(case.me.priority, case.label(first.id), first.priority)\n    return "compared"',
        'wording.compared(first.priority, case.label(first.id), case.me.priority)\n    return "compared"',
    ),
    "the sentence names strangers": ("wording.py", "if other.owner != reader.owner:", "if False:"),
    "the sentence counts itself among the others": (
        "explain.py",
        "if self.demand.id in self.decision.shares else",
        "if False else",
    ),
    "what is missing is miscounted": (
        "placement.py",
        "return self.target - len(self.kept) - len(self.claim)",
        "return self.target - len(self.kept)",
    ),
}


def check_scheduler(schedule: Scheduler) -> None:
    """Raises AssertionError unless `schedule` decides a handful of telling cases rightly."""
    for snapshot in _telling_snapshots():
        cluster = SimulatedCluster(snapshot, schedule)
        for _ in range(4):
            before = cluster.snapshot
            plan = cluster.turn()
            check_plan(before, plan)
            check_reasons(before, plan)
    _check_sizes(schedule)
    _check_places(schedule)


def _telling_snapshots() -> Iterator[Snapshot]:
    full = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    halves = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in full)
    policies: tuple[Policy, ...] = ("fairshare", "priority", "fifo")
    for policy in policies:
        for preemption in (True, False):
            groups = (group(policy, preemption=preemption),)
            yield Snapshot(0.0, groups, full, (running(job(1, owner=1)), job(2, 10000, owner=2), job(3, owner=1)))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 10000))))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 9000)), job(3, 7000, least=6)))
            yield Snapshot(0.0, groups, drained, (running(job(1, least=5)), job(2)))
            yield Snapshot(0.0, groups, drained, (running(job(1, most=8, elastic=False)), job(2)))
            yield Snapshot(0.0, groups, full, (job(2, least=3), job(3)))
            yield Snapshot(0.0, groups, slots(4, 4), (job(1, most=3), job(2, 9000, most=3), job(3)))
    other = tuple(
        replace(slot, resource_groups=("rg", "x") if slot.ref.host == "h2" else ("x",)) for slot in slots(4, 4)
    )
    yield Snapshot(0.0, (group(),), other, (job(1),))


def _check_sizes(schedule: Scheduler) -> None:
    full = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    halves = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    assert _sizes(schedule, full, running(job(1)), job(2)) == {1: 4, 2: 4}
    assert _sizes(schedule, halves, running(job(1)), running(job(2, 10000))) == {1: 3, 2: 5}
    assert _sizes(schedule, slots(4, 4), job(1, 10000), job(2, 10000), job(3, 1)) == {1: 4, 2: 3, 3: 1}
    assert _sizes(schedule, slots(4, 4), job(1, 9000), job(2, 4000), job(3, 4000)) == {1: 4, 2: 2, 3: 2}
    assert _sizes(schedule, slots(4, 4), job(1, 7000), job(2, 3900)) == {1: 5, 2: 3}
    assert _sizes(schedule, slots(4, 4), job(1, most=2), job(2)) == {1: 2, 2: 6}
    assert _sizes(schedule, full, running(job(1, 1, least=6)), job(2, 9000, least=4)) == {1: 8, 2: 0}
    assert _sizes(schedule, full, running(job(1, least=6)), job(2, least=3), job(3)) == {1: 8, 2: 0, 3: 0}
    later = running(job(1, submitted_at=9.0))
    assert _sizes(schedule, full, later, job(2), policy="fifo") == {1: 8, 2: 0}
    assert _sizes(schedule, slots(4, 4), job(1), job(2, 9000), policy="fifo") == {1: 8, 2: 0}
    assert _sizes(schedule, slots(4, 4), job(1), job(2, 9000), policy="priority") == {1: 0, 2: 8}
    assert _sizes(schedule, full, later, job(2), policy="priority") == {1: 8, 2: 0}
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in hold(slots(4, 4), {"h1:0-3": 1}))
    assert _sizes(schedule, drained, running(job(1, least=3)), job(2, 9000, least=2)) == {1: 4, 2: 0}
    stopped = Snapshot(0.0, (group("priority"),), full, (running(job(1, least=4)), job(2, 9000, most=6)))
    assert lines(schedule(stopped))[1].preempt


def _check_places(schedule: Scheduler) -> None:
    """Whole hosts are left to others, and groups leave each other's slots alone."""
    scattered = hold(slots(4, 4, 2), {"h1:0-3": 1, "h2:0-1": 1})
    shrinking = lines(schedule(Snapshot(0.0, (group(),), scattered, (running(job(1, most=4)),))))[1]
    assert {ref.host for ref in shrinking.slots} == {"h1"}
    starting = lines(schedule(Snapshot(0.0, (group(),), slots(4, 4, 2), (job(1, most=2),))))[1]
    assert {ref.host for ref in starting.slots} == {"h3"}
    growing = hold(slots(2, 4), {"h2:0": 1})
    grown = lines(schedule(Snapshot(0.0, (group(),), growing, (running(job(1, most=3)),))))[1]
    assert {ref.host for ref in grown.slots} == {"h2"}
    assert grown.reason.code == Reason.GREW_INTO_FREE_SLOTS
    groups = (group(name="a"), group(name="b"))
    held = hold(slots(5), {"h1:0-2": 1})
    held = tuple(replace(slot, vacating=slot.held_by == 1 and slot.ref.index > 0) for slot in held)
    jobs = (running(job(1, group="a", most=1)), job(2, group="a", least=3, most=3), job(3, group="b"))
    shared = Snapshot(0.0, groups, held, jobs)
    plan = schedule(shared)
    check_plan(shared, plan)
    assert {line.job: line.target for line in plan.jobs} == {1: 1, 2: 3, 3: 1}


def _sizes(
    schedule: Scheduler, held: tuple[SlotView, ...], *jobs: JobView, policy: Policy = "fairshare"
) -> dict[int, int]:
    snapshot = Snapshot(0.0, (group(policy),), held, jobs)
    return {line.job: line.target for line in schedule(snapshot).jobs}


def _load(folder: Path, package: str, mutant: Mutant | None) -> Scheduler:
    """A copy of the scheduler under another name, with one mistake; the words of snapshot and plan stay the same."""
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        text = file.read_text()
        if mutant and mutant[0] == name:
            assert text.count(mutant[1]) == 1, f"{mutant[1]!r} is in {name} {text.count(mutant[1])} times"
            text = text.replace(mutant[1], mutant[2])
        copy = folder / package / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(re.sub(r"\bjobs\.scheduling\b(?!\.(?:snapshot|plan)\b)", package, text))
    scheduler: Scheduler = importlib.import_module(f"{package}.schedule").schedule
    return scheduler


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)
    yield lambda mutant: _load(tmp_path, "scheduling_under_test", mutant)
    for name in set(sys.modules) - known:
        if name.startswith("scheduling_under_test"):
            del sys.modules[name]


def test_the_scheduler_itself_passes(load: Loader) -> None:
    check_scheduler(load(None))


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_planted_mistake_is_caught(mistake: str, load: Loader) -> None:
    mutated = load(MUTANTS[mistake])
    with pytest.raises(AssertionError):
        check_scheduler(mutated)

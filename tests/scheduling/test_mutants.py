"""Planted mistakes: a compact set of checks catches each of them, so these checks (and the suite) can fail."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scheduling import snapshot as snapshot_module
from scheduling.plan import PlanReason
from scheduling.snapshot import GroupView, JobView, SlotView, Snapshot
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
        "sorted(exact.rest, key=exact.rest.__getitem__, reverse=True)",
        "list(exact.rest)",
    ),
    "the remainder is lost": ("policies/fairshare.py", "[:remainder]", "[:0]"),
    "no maximum": ("policies/fairshare.py", "if left * d.priority > d.max_slots * total", "if False"),
    "no minimum": ("policies/fairshare.py", "if left * d.priority < least[d.id] * total", "if False"),
    "running minimums no longer come first": ("policies/fairshare.py", "if 0 < need <= spare:", "if False:"),
    "shrinks without preemption": (
        "policies/fairshare.py",
        "if preemption else demand.kept",
        "if True else demand.kept",
    ),
    "waiting jobs are overtaken": (
        "policies/fairshare.py",
        "        elif demand.min_slots <= capacity:\n            break\n",
        "",
    ),
    "lower priority first": ("demand.py", "key=_PRIORITY, reverse=True", "key=_PRIORITY"),
    "later submission first": (
        "demand.py",
        "key=_SUBMITTED_AT)",
        "key=_SUBMITTED_AT, reverse=True)",
    ),
    "fifo shrinks": ("policies/fifo.py", "demand.id: demand.kept for", "demand.id: demand.min_slots for"),
    "priority stops without preemption": ("policies/priority.py", "if not preemption:", "if False:"),
    "equals stop each other": (
        "policies/priority.py",
        "more = max(0, min(demand.kept - given[demand.id], left))",
        "more = 0",
    ),
    "slots being given back are free": (
        "pool.py",
        "by_holder[slot.held_by]",
        "by_holder[None if slot.vacating else slot.held_by]",
    ),
    "slots being given back are forgotten": ("pool.py", " + _count(self.coming)", ""),
    "slots being given back are still held": ("pool.py", " and not slot.vacating", ""),
    "lost and draining hosts are used": ("pool.py", "if claimable and class_of[names]:", "if class_of[names]:"),
    "nobody moves off lost and draining hosts": ("pool.py", " if slot.claimable else _NOWHERE", ""),
    "other resource groups are used": ("pool.py", "if group.resource_group in offered]", "if True]"),
    "another group's reserve is taken": ("pool.py", "if ref not in taken)", "if True)"),
    "quotas do not come first": ("entitlement.py", "level = _raised(claimants, level, owned, sizes)\n", "\n"),
    "weights do not count": (
        "entitlement.py",
        "_Rise(one, Fraction(one.most), one.weight)",
        "_Rise(one, Fraction(one.most), 1)",
    ),
    "borrows without leave": ("entitlement.py", "min(self.wants, self.quota) if limited", "self.wants if limited"),
    "a quota that is not lent is lent": (
        "entitlement.py",
        "return self.quota if not self.lends",
        "return 0 if not self.lends",
    ),
    "parts are rounded down and the rest is lost": (
        "entitlement.py",
        "            result = raised\n",
        "            pass\n",
    ),
    "an unused part is not lent": (
        "division.py",
        "        self._lend_to_who_wants_more()\n        self._lend_to_who_can_use_it()\n",
        "",
    ),
    "stops for slots that nobody has a right to": ("division.py", "        self._lend_to_who_would_be_stopped()\n", ""),
    "stops a job before its minimum run time": ("reclaim.py", " and not demand.protected", ""),
    "preempts a job before its minimum run time": ("policies/priority.py", " or demand.protected", ""),
    "a higher priority counts on what is protected": (
        "policies/priority.py",
        "capacity - reserved - sum(given.values())",
        "capacity - sum(given.values())",
    ),
    "stops the oldest job of the highest priority": (
        "reclaim.py",
        "for demand in reversed(running):",
        "for demand in running:",
    ),
    "stops more than it must": ("reclaim.py", "        if excess + demand.least <= 0:", "        if False:"),
    "stops before it shrinks": (
        "reclaim.py",
        "sum(demand.least for demand in running) - capacity",
        "sum(demand.kept for demand in running) - capacity",
    ),
    "a borrower without preemption keeps all": (
        "reclaim.py",
        "if sum(demand.kept for demand in running) > capacity:",
        "if False:",
    ),
    "what others may only have there is held on to": ("pool.py", "if excess.get(classes[ref], 0) > 0:", "if False:"),
    "a stopped group starts jobs": ("decision.py", "if not group.started:", "if False:"),
    "borrowers claim before who is below its part": (
        "schedule.py",
        "(_has_its_part(decisions[name]), name)",
        "(not _has_its_part(decisions[name]), name)",
    ),
    "free slots are reserved before returning ones": (
        "schedule.py",
        "chain(returning, coming, unclaimed)",
        "chain(unclaimed, returning, coming)",
    ),
    "starts below its minimum": ("placement.py", "wanted < demand.min_slots", "wanted < 1"),
    "one slot for two jobs": ("packing.py", "after = before[count:]", "after = before[max(0, count - 1) :]"),
    "fixed sizes are moved": (
        "decision.py",
        "pinned = {job for job in pool.away if job in fixed} - pool.displaced.keys()",
        "pinned: set[int] = set()",
    ),
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
        '"priority": demand.priority,',
        '"priority": self.me.priority,',
    ),
    "the sentence names strangers": ("explain.py", "if other.owner != reader.owner:", "if False:"),
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
            plan = cluster.cycle()
            check_plan(before, plan)
            check_reasons(before, plan)
    _check_sizes(schedule)
    _check_places(schedule)
    _check_groups(schedule)


def _telling_snapshots() -> Iterator[Snapshot]:
    full = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    halves = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in full)
    closing = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in slots(4, 4))
    policies: tuple[Policy, ...] = ("fairshare", "priority", "fifo")
    for policy in policies:
        for preemption in (True, False):
            groups = (group(policy, preemption=preemption),)
            yield Snapshot(0.0, groups, full, (running(job(1, owner=1)), job(2, 10000, owner=2), job(3, owner=1)))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 10000))))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 9000)), job(3, 7000, least=6)))
            yield Snapshot(0.0, groups, drained, (running(job(1, least=5)), job(2)))
            yield Snapshot(0.0, groups, drained, (running(job(1, most=8, elastic=False)), job(2)))
            yield Snapshot(0.0, groups, closing, (job(1), job(2)))
            yield Snapshot(0.0, groups, full, (job(2, least=3), job(3)))
            yield Snapshot(0.0, groups, slots(4, 4), (job(1, most=3), job(2, 9000, most=3), job(3)))
    other = tuple(
        replace(slot, resource_groups=("rg", "x") if slot.ref.host == "h2" else ("x",)) for slot in slots(4, 4)
    )
    yield Snapshot(0.0, (group(),), other, (job(1),))
    yield Snapshot(0.0, (group(), group(name="x", rg="x")), other, (job(1), job(2, group="x")))


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
    assert grown.reason.code == PlanReason.GREW_INTO_FREE_SLOTS
    groups = (group(name="a", quota=4), group(name="b"))
    held = hold(slots(5), {"h1:0-2": 1})
    held = tuple(replace(slot, vacating=slot.held_by == 1 and slot.ref.index > 0) for slot in held)
    jobs = (running(job(1, group="a", most=1)), job(2, group="a", least=3, most=3), job(3, group="b"))
    shared = Snapshot(0.0, groups, held, jobs)
    plan = schedule(shared)
    check_plan(shared, plan)
    assert {line.job: line.target for line in plan.jobs} == {1: 1, 2: 3, 3: 1}
    assert len(lines(plan)[3].claim) == 1


def _check_groups(schedule: Scheduler) -> None:
    """Quotas, weights, loans, and what comes back of them."""
    a, b = group(name="a"), group(name="b")
    mine, other = job(1, group="a"), job(2, group="b")
    free, full = slots(4, 4), hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    assert _parts(schedule, free, (a, b), mine, other) == {1: 4, 2: 4}
    assert _parts(schedule, free, (replace(a, quota=6), b), mine, other) == {1: 7, 2: 1}
    assert _parts(schedule, free, (replace(a, weight=3), b), mine, other) == {1: 6, 2: 2}
    assert _parts(schedule, slots(4, 5), (replace(a, weight=2), b), mine, other) == {1: 6, 2: 3}
    assert _parts(schedule, slots(4, 3), (a, b), mine, other) == {1: 4, 2: 3}
    assert _parts(schedule, slots(4, 3), (a, replace(b, weight=2)), mine, other) == {1: 2, 2: 5}
    assert _parts(schedule, free, (replace(a, started=False),), mine) == {1: 0}
    assert _parts(schedule, free, (replace(a, quota=2, borrows=False), b), mine, job(2, group="b", most=3)) == {
        1: 2,
        2: 3,
    }
    assert _parts(schedule, free, (replace(a, quota=3, lends=False), b), other) == {2: 5}
    assert _parts(schedule, free, (a, b), mine, job(2, group="b", least=5, most=5)) == {1: 8, 2: 0}
    assert _parts(schedule, free, (a, replace(b, started=False)), mine, other) == {1: 8, 2: 0}
    for policy in ("fifo", "priority", "fairshare"):
        borrower = replace(a, policy=policy, preemption=False)
        assert _parts(schedule, full, (borrower, b), running(mine), other) == {1: 4, 2: 4}
    _check_stops(schedule, a, replace(b, quota=6))


def _check_stops(schedule: Scheduler, a: GroupView, b: GroupView) -> None:
    pairs = hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 2, "h2:0-3": 3})
    first, second = (running(job(n, group="a", least=2, most=2, elastic=False)) for n in (1, 2))
    third = running(job(3, 9000, group="a", least=1, most=4))
    waits = job(4, group="b", most=6)
    assert _parts(schedule, pairs, (a, b), first, second, third, waits) == {1: 0, 2: 0, 3: 2, 4: 6}
    assert _parts(schedule, pairs, (a, replace(b, quota=5)), first, second, third, replace(waits, max_slots=5)) == {
        1: 2, 2: 0, 3: 1, 4: 5,
    }  # fmt: skip
    new = replace(second, started_at=-1.0)
    kept = replace(a, minimum_run_seconds=60)
    old = [replace(view, started_at=-99.0) for view in (first, third)]
    assert _parts(schedule, pairs, (kept, replace(b, quota=5)), old[0], new, old[1], replace(waits, max_slots=5)) == {
        1: 0, 2: 2, 3: 1, 4: 5,
    }  # fmt: skip
    ranked = Snapshot(
        0.0, (replace(kept, policy="priority"),), pairs, (old[0], new, old[1], job(5, 10000, group="a", least=8))
    )
    check_plan(ranked, schedule(ranked))
    assert lines(schedule(ranked))[2].target == 2
    grows = hold(slots(4, 4), {"h1:0-3": 1})
    gang = job(2, group="b", least=8, most=8)
    assert _parts(schedule, grows, (a, b), running(job(1, group="a", most=4, least=4)), gang) == {1: 4, 2: 0}
    _check_disturbance(schedule, a, b)


def _check_disturbance(schedule: Scheduler, a: GroupView, b: GroupView) -> None:
    """No more is stopped or moved than must be, and who is below its part claims first."""
    pairs = hold(slots(4, 5), {"h1:0-1": 1, "h1:2-3": 2})
    mine = tuple(running(job(n, group="b", least=2, most=2, elastic=False)) for n in (1, 2))
    theirs = tuple(job(n, group="a", least=2, most=2, elastic=False) for n in (3, 4))
    groups = (a, replace(b, quota=None), group(name="c"))
    kept = _parts(schedule, pairs, groups, *mine, *theirs, job(5, group="c"))
    assert kept == {1: 2, 2: 2, 3: 2, 4: 0, 5: 3}
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0": 2})
    large, small = (running(job(n, group="a", least=size, most=size, elastic=False)) for n, size in ((1, 4), (2, 1)))
    assert _parts(schedule, held, (a, replace(b, quota=7)), large, small, job(3, group="b", most=7)) == {
        1: 0,
        2: 1,
        3: 7,
    }
    strict = replace(a, policy="priority", minimum_run_seconds=60)
    new = replace(running(job(1, group="a", least=2, most=2)), started_at=-1.0)
    early = hold(slots(4, 4), {"h1:0-1": 1})
    assert _parts(schedule, early, (strict, replace(b, quota=8)), new, job(2, group="b")) == {1: 2, 2: 6}
    over = hold(slots(4, 2), {"h1:0-2": 1, "h1:3": 2})
    jobs = (running(job(1, 1, group="a", least=3, most=3, elastic=False)), running(job(2, group="a")))
    plan = lines(schedule(Snapshot(0.0, (a, replace(b, quota=4)), over, (*jobs, job(3, group="b", most=4)))))
    assert (plan[1].preempt, plan[2].target, len(plan[2].claim), len(plan[3].claim)) == (True, 2, 0, 2)
    _check_overlap(schedule)


def _check_overlap(schedule: Scheduler) -> None:
    """Who can go elsewhere leaves a host to a group that cannot."""
    offers = {"h1": ("x",), "h2": ("rg", "x")}
    shared = tuple(replace(slot, resource_groups=offers[slot.ref.host]) for slot in hold(slots(4, 4), {"h2:0-3": 2}))
    jobs = (job(1, group="a", most=4), running(job(2, group="b", most=4)))
    cluster = SimulatedCluster(Snapshot(0.0, (group(name="a"), group(name="b", rg="x")), shared, jobs), schedule)
    cluster.settle()
    assert {ref.host for ref in cluster.held(1)} == {"h2"}
    assert {ref.host for ref in cluster.held(2)} == {"h1"}


def _parts(
    schedule: Scheduler, held: tuple[SlotView, ...], groups: tuple[GroupView, ...], *jobs: JobView
) -> dict[int, int]:
    snapshot = Snapshot(0.0, groups, held, jobs)
    plan = schedule(snapshot)
    check_plan(snapshot, plan)
    check_reasons(snapshot, plan)
    return {line.job: line.target for line in plan.jobs}


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
        copy.write_text(re.sub(r"\bscheduling\b(?=[. ])(?!\.(?:snapshot|plan)\b)", package, text))
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

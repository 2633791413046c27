"""A tiny simulated cluster: it does what a plan says, at once, and gives vacated slots back one cycle later."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jobs.messages import text_of
from scheduling.plan import JobPlan, Plan
from scheduling.preview import after_cycle, without_jobs
from scheduling.schedule import schedule
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot

Policy = Literal["fifo", "priority", "fairshare", "goodput"]


def group(
    policy: Policy = "fairshare", *, preemption: bool = True, name: str = "g", rg: str = "rg", **terms: Any
) -> GroupView:
    return GroupView(name=name, resource_group=rg, policy=policy, preemption=preemption, **terms)


def job(number: int, priority: int = 5000, *, least: int = 1, most: int = 8, **fields: Any) -> JobView:
    """T<number>, submitted at second <number>, waiting."""
    values: dict[str, Any] = {"name": f"T{number}", "group": "g", "state": "PENDING", "submitted_at": float(number)}
    return JobView(id=number, priority=priority, min_slots=least, max_slots=most, **(values | fields))


def slots(*sizes: int, rg: str = "rg") -> tuple[SlotView, ...]:
    """Free slots: host h1 with sizes[0] of them, h2 with sizes[1] ..."""
    return tuple(
        SlotView(ref=SlotRef(f"h{host}", index), resource_groups=(rg,), claimable=True)
        for host, size in enumerate(sizes, start=1)
        for index in range(size)
    )


def of_kinds(*hosts: tuple[int, str]) -> tuple[SlotView, ...]:
    """Free slots: host h1 with hosts[0][0] of the kind hosts[0][1], h2 with ..."""
    kinds = {f"h{number}": kind for number, (_, kind) in enumerate(hosts, start=1)}
    return tuple(replace(slot, device=kinds[slot.ref.host]) for slot in slots(*(count for count, _ in hosts)))


def hold(free: Iterable[SlotView], holders: dict[str, int]) -> tuple[SlotView, ...]:
    """`{"h1:0-3": 7}`: job 7 holds these slots."""
    by_ref: dict[SlotRef, int] = {}
    for places, holder in holders.items():
        host, span = places.split(":")
        first, _, last = span.partition("-")
        by_ref |= {SlotRef(host, index): holder for index in range(int(first), int(last or first) + 1)}
    return tuple(replace(slot, held_by=by_ref.get(slot.ref, slot.held_by)) for slot in free)


def running(view: JobView) -> JobView:
    return replace(view, state="RUNNING")


def lines(plan: Plan) -> dict[int, JobPlan]:
    return {line.job: line for line in plan.jobs}


def text_for(line: JobPlan) -> str:
    return text_of(line.reason.params)


def targets(plan: Plan) -> dict[int, int]:
    return {line.job: line.target for line in plan.jobs}


@dataclass
class SimulatedCluster:
    snapshot: Snapshot
    plans: list[Plan] = field(default_factory=list)

    def submit(self, view: JobView) -> None:
        self.snapshot = replace(self.snapshot, jobs=(*self.snapshot.jobs, view))

    def change(self, number: int, **fields: Any) -> None:
        jobs = tuple(replace(view, **fields) if view.id == number else view for view in self.snapshot.jobs)
        self.snapshot = replace(self.snapshot, jobs=jobs)

    def end(self, number: int) -> None:
        """The job is over: its slots are free at once."""
        self.snapshot = without_jobs(self.snapshot, {number})

    def drain(self, host: str) -> None:
        drained = tuple(replace(s, claimable=False) if s.ref.host == host else s for s in self.snapshot.slots)
        self.snapshot = replace(self.snapshot, slots=drained)

    def held(self, number: int) -> list[SlotRef]:
        return [slot.ref for slot in self.snapshot.slots if slot.held_by == number and not slot.vacating]

    def cycle(self) -> Plan:
        """One cycle. What was being given back before it is free after it."""
        plan = schedule(self.snapshot)
        self.snapshot = after_cycle(self.snapshot, lines(plan))
        self.plans.append(plan)
        return plan

    def settle(self, limit: int = 20) -> int:
        """Run cycles until nothing changes any more; how many of them claimed or vacated slots."""
        moved = 0
        for _ in range(limit):
            before = self.snapshot
            moved += any(line.claim or line.vacate for line in self.cycle().jobs)
            if self.snapshot == before:
                return moved
        raise AssertionError(f"not settled after {limit} cycles")

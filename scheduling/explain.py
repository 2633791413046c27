"""The reason for what each job gets: a code, and params that name the rule that decided and hold its figures.

`params["message"]` names the sentence that `jobs.messages` renders from the other params, in the words of the job's
owner. Params hold all that the sentence needs, names as they are now: a rewording changes no stored reason.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from scheduling.division import Decision
from scheduling.group_summary import GroupSummary, OtherGroups, Served, summarize
from scheduling.placement import Placed
from scheduling.plan import Explanation, PlanReason
from scheduling.policies import Demand
from scheduling.snapshot import JobView

__all__ = ["explain", "label"]

_MAX_GIVERS = 5

Params = dict[str, Any]


def explain(
    decision: Decision, placed: Mapping[int, Placed], others: OtherGroups, jobs: Iterable[int]
) -> dict[int, Explanation]:
    """One explanation for each of `jobs`, which are some of `placed`."""
    summary = summarize(decision, placed, others)
    return {job: _explain(summary, job) for job in jobs}


def label(reader: JobView, other: JobView | None) -> dict[str, str]:
    """How another job is called for the owner of `reader`: by its name only if it is the same owner's."""
    if other is None:
        return {"who": "ending"}
    if other.id == reader.id:
        return {"who": "itself"}
    if other.owner != reader.owner:
        return {"who": "stranger"}
    return {"name": other.name}


def _explain(summary: GroupSummary, job: int) -> Explanation:
    decision, place = summary.decision, summary.places.get(job)
    if place is not None:
        case = _Case(summary, decision.demands[place])
        if case.placed.target == 0:
            return _stopped(case) if case.demand.running else _waiting(case)
        return _share(case) if case.demand.running or case.placed.claim else _awaiting(case)
    if job in decision.pinned:
        return _pinned(summary.views[job], decision)
    return _closed(decision) if job in decision.closed else _reclaimed(decision, job)


def _because(code: PlanReason, message: str, **figures: Any) -> Explanation:
    return Explanation(code, {"message": message, **figures})


class _Case:
    """One job of the group, with the figures of its reason. No property looks at every other job."""

    def __init__(self, summary: GroupSummary, demand: Demand) -> None:
        pool = summary.decision.pool
        self.summary = summary
        self.decision = summary.decision
        self.demand = demand
        self.me = summary.views[demand.id]
        self.placed = summary.placed[demand.id]
        #: Slots that the policy gives it.
        self.mine = summary.decision.shares.get(demand.id, 0)
        self.away = pool.away.get(demand.id, ())
        #: Slots that it holds and has not been told to give back.
        self.before = len(pool.held.get(demand.id, ())) + len(self.away)
        self.is_fair_share = pool.group.policy == "fairshare"

    @property
    def moving_off(self) -> list[str]:
        """Hosts that take nothing new and that it leaves in this cycle."""
        return sorted({ref.host for ref in set(self.away).intersection(self.placed.vacate)}) if self.away else []

    @property
    def others(self) -> Served:
        """The other jobs that get anything."""
        served = self.summary.served
        return served.without(self.demand, self.mine) if self.demand.id in self.decision.shares else served

    @property
    def kept_together(self) -> int:
        """Slots of all jobs of the group that get any: more than the capacity only while no job may be stopped."""
        return self.summary.served.slots

    @property
    def first_other(self) -> Demand | None:
        """Of the other jobs that get anything, the one that is served first."""
        return next((demand for demand in self.summary.first_served if demand.id != self.demand.id), None)

    @property
    def preemption(self) -> bool:
        """Whether this group's policy may take slots from running jobs."""
        return self.decision.pool.group.preemption and self.decision.pool.group.policy != "fifo"

    def share(self, demand: Demand) -> int:
        return self.decision.shares.get(demand.id, 0)

    def label(self, job: int) -> dict[str, str]:
        return label(self.me, self.summary.views.get(job))

    def labelled(self, demand: Demand) -> Params:
        return {
            "job": demand.id,
            **self.label(demand.id),
            "slots": self.share(demand),
            "priority": demand.priority,
            "min_slots": demand.min_slots,
            "max_slots": demand.max_slots,
        }


# --- jobs with slots -------------------------------------------------------------------------------------------------


def _share(case: _Case) -> Explanation:
    placed, demand, moving_off = case.placed, case.demand, case.moving_off
    message, figures = _rule(case)
    params: Params = {
        "message": message,
        "target": placed.target,
        "capacity": max(case.decision.capacity, case.kept_together),
        "before": case.before,
        "claimed": len(placed.claim),
        "missing": placed.missing,
        "priority": case.me.priority,
        "min_slots": demand.min_slots,
        "max_slots": demand.max_slots,
        **figures,
    }
    if placed.target < demand.max_slots:
        params |= _group_figures(case.decision)
    if moving_off:
        params["moving_off"] = moving_off
    if placed.leaving:
        params["leaving"] = sorted({ref.host for ref in placed.leaving})
    if placed.missing:
        params |= _givers(case)
    return Explanation(_code(case, moving_off), params)


def _code(case: _Case, moving_off: list[str]) -> PlanReason:
    target, before = case.placed.target, case.before
    if not case.demand.running:
        return PlanReason.GRANTED
    if target < before and before > case.demand.max_slots == target:
        return PlanReason.LIMIT_CHANGED
    if moving_off:
        return PlanReason.REBALANCED
    entitlement = case.decision.entitlement
    if target < before and entitlement is not None and entitlement.gives_back:
        return PlanReason.RECLAIMED_BY_OWNER
    if target < before:
        return PlanReason.SHRUNK_FOR_FAIR_SHARE if case.is_fair_share else PlanReason.PREEMPTED_BY_PRIORITY
    if target > before:
        return PlanReason.GREW_INTO_FREE_SLOTS if case.placed.claim else PlanReason.REBALANCED
    return PlanReason.UNCHANGED


def _group_figures(decision: Decision) -> Params:
    """The entitlement of its group, if that is less than its jobs could use; empty otherwise."""
    entitlement = decision.entitlement
    if entitlement is None or entitlement.used >= entitlement.wants or entitlement.room >= entitlement.total:
        return {}
    figures = {
        "group_room": entitlement.room,
        "group_total": entitlement.total,
        "group_weight": entitlement.weight,
        "group_deserved": round(float(entitlement.deserved), 2),
    }
    return figures if entitlement.quota is None else {**figures, "group_quota": entitlement.quota}


_Rule = tuple[str, Params]


def _rule(case: _Case) -> _Rule:
    """The first rule that holds, with its figures."""
    if case.kept_together > case.decision.capacity:
        return "protected", {"minimum_run_seconds": case.decision.pool.group.minimum_run_seconds}
    if case.placed.target == case.demand.max_slots:
        return "maximum" if case.me.elastic else "fixed", {}
    if case.first_other is None and (case.is_fair_share or case.summary.ahead_of(case.demand) is None):
        return "alone", {}
    return _fair_share_rule(case) if case.is_fair_share else _in_order_rule(case)


def _fair_share_rule(case: _Case) -> _Rule:
    others, first = case.others, case.first_other
    assert first is not None
    total = case.me.priority + others.priority

    def at_floor(demand: Demand) -> bool:
        share = case.share(demand)
        return share == case.summary.floors[demand.id] and share * total > demand.priority * case.decision.capacity

    if others.at_maximum == others.count:
        return "others_maximum", _counted(case)
    if at_floor(case.demand):
        return _floor(case, case.demand)
    if others.count > 1:
        return "by_priority", {"total_priority": total, **_counted(case)}
    if at_floor(first):
        rule, figures = _floor(case, first)
        return f"{rule}_of_other", figures
    return "compared", {"others": [case.labelled(first)]}


def _counted(case: _Case) -> Params:
    """How many others there are and what they get together; the other one itself, if it is one."""
    others, first = case.others, case.first_other
    figures = {"others_count": others.count, "others_slots": others.slots}
    return {**figures, "others": [case.labelled(first)]} if first and others.count == 1 else figures


def _floor(case: _Case, demand: Demand) -> _Rule:
    is_minimum = case.preemption or case.share(demand) == demand.min_slots
    return "floor" if is_minimum else "kept", {**_counted(case), "floor": case.share(demand)}


def _in_order_rule(case: _Case) -> _Rule:
    ahead, first = case.summary.ahead_of(case.demand), case.first_other
    if ahead is not None:
        return "ahead", {"others": [case.labelled(ahead)]}
    assert first is not None
    if case.preemption and first.priority > case.me.priority:
        return "compared", {"others": [case.labelled(first)]}
    return "others_have", _counted(case)


def _pinned(me: JobView, decision: Decision) -> Explanation:
    pool = decision.pool
    slots = len(pool.held.get(me.id, ())) + len(pool.away[me.id])
    hosts = sorted({ref.host for ref in pool.away[me.id]})
    figures = {"target": slots, "before": slots, "min_slots": me.min_slots}
    return _because(PlanReason.UNCHANGED, "pinned", **figures, hosts=hosts, elastic=me.elastic)


def _reclaimed(decision: Decision, job: int) -> Explanation:
    """Other groups have a right to its slots, and its own group keeps too few for it."""
    before = len(decision.pool.held.get(job, ())) + len(decision.pool.away.get(job, ()))
    return _because(PlanReason.RECLAIMED_BY_OWNER, "reclaimed", target=0, before=before, **_group_figures(decision))


def _closed(decision: Decision) -> Explanation:
    return _because(PlanReason.GROUP_STOPPED, "closed", target=0, group=decision.pool.group.name)


# --- jobs without slots ----------------------------------------------------------------------------------------------


def _stopped(case: _Case) -> Explanation:
    higher = case.first_other  # the policy serves by priority, and nothing else stops a job
    assert higher is not None
    figures = {"target": 0, "before": case.before, "priority": case.me.priority}
    others = [case.labelled(higher)]
    return _because(PlanReason.PREEMPTED_BY_PRIORITY, "stopped_by_priority", **figures, others=others)


def _awaiting(case: _Case) -> Explanation:
    """It has a target, but too few of its slots are free yet."""
    target = case.placed.target
    free = min(case.summary.free_left, target)
    figures = {"target": target, "free": free, "missing": target - free, **_givers(case)}
    return _because(PlanReason.WAITING_FOR_SLOTS, "given_back", **figures)


def _waiting(case: _Case) -> Explanation:
    need, capacity = case.demand.min_slots, case.decision.capacity
    if need > capacity:
        code = _waits_for_group(case) or PlanReason.GANG_TOO_LARGE_NOW
        return _because(code, "too_large", min_slots=need, capacity=capacity, **_group_figures(case.decision))
    ahead = case.summary.ahead_of(case.demand)
    return _in_line(case) if ahead is None else _behind(case, ahead)


def _waits_for_group(case: _Case) -> PlanReason | None:
    """It would fit, if its group did not hold all that it owns already."""
    entitlement = case.decision.entitlement
    if entitlement is None or entitlement.quota is None:
        return None
    is_at_quota = entitlement.quota <= entitlement.room < entitlement.wants
    return PlanReason.OVER_QUOTA if is_at_quota and case.demand.min_slots <= entitlement.total else None


def _behind(case: _Case, ahead: Demand) -> Explanation:
    figures = {"priority": case.me.priority, "others": [case.labelled(ahead)]}
    if case.decision.pool.group.policy != "fifo" and ahead.priority > case.me.priority:
        return _because(PlanReason.BEHIND_HIGHER_PRIORITY, "behind_priority", **figures)
    return _because(PlanReason.WAITING_FOR_SLOTS, "behind", **figures)


def _in_line(case: _Case) -> Explanation:
    """It is the next to start: `taken` slots are out of its reach, and what remains is less than its minimum."""
    capacity, need, first = case.decision.capacity, case.demand.min_slots, case.first_other
    by_priority = case.decision.pool.group.policy == "priority" and case.preemption
    if case.is_fair_share:
        taken = case.summary.floors_slots
    else:
        taken = case.summary.firm[case.me.priority] if by_priority else case.others.slots
    message = "in_line_for_minimums" if case.is_fair_share and case.preemption else "in_line"
    figures = {"missing": need - (capacity - taken), "min_slots": need, "taken": taken, "capacity": capacity}
    code = _waits_for_group(case) or PlanReason.WAITING_FOR_SLOTS
    if by_priority and first is not None and first.priority > case.me.priority:
        code = PlanReason.BEHIND_HIGHER_PRIORITY
    return _because(code, message, **figures, **_group_figures(case.decision))


def _givers(case: _Case) -> Params:
    """The jobs that give back slots; of many, only the first."""
    givers = case.summary.givers
    first = [{"job": job, **case.label(job), "slots": slots} for job, slots in islice(givers.items(), _MAX_GIVERS)]
    return {"givers": first, "givers_count": len(givers), "givers_slots": case.summary.givers_slots}

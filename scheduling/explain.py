"""Why a job gets what it gets, in one sentence for its owner. The numbers of each sentence are in its params."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from scheduling import wording
from scheduling.decision import Decision
from scheduling.demand import Demand
from scheduling.group_summary import GroupSummary, OtherGroups, Served, summarize
from scheduling.placement import Placed
from scheduling.plan import Explanation, PlanReason
from scheduling.snapshot import JobView

__all__ = ["explain", "explain_one"]

_MAX_GIVERS = 5


def explain(decision: Decision, placed: Mapping[int, Placed], others: OtherGroups) -> dict[int, Explanation]:
    """One explanation for each job of `placed`."""
    summary = summarize(decision, placed, others)
    return {job: _explain(summary, job) for job in placed}


def explain_one(decision: Decision, placed: Mapping[int, Placed], others: OtherGroups, job: int) -> Explanation:
    """The same sentence, of one job alone."""
    return _explain(summarize(decision, placed, others), job)


def _explain(summary: GroupSummary, job: int) -> Explanation:
    decision, place = summary.decision, summary.places.get(job)
    if place is not None:
        return _explain_case(_Case(summary, decision.demands[place]))
    if job in decision.pinned:
        return _pinned(summary.views[job], decision)
    return _closed(decision) if job in decision.closed else _reclaimed(decision, job)


class _Case:
    """One job of the group, and all that a sentence about it may speak of. Nothing here looks at every other job."""

    def __init__(self, summary: GroupSummary, demand: Demand) -> None:
        pool = summary.decision.pool
        self.summary = summary
        self.decision = summary.decision
        self.demand = demand
        self.me = summary.views[demand.id]
        self.placed = summary.placed[demand.id]
        #: What the policy gives it.
        self.mine = summary.decision.shares.get(demand.id, 0)
        self.away = pool.away.get(demand.id, ())
        #: How many slots it holds and has not been told to give back.
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
    def first_other(self) -> Demand | None:
        """Of the other jobs that get anything, the one that is served first."""
        return next((demand for demand in self.summary.first_served if demand.id != self.demand.id), None)

    @property
    def preemption(self) -> bool:
        """Whether this group's policy may take slots from running jobs."""
        return self.decision.pool.group.preemption and self.decision.pool.group.policy != "fifo"

    def share(self, demand: Demand) -> int:
        return self.decision.shares.get(demand.id, 0)

    def label(self, job: int) -> str:
        return wording.label(self.me, self.summary.views.get(job))

    def labelled(self, demand: Demand) -> dict[str, Any]:
        return {
            "job": demand.id,
            "label": self.label(demand.id),
            "slots": self.share(demand),
            "priority": demand.priority,
            "min_slots": demand.min_slots,
            "max_slots": demand.max_slots,
        }


def _explain_case(case: _Case) -> Explanation:
    if case.placed.target == 0:
        return _stopped(case) if case.demand.running else _waiting(case)
    if not case.demand.running and not case.placed.claim:
        return _awaiting(case)
    return _share(case)


# --- jobs with slots -------------------------------------------------------------------------------------------------


def _share(case: _Case) -> Explanation:
    placed, demand, capacity = case.placed, case.demand, case.decision.capacity
    target, missing, moving_off = placed.target, placed.missing, case.moving_off
    rule, because, figures = _because(case)
    params: dict[str, Any] = {
        "target": target,
        "capacity": capacity,
        "before": case.before,
        "claimed": len(placed.claim),
        "missing": missing,
        "priority": case.me.priority,
        "min_slots": demand.min_slots,
        "max_slots": demand.max_slots,
        "rule": rule,
    }
    params |= figures
    text = f"{target} of {wording.gpus(capacity)}: {because}"
    if target < demand.max_slots:
        text += _beside_others(case.decision, params)
    if moving_off:
        params["moving_off"] = moving_off
        text += f"; moves off {wording.listed(moving_off, 'hosts')}"
    if placed.leaving:
        params["leaving"] = sorted({ref.host for ref in placed.leaving})
        text += f"; leaves {wording.listed(params['leaving'], 'hosts')} once other GPUs are free"
    if missing:
        givers, named = _givers(case)
        params |= givers
        verb = "is" if missing == 1 else "are"
        text += f"; {missing} of them {verb} being given back by {named}"
    return Explanation(_code(case, moving_off), params, text + ".")


def _code(case: _Case, moving_off: list[str]) -> PlanReason:
    target, before = case.placed.target, case.before
    if not case.demand.running:
        return PlanReason.GRANTED
    if target < before and before > case.demand.max_slots == target:
        return PlanReason.LIMIT_CHANGED
    if moving_off:
        return PlanReason.REBALANCED
    if target < before and _gives_back(case.decision):
        return PlanReason.RECLAIMED_BY_OWNER
    if target < before:
        return PlanReason.SHRUNK_FOR_FAIR_SHARE if case.is_fair_share else PlanReason.PREEMPTED_BY_PRIORITY
    if target > before:
        return PlanReason.GREW_INTO_FREE_SLOTS if case.placed.claim else PlanReason.REBALANCED
    return PlanReason.UNCHANGED


def _gives_back(decision: Decision) -> bool:
    return decision.entitlement is not None and decision.entitlement.gives_back > 0


def _beside_others(decision: Decision, params: dict[str, Any]) -> str:
    """What its group has beside others, if that is less than its jobs could use. Its figures go into `params`."""
    entitlement = decision.entitlement
    if entitlement is None or entitlement.used >= entitlement.wants or entitlement.room >= entitlement.total:
        return ""
    params |= {
        "group_room": entitlement.room,
        "group_total": entitlement.total,
        "group_weight": entitlement.weight,
        "group_deserved": round(float(entitlement.deserved), 2),
    }
    rule = f"by its weight of {entitlement.weight}"
    if entitlement.quota is not None:
        params["group_quota"] = entitlement.quota
        rule = f"by its quota of {entitlement.quota} and its weight of {entitlement.weight}"
    return f"; its group has {entitlement.room} of {wording.gpus(entitlement.total)}, {rule}"


_Because = tuple[str, str, dict[str, Any]]


def _because(case: _Case) -> _Because:
    """The first rule that holds: its name, its words, its figures."""
    if case.placed.target == case.demand.max_slots:
        return _at_maximum(case)
    return _fair_share_rules(case) if case.is_fair_share else _in_order_rules(case)


def _at_maximum(case: _Case) -> _Because:
    if not case.me.elastic:
        return "fixed", f"it runs on exactly {case.demand.max_slots}", {}
    return "maximum", f"the most it asks for is {case.demand.max_slots}", {}


def _fair_share_rules(case: _Case) -> _Because:
    others, first = case.others, case.first_other
    if first is None:
        return "alone", "all there are", {}
    total = case.me.priority + others.priority

    def at_floor(demand: Demand) -> bool:
        share = case.share(demand)
        return share == case.summary.floors[demand.id] and share * total > demand.priority * case.decision.capacity

    if others.at_maximum == others.count:
        return _others_at_maximum(case, first)
    if at_floor(case.demand):
        return _at_floor(case, case.demand, "it")
    if others.count > 1:
        words = f"shared by priority with {others.count} other trainings ({case.me.priority} of {total} in all)"
        return "by_priority", words, {"total_priority": total, **_counted(case)}
    if at_floor(first):
        return _at_floor(case, first, case.label(first.id))
    words = wording.compared(case.me.priority, case.label(first.id), first.priority)
    return "compared", words, {"others": [case.labelled(first)]}


def _counted(case: _Case) -> dict[str, Any]:
    """How many others there are and what they get together; the other one itself, if it is one."""
    others, first = case.others, case.first_other
    figures = {"others_count": others.count, "others_slots": others.slots}
    return {**figures, "others": [case.labelled(first)]} if first and others.count == 1 else figures


def _others_at_maximum(case: _Case, first: Demand) -> _Because:
    others, figures = case.others, _counted(case)
    if others.count == 1:
        return "others_maximum", f"the most {case.label(first.id)} can use is {others.most}", figures
    return "others_maximum", f"the most the {others.count} other trainings can use is {others.most}", figures


def _at_floor(case: _Case, demand: Demand, label: str) -> _Because:
    figures = {**_counted(case), "floor": case.share(demand)}
    if case.preemption or case.share(demand) == demand.min_slots:
        return "floor", f"the least {label} needs is {case.share(demand)}", figures
    return "kept", f"{label} keeps {case.share(demand)}, as preemption is off", figures


def _in_order_rules(case: _Case) -> _Because:
    before_me = case.summary.ahead_of(case.demand)
    if before_me is not None:
        words = f"{case.label(before_me.id)} waits before it for {wording.gpus(before_me.min_slots)}"
        return "ahead", words, {"others": [case.labelled(before_me)]}
    others, first = case.others, case.first_other
    if first is None:
        return "alone", "all there are", {}
    figures = _counted(case)
    if case.preemption and first.priority > case.me.priority:
        words = wording.compared(case.me.priority, case.label(first.id), first.priority)
        return "compared", words, {"others": [case.labelled(first)]}
    if others.count == 1:
        return "others_have", f"{case.label(first.id)} has {others.slots}", figures
    return "others_have", f"{others.count} other trainings have {others.slots}", figures


def _pinned(me: JobView, decision: Decision) -> Explanation:
    pool = decision.pool
    slots = len(pool.held.get(me.id, ())) + len(pool.away[me.id])
    hosts = sorted({ref.host for ref in pool.away[me.id]})
    verb = "takes" if len(hosts) == 1 else "take"
    why = f"its minimum of {me.min_slots} fits nowhere else" if me.elastic else "it runs on a fixed number of GPUs"
    text = f"{wording.gpus(slots)}: stays, though {wording.listed(hosts, 'hosts')} {verb} nothing new, because {why}."
    params = {"target": slots, "before": slots, "hosts": hosts, "min_slots": me.min_slots, "rule": "pinned"}
    return Explanation(PlanReason.UNCHANGED, params, text)


def _reclaimed(decision: Decision, job: int) -> Explanation:
    """Other groups have a right to what it holds, and its own keeps too little for it."""
    pool = decision.pool
    before = len(pool.held.get(job, ())) + len(pool.away.get(job, ()))
    params: dict[str, Any] = {"target": 0, "before": before, "rule": "reclaimed"}
    why = _beside_others(decision, params) or "; others of its group's GPUs are free for it"
    text = f"Stops for now and gives back {wording.gpus(before)}: other groups are entitled to them{why}."
    return Explanation(PlanReason.RECLAIMED_BY_OWNER, params, text)


def _closed(decision: Decision) -> Explanation:
    name = decision.pool.group.name
    text = f"Waits: its instance group {name} is stopped, and nothing starts there until it is started."
    return Explanation(PlanReason.GROUP_STOPPED, {"target": 0, "group": name, "rule": "closed"}, text)


# --- jobs without slots ----------------------------------------------------------------------------------------------


def _stopped(case: _Case) -> Explanation:
    higher = case.first_other  # the policy serves by priority, and nothing else stops a job
    assert higher is not None
    params = {
        "target": 0,
        "before": case.before,
        "priority": case.me.priority,
        "others": [case.labelled(higher)],
        "rule": "stopped",
    }
    words = wording.compared(case.me.priority, case.label(higher.id), higher.priority)
    text = f"Stops for now and gives back {wording.gpus(case.before)}: {words}."
    return Explanation(PlanReason.PREEMPTED_BY_PRIORITY, params, text)


def _awaiting(case: _Case) -> Explanation:
    """It has a target, but too few of its slots are free yet."""
    free = min(case.summary.free_left, case.placed.target)
    missing = case.placed.target - free
    givers, named = _givers(case)
    params = {"target": case.placed.target, "free": free, "missing": missing, "rule": "given_back", **givers}
    verb = "is" if missing == 1 else "are"
    text = f"Waits: {missing} of {wording.gpus(case.placed.target)} {verb} being given back by {named}."
    return Explanation(PlanReason.WAITING_FOR_SLOTS, params, text)


def _waiting(case: _Case) -> Explanation:
    if case.demand.min_slots > case.decision.capacity:
        return _too_large(case)
    ahead = case.summary.ahead_of(case.demand)
    return _in_line(case) if ahead is None else _behind(case, ahead)


def _too_large(case: _Case) -> Explanation:
    need, capacity = case.demand.min_slots, case.decision.capacity
    params = {"min_slots": need, "capacity": capacity, "rule": "too_large"}
    beside = _beside_others(case.decision, params).removeprefix("; ")
    text = f"Needs {wording.gpus(need)} at once: {beside or f'its group has {capacity} to share now'}."
    return Explanation(_waits_for_group(case) or PlanReason.GANG_TOO_LARGE_NOW, params, text)


def _waits_for_group(case: _Case) -> PlanReason | None:
    """It would fit, if its group had not all that it owns already."""
    entitlement = case.decision.entitlement
    if (
        entitlement is None
        or entitlement.quota is None
        or not entitlement.quota <= entitlement.room < entitlement.wants
    ):
        return None
    return PlanReason.OVER_QUOTA if case.demand.min_slots <= entitlement.total else None


def _behind(case: _Case, ahead: Demand) -> Explanation:
    by_priority = case.decision.pool.group.policy != "fifo" and ahead.priority > case.me.priority
    which = f"has a higher priority ({ahead.priority} to {case.me.priority})" if by_priority else "came first"
    params = {"priority": case.me.priority, "others": [case.labelled(ahead)], "rule": "behind"}
    text = f"Waits behind {case.label(ahead.id)}, which {which} and needs {wording.gpus(ahead.min_slots)}."
    return Explanation(PlanReason.BEHIND_HIGHER_PRIORITY if by_priority else PlanReason.WAITING_FOR_SLOTS, params, text)


def _in_line(case: _Case) -> Explanation:
    """It is the next to start: `taken` slots are out of its reach, and what remains is less than its minimum."""
    capacity, need = case.decision.capacity, case.demand.min_slots
    by_priority = case.decision.pool.group.policy == "priority" and case.preemption
    if case.is_fair_share:
        taken = case.summary.floors_slots
    else:
        taken = case.summary.firm[case.me.priority] if by_priority else case.others.slots
    missing = need - (capacity - taken)
    whose = "are the least that other trainings need" if case.is_fair_share and case.preemption else "are taken"
    text = f"Waits for {missing} more {wording.gpus_word(missing)}: it needs {need}, and {taken} of {capacity} {whose}"
    params = {"missing": missing, "min_slots": need, "taken": taken, "capacity": capacity, "rule": "in_line"}
    text += _beside_others(case.decision, params)
    first = case.first_other
    higher = by_priority and first is not None and first.priority > case.me.priority
    code = PlanReason.BEHIND_HIGHER_PRIORITY if higher else _waits_for_group(case) or PlanReason.WAITING_FOR_SLOTS
    return Explanation(code, params, f"{text}.")


def _givers(case: _Case) -> tuple[dict[str, Any], str]:
    """Who gives back, as figures and in words. Of many, only the first are in the figures."""
    givers = case.summary.givers
    first = list(islice(givers.items(), _MAX_GIVERS))
    labels = [case.label(job) for job, _ in first]
    shown = [{"job": job, "label": label, "slots": slots} for (job, slots), label in zip(first, labels, strict=True)]
    figures = {"givers": shown, "givers_count": len(givers), "givers_slots": case.summary.givers_slots}
    if len(givers) > _MAX_GIVERS:
        return figures, f"{len(givers)} trainings"
    return figures, wording.listed(labels, "trainings")

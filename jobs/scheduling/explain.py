"""Why a job gets what it gets, in one sentence for its owner. The numbers of each sentence are in its params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.scheduling import wording
from jobs.scheduling.decision import Decision
from jobs.scheduling.demand import Demand
from jobs.scheduling.placement import Placed
from jobs.scheduling.plan import Explanation
from jobs.scheduling.policies import fairshare
from jobs.scheduling.snapshot import JobView
from jobs.states import Reason

__all__ = ["explain"]


def explain(decision: Decision, placed: Mapping[int, Placed]) -> dict[int, Explanation]:
    """One explanation for each job of `placed`."""
    views = {job.id: job for job in decision.pool.jobs}
    demands = {demand.id: demand for demand in decision.demands}
    givers = _givers(decision, placed)
    floors: dict[int, int] = {}
    if decision.pool.group.policy == "fairshare":
        preemption = decision.pool.group.preemption
        floors = fairshare.floors(decision.demands, decision.capacity, preemption=preemption)
    result = {job: _settled(views[job], decision) for job in decision.settled}
    for job, demand in demands.items():
        result[job] = _explain_one(_Case(decision, views, demand, placed, givers, floors))
    return result


def _givers(decision: Decision, placed: Mapping[int, Placed]) -> dict[int, int]:
    """Holder -> how many slots, useful to this group, it is giving back from this turn on."""
    pool = decision.pool
    givers = {holder: len(refs) for holder, refs in pool.coming.items()}
    for job, slots in placed.items():
        vacated = len(set(slots.vacate) & set(pool.held.get(job, ())))
        if vacated:
            givers[job] = givers.get(job, 0) + vacated
    return dict(sorted(givers.items()))


@dataclass(frozen=True)
class _Case:
    """One job of the group, and all that a sentence about it may speak of."""

    decision: Decision
    views: Mapping[int, JobView]
    demand: Demand
    all_placed: Mapping[int, Placed]
    givers: Mapping[int, int]
    #: Under fair share, the least that each job gets which takes part; see `fairshare.floors`.
    floors: Mapping[int, int]

    @property
    def placed(self) -> Placed:
        return self.all_placed[self.demand.id]

    @property
    def me(self) -> JobView:
        return self.views[self.demand.id]

    @property
    def before(self) -> int:
        """How many slots it holds and has not been told to give back."""
        pool = self.decision.pool
        return len(pool.held.get(self.me.id, ())) + len(pool.away.get(self.me.id, ()))

    @property
    def moving_off(self) -> list[str]:
        """Hosts that take nothing new and that it leaves in this turn."""
        away = self.decision.pool.away.get(self.me.id, ())
        return sorted({ref.host for ref in away if ref in self.placed.vacate})

    @property
    def others(self) -> list[Demand]:
        """The other jobs that get anything, in the order in which they are served."""
        return [d for d in self.decision.demands if d.id != self.demand.id and d.id in self.decision.shares]

    @property
    def is_fair_share(self) -> bool:
        return self.decision.pool.group.policy == "fairshare"

    @property
    def preemption(self) -> bool:
        """Whether this group's policy may take slots from running jobs."""
        return self.decision.pool.group.preemption and self.decision.pool.group.policy != "fifo"

    def share(self, demand: Demand) -> int:
        return self.decision.shares.get(demand.id, 0)

    def label(self, job: int) -> str:
        return wording.label(self.me, self.views.get(job))

    def labelled(self, demand: Demand) -> dict[str, Any]:
        return {
            "job": demand.id,
            "label": self.label(demand.id),
            "slots": self.share(demand),
            "priority": demand.priority,
            "min_slots": demand.min_slots,
            "max_slots": demand.max_slots,
        }


def _explain_one(case: _Case) -> Explanation:
    if case.placed.target == 0:
        return _stopped(case) if case.demand.running else _waiting(case)
    if not case.demand.running and not case.placed.claim:
        return _awaiting(case)
    return _share(case)


# --- jobs with slots -------------------------------------------------------------------------------------------------


def _share(case: _Case) -> Explanation:
    target, capacity, missing = case.placed.target, case.decision.capacity, case.placed.missing
    rule, because, figures = _because(case)
    params: dict[str, Any] = {
        "target": target,
        "capacity": capacity,
        "before": case.before,
        "claimed": len(case.placed.claim),
        "missing": missing,
        "priority": case.me.priority,
        "min_slots": case.demand.min_slots,
        "max_slots": case.demand.max_slots,
        "rule": rule,
        **figures,
    }
    text = f"{target} of {wording.gpus(capacity)}: {because}"
    if case.moving_off:
        params["moving_off"] = case.moving_off
        text += f"; moves off {wording.listed(case.moving_off, 'hosts')}"
    if case.placed.leaving:
        params["leaving"] = sorted({ref.host for ref in case.placed.leaving})
        text += f"; leaves {wording.listed(params['leaving'], 'hosts')} once other GPUs are free"
    if missing:
        params["givers"] = _givers_for(case)
        verb = "is" if missing == 1 else "are"
        text += f"; {missing} of them {verb} being given back by {_named(params['givers'])}"
    return Explanation(_code(case), params, text + ".")


def _code(case: _Case) -> Reason:
    target, before = case.placed.target, case.before
    if not case.demand.running:
        return Reason.GRANTED
    if target < before and before > case.demand.max_slots == target:
        return Reason.LIMIT_CHANGED
    if case.moving_off:
        return Reason.REBALANCED
    if target < before:
        return Reason.SHRUNK_FOR_FAIR_SHARE if case.is_fair_share else Reason.PREEMPTED_BY_PRIORITY
    if target > before:
        return Reason.GREW_INTO_FREE_SLOTS if case.placed.claim else Reason.REBALANCED
    return Reason.UNCHANGED


_Because = tuple[str, str, dict[str, Any]]


def _because(case: _Case) -> _Because:
    """The first rule that holds: its name, its words, its figures."""
    policy = _fair_share_rules if case.is_fair_share else _in_order_rules
    if case.placed.target == case.demand.max_slots:
        return _at_maximum(case)
    return policy(case)


def _at_maximum(case: _Case) -> _Because:
    if not case.me.elastic:
        return "fixed", f"it runs on exactly {case.demand.max_slots}", {}
    return "maximum", f"the most it asks for is {case.demand.max_slots}", {}


def _fair_share_rules(case: _Case) -> _Because:
    others = case.others
    if not others:
        return "alone", "all there are", {}
    total = case.me.priority + sum(other.priority for other in others)

    def at_floor(demand: Demand) -> bool:
        share = case.share(demand)
        return share == case.floors[demand.id] and share * total > demand.priority * case.decision.capacity

    if all(case.share(other) == other.max_slots for other in others):
        return _others_at_maximum(case)
    if at_floor(case.demand):
        return _at_floor(case, case.demand, "it")
    if len(others) > 1:
        words = f"shared by priority with {len(others)} other trainings ({case.me.priority} of {total} in all)"
        return "by_priority", words, {"total_priority": total, **_counted(case)}
    if at_floor(others[0]):
        return _at_floor(case, others[0], case.label(others[0].id))
    words = wording.compared(case.me.priority, case.label(others[0].id), others[0].priority)
    return "compared", words, {"others": [case.labelled(others[0])]}


def _counted(case: _Case) -> dict[str, Any]:
    """How many others there are and what they get together; the other one itself, if it is one."""
    others = case.others
    figures = {"others_count": len(others), "others_slots": sum(case.share(other) for other in others)}
    return figures if len(others) > 1 else {**figures, "others": [case.labelled(other) for other in others]}


def _others_at_maximum(case: _Case) -> _Because:
    others = case.others
    most = sum(other.max_slots for other in others)
    figures = _counted(case)
    if len(others) == 1:
        return "others_maximum", f"the most {case.label(others[0].id)} can use is {most}", figures
    return "others_maximum", f"the most the {len(others)} other trainings can use is {most}", figures


def _at_floor(case: _Case, demand: Demand, label: str) -> _Because:
    figures = {**_counted(case), "floor": case.share(demand)}
    if case.preemption or case.share(demand) == demand.min_slots:
        return "floor", f"the least {label} needs is {case.share(demand)}", figures
    return "kept", f"{label} keeps {case.share(demand)}, as preemption is off", figures


def _in_order_rules(case: _Case) -> _Because:
    before_me = _ahead(case)
    if before_me is not None:
        words = f"{case.label(before_me.id)} waits before it for {wording.gpus(before_me.min_slots)}"
        return "ahead", words, {"others": [case.labelled(before_me)]}
    others = case.others
    if not others:
        return "alone", "all there are", {}
    total = sum(case.share(other) for other in others)
    figures = _counted(case)
    higher = [other for other in others if other.priority > case.me.priority]
    if case.preemption and higher:
        words = wording.compared(case.me.priority, case.label(higher[0].id), higher[0].priority)
        return "compared", words, {"others": [case.labelled(higher[0])]}
    if len(others) == 1:
        return "others_have", f"{case.label(others[0].id)} has {total}", figures
    return "others_have", f"{len(others)} other trainings have {total}", figures


def _settled(me: JobView, decision: Decision) -> Explanation:
    pool = decision.pool
    slots = len(pool.held.get(me.id, ())) + len(pool.away[me.id])
    hosts = sorted({ref.host for ref in pool.away[me.id]})
    verb = "takes" if len(hosts) == 1 else "take"
    why = f"its minimum of {me.min_slots} fits nowhere else" if me.elastic else "it runs on a fixed number of GPUs"
    text = f"{wording.gpus(slots)}: stays, though {wording.listed(hosts, 'hosts')} {verb} nothing new, because {why}."
    params = {"target": slots, "before": slots, "hosts": hosts, "min_slots": me.min_slots, "rule": "settled"}
    return Explanation(Reason.UNCHANGED, params, text)


# --- jobs without slots ----------------------------------------------------------------------------------------------


def _stopped(case: _Case) -> Explanation:
    higher = next(other for other in case.others if other.priority > case.me.priority)
    params = {
        "target": 0,
        "before": case.before,
        "priority": case.me.priority,
        "others": [case.labelled(higher)],
        "rule": "stopped",
    }
    words = wording.compared(case.me.priority, case.label(higher.id), higher.priority)
    text = f"Stops for now and gives back {wording.gpus(case.before)}: {words}."
    return Explanation(Reason.PREEMPTED_BY_PRIORITY, params, text)


def _awaiting(case: _Case) -> Explanation:
    """It has a target, but too few of its slots are free yet."""
    free = min(_free_left(case), case.placed.target)
    missing = case.placed.target - free
    givers = _givers_for(case)
    params = {"target": case.placed.target, "free": free, "missing": missing, "givers": givers, "rule": "given_back"}
    verb = "is" if missing == 1 else "are"
    text = f"Waits: {missing} of {wording.gpus(case.placed.target)} {verb} being given back by {_named(givers)}."
    return Explanation(Reason.WAITING_FOR_SLOTS, params, text)


def _waiting(case: _Case) -> Explanation:
    if case.demand.min_slots > case.decision.capacity:
        return _too_large(case)
    ahead = _ahead(case)
    return _in_line(case) if ahead is None else _behind(case, ahead)


def _too_large(case: _Case) -> Explanation:
    need, capacity = case.demand.min_slots, case.decision.capacity
    text = f"Needs {wording.gpus(need)} at once: its group has {capacity} to share now."
    return Explanation(Reason.GANG_TOO_LARGE_NOW, {"min_slots": need, "capacity": capacity, "rule": "too_large"}, text)


def _behind(case: _Case, ahead: Demand) -> Explanation:
    by_priority = case.decision.pool.group.policy != "fifo" and ahead.priority > case.me.priority
    which = f"has a higher priority ({ahead.priority} to {case.me.priority})" if by_priority else "came first"
    params = {"priority": case.me.priority, "others": [case.labelled(ahead)], "rule": "behind"}
    text = f"Waits behind {case.label(ahead.id)}, which {which} and needs {wording.gpus(ahead.min_slots)}."
    return Explanation(Reason.BEHIND_HIGHER_PRIORITY if by_priority else Reason.WAITING_FOR_SLOTS, params, text)


def _in_line(case: _Case) -> Explanation:
    """It is the next to start: `taken` slots are out of its reach, and what remains is less than its minimum."""
    capacity, need = case.decision.capacity, case.demand.min_slots
    by_priority = case.decision.pool.group.policy == "priority" and case.preemption
    if case.is_fair_share:
        taken = sum(case.floors.values())
    else:
        firm = [other for other in case.others if not by_priority or other.priority >= case.me.priority]
        taken = sum(case.share(other) for other in firm)
    missing = need - (capacity - taken)
    whose = "are the least that other trainings need" if case.is_fair_share and case.preemption else "are taken"
    text = f"Waits for {missing} more {wording.gpus_word(missing)}: it needs {need}, and {taken} of {capacity} {whose}."
    params = {"missing": missing, "min_slots": need, "taken": taken, "capacity": capacity, "rule": "in_line"}
    higher = by_priority and any(other.priority > case.me.priority for other in case.others)
    return Explanation(Reason.BEHIND_HIGHER_PRIORITY if higher else Reason.WAITING_FOR_SLOTS, params, text)


def _ahead(case: _Case) -> Demand | None:
    """The first job that waits before this one and would fit: nobody behind it may overtake it.

    Only equals wait for each other where a higher priority can take what it needs at any time.
    """
    decision = case.decision
    equals_only = decision.pool.group.policy == "priority" and case.preemption
    for demand in decision.demands:
        if demand.id == case.demand.id:
            return None
        waits = not demand.running and demand.id not in decision.shares and demand.min_slots <= decision.capacity
        if waits and (not equals_only or demand.priority == case.me.priority):
            return demand
    return None


def _free_left(case: _Case) -> int:
    """Free slots that nobody claims in this turn: too few for this job to start on."""
    claimed = sum(len(slots.claim) for slots in case.all_placed.values())
    return len(case.decision.pool.free) - claimed


def _givers_for(case: _Case) -> list[dict[str, Any]]:
    return [{"job": job, "label": case.label(job), "slots": slots} for job, slots in case.givers.items()]


def _named(givers: list[dict[str, Any]]) -> str:
    return wording.listed([giver["label"] for giver in givers], "trainings")
